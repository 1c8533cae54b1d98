// Attention of gathered query rows over a run of keys that lies in one page: the inner product of the
// executor. Knows pages' layout and rotations; which rows meet which keys, and at which distance, is the
// plan's business.
//
// Everything here treats a query row on its own: its bits do not depend on the rows beside it, nor on how
// many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/implementation.h"
#include "kernels/kv_limits.h"
#include "kernels/packed_bf16.h"
#include "kernels/rotation_table.h"
#include "tensor/dtype.h"

namespace longheads {

// A mergeable partial result of softmax attention for one query row: `out` [head_dim] is the sum of
// exp(logit - max) * v over the keys seen so far, `sum` that of exp(logit - max). max is the largest logit,
// or below it by so little that no sum is large: it changes neither their ratio nor how they merge. The empty
// state is {max = -inf, sum = 0, out = 0}. (Online softmax: Milakov and Gimelshein 2018; merging:
// FlashInfer.) In memory: head_dim floats of `out`, then max, then sum.
inline constexpr int64_t StateFloats(int64_t head_dim) { return head_dim + 2; }

// How a query row is rotated before it meets a run of keys: R(x), x in [0, table->n_positions()).
struct RotatedRow {
  const float* q;     // [head_dim], unrotated
  int64_t x;          // the rotation
  float scale;        // of its logits
  int32_t key_begin;  // the row sees keys [key_begin, key_end) of the run; never empty
  int32_t key_end;
  float* state;  // StateFloats(head_dim): attend merges the run's partial result into it
};

// A run of keys in one page. K is row-major, V transposed, as pages hold them.
template <typename T>
struct KeyRunOf {
  const T* k;  // [n_keys, head_dim]
  const T* v;  // [head_dim, v_stride], the first n_keys of each row used, all of it finite
  int64_t v_stride;
  int64_t n_keys;    // at most kMaxRun
  int64_t head_dim;  // a multiple of 16, at most kMaxHeadDim
  // What is read after it, where that is known: the beginning is asked for while this run ends, unless this
  // is too short for that.
  const void* next = nullptr;
};
using KeyRun = KeyRunOf<float>;
using Bf16KeyRun = KeyRunOf<BFloat16>;
// Integers, and each token's factors of them.
struct Q8KeyRun : KeyRunOf<int8_t> {
  const float* k_scale;  // [n_keys], to the next multiple of 16 finite
  const float* v_scale;
};
// Of a page of bfloat16 that lies packed.
struct PackedKeyRun {
  PackedBf16 page;
  int64_t n_keys;
  int64_t head_dim;
  const void* next = nullptr;
};

struct Bf16Page {
  const BFloat16* k;  // [kMaxRun, head_dim]
  const BFloat16* v;  // transposed: [head_dim, kMaxRun], finite
};

// Pages of bfloat16 that follow one another in the text, all but the last of them full. A row's keys are
// counted from the first page's beginning.
struct Bf16KeyPages {
  std::span<const Bf16Page> pages;
  int64_t n_keys;
  int64_t head_dim;
};

inline constexpr int64_t kScoredTogether = 64;

struct AttentionKernels {
  int64_t row_tile;  // rows that fill one tile; more or fewer are right too, only slower

  // For every row: logits = scale * (R(x) q) . k over its keys, softmax over the run, values, merge into
  // state. workspace: at least AttendWorkspace(row_tile, head_dim) floats, aligned.
  void (*attend)(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                 float* workspace);

  // The same from pages of bfloat16 by products of bfloat16: rotated queries and weights are rounded to it,
  // sums are float32. Null where the implementation has no such products.
  void (*attend_bf16)(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
                      float* workspace);

  // As attend, for a handful of rows (decode): rows share each key as it is read; other order of summation.
  void (*attend_few)(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                     float* workspace);

  // The same bits as attend_few from keys and values as a bfloat16 page holds them: widened as they are read.
  void (*attend_few_bf16)(std::span<const RotatedRow> rows, const Bf16KeyRun& run, const RotationTable& table,
                          float* workspace);

  // The same bits from a packed page.
  void (*attend_few_packed)(std::span<const RotatedRow> rows, const PackedKeyRun& run,
                            const RotationTable& table, float* workspace);

  // And from eight-bit integers, whose factors are put to logits and weights: the same value, rounded
  // elsewhere.
  void (*attend_few_q8)(std::span<const RotatedRow> rows, const Q8KeyRun& run, const RotationTable& table,
                        float* workspace);

  // mass[j] += the sum over the rows that see key j of exp(logit - max) / sum. A row's state is {max, sum}
  // alone here, of all it attended to, as attend and merge left them.
  void (*column_mass)(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                      float* mass, float* workspace);

  // column_mass for a handful of rows (decode), of each row by itself: masses[row * kMaxRun + j] +=
  // exp(logit - max) / sum for the keys that it sees. From float32 and, the same bits, from bfloat16; V is
  // not read.
  void (*column_mass_few)(std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                          float* masses, float* workspace);
  void (*column_mass_few_bf16)(std::span<const RotatedRow> rows, const Bf16KeyRun& run,
                               const RotationTable& table, float* masses, float* workspace);

  // scores[row * stride + c] = q[row] . vectors[c]; q rows [head_dim] each, vectors [n, head_dim] row-major.
  // Not rotated, not scaled. For what is scored once, or was not kept for it.
  void (*scores)(std::span<const float* const> q, const float* vectors, int64_t n, int64_t head_dim,
                 float* scores, int64_t stride, float* workspace);

  // The same bits for vectors [begin, end) of kScoredTogether that lie as columns [head_dim,
  // kScoredTogether], aligned: scores[row * stride + c - begin]. For the choice of chunks: few rows
  // would take most of their time to turn the vectors.
  void (*scores_of_columns)(std::span<const float* const> q, const float* columns, int64_t begin, int64_t end,
                            int64_t head_dim, float* scores, int64_t stride, float* workspace);

  // out[head_dim] = R(x) in; out is not in.
  void (*rotate)(const float* in, int64_t x, const RotationTable& table, float* out);

  // a = merge(a, b); any number of partial states merge to one softmax over the union of their keys.
  void (*merge)(float* a, const float* b, int64_t head_dim);
};

// Floats of workspace that attend, the kernels above may use.
inline constexpr int64_t AttendWorkspace(int64_t row_tile, int64_t head_dim) {
  const int64_t tile = row_tile < 32 ? 32 : row_tile;
  return tile * (2 * head_dim + kMaxRun + 64) + 64;
}

// Makes the empty state.
void ClearState(float* state, int64_t head_dim);
// out[head_dim] = state.out / state.sum, or zeros where no key was seen.
void FinishState(const float* state, int64_t head_dim, float* out);

std::span<const Implementation<AttentionKernels>> AttentionImplementations();

}  // namespace longheads
