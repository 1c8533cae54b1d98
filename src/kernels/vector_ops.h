// Element-wise work of a transformer layer on rows of float32: normalisation, gating, sums, rotation,
// conversion; and comparisons of scores.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/implementation.h"
#include "kernels/packed_bf16.h"
#include "kernels/rotation_table.h"
#include "tensor/dtype.h"

namespace longheads {

// Rows whose largest magnitude is less have no scale in eight bits: its inverse might not be finite.
inline constexpr float kLeastQ8 = 1e-30f;

// The least and the largest of some scores, but for what is no number.
struct ScoreRange {
  float least = std::numeric_limits<float>::infinity();
  float largest = -std::numeric_limits<float>::infinity();
};

inline constexpr float kWorstScore = -std::numeric_limits<float>::infinity();

// `n` scores are at least `at`, and fewer than are wanted at least `above`; none are where that is no number.
// Where fewer are numbers above kWorstScore, `at` is kWorstScore and stands for what is no number too; `n`
// then says nothing.
struct ScoreCut {
  float at;
  float above;
  int64_t n;
};

struct VectorKernels {
  // out[n] = x / sqrt(mean(x^2) + epsilon) * weight. (RMSNorm: Zhang and Sennrich 2019.) out may be x.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t n, float* out);
  // a[n] += b[n]
  void (*add)(float* a, const float* b, int64_t n);
  // gate[n] = silu(gate[n]) * up[n]; silu(x) = x / (1 + exp(-x)). (SwiGLU: Shazeer 2020.)
  void (*silu_mul)(float* gate, const float* up, int64_t n);
  // out[head_dim] = R(x) in; out may be in.
  void (*rotate)(const float* in, int64_t x, const RotationTable& table, float* out);
  // Rounds to nearest even, and back.
  void (*to_bf16)(const float* in, int64_t n, BFloat16* out);
  void (*from_bf16)(const BFloat16* in, int64_t n, float* out);
  // Eight bits for each number of a row: out[n] = in / scale, rounded to nearest even, -127 .. 127; gives the
  // scale, max |in| / 127. A row below kLeastQ8 becomes zeros; one that is not finite gets a scale of NaN.
  float (*to_q8)(const float* in, int64_t n, int8_t* out);
  // And back: out[n] = in * scale, or each with a scale of its own.
  void (*from_q8)(const int8_t* in, float scale, int64_t n, float* out);
  void (*from_q8_each)(const int8_t* in, const float* scales, int64_t n, float* out);
  // A page of K [kMaxRun, head_dim] and V [head_dim, kMaxRun] packed; false, and nothing to be read there,
  // where too many numbers stand apart. And back, to the bit.
  bool (*pack_bf16)(const BFloat16* page, int64_t head_dim, PackedBf16Room packed);
  void (*unpack_bf16)(PackedBf16 packed, int64_t head_dim, BFloat16* page);
  // Of scores [n].
  ScoreRange (*range)(const float* scores, int64_t n);
  // How many of scores [n] are at least `least`, and which, ascending; `indices` has room for n + kIndexRoom.
  // What is no number is never.
  int64_t (*count_at_least)(const float* scores, int64_t n, float least);
  int64_t (*indices_at_least)(const float* scores, int64_t n, float least, int32_t* indices);
  // Cuts off at least `wanted` of the n best scores, and at most `most` where no equal ones prevent it.
  ScoreCut (*cut)(const float* scores, int64_t n, int64_t wanted, int64_t most);
  // largest[j] = the largest of scores j, j + width, j + 2 width, ...; width <= n, a multiple of kFoldWidth.
  // What is no number is never; where nothing is one, kWorstScore.
  void (*fold_largest)(const float* scores, int64_t n, int64_t width, float* largest);
  // The sum of exp(score - largest) of scores [n], of which none is above `largest`.
  double (*exp_sum)(const float* scores, int64_t n, float largest);
};

inline constexpr int64_t kIndexRoom = 16;
inline constexpr int64_t kFoldWidth = 16;

std::span<const Implementation<VectorKernels>> VectorImplementations();
// The first of them that runs here.
const VectorKernels& FastestVectorKernels();

}  // namespace longheads
