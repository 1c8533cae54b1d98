// Products of quantised weights with activations quantised to eight bits, in integers: Y = X W^T, for any
// number of rows of X, so that prefill and decode are one operation.
//
// Activations take one float32 scale for 32 columns, as ggml's Q8_0 does; weights keep the integers and
// scales of their file, which are only laid out anew (Int8Weights). With w = scale * q + min and x = s * p in
// a block of 32 columns (16 for Q6_K), the block adds (scale * s) * sum(q p) + min * (s * sum p): exact sums
// of integers, then two fused multiply-adds in float32, blocks in ascending order. The order depends on
// nothing else, so all implementations give the same bits, for one row as for many.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/implementation.h"
#include "kernels/int8_weights.h"

namespace longheads {

// A block of 32 activations, beside its integers.
struct Int8BlockSums {
  float scale;             // of x = scale * p; not a number where an activation was infinite or none
  float scaled_sum;        // scale * (sum of p)
  float scaled_halves[2];  // the same of columns 0 .. 15 and 16 .. 31
  int32_t sum;             // of p
};

// Rows [n_rows, k] of quantised activations; k is a multiple of 32.
struct Int8Rows {
  const int8_t* p = nullptr;              // [n_rows, k], each within -127 .. 127
  const Int8BlockSums* blocks = nullptr;  // [n_rows, k / 32]
  int64_t k = 0;
};

// What a block's largest magnitude, as the bits of a float32, makes of it. Implementations share it: the
// first rounding decides all that follow.
struct Int8Scale {
  bool finite;
  float scale;
  float inverse;  // p = x * inverse, rounded; 0 where 127 / max |x| would be infinite, or nearly
};

inline Int8Scale ScaleFor(uint32_t largest) {
  const float most = std::bit_cast<float>(largest);
  if (largest >= 0x7F800000u)
    return {.finite = false, .scale = std::numeric_limits<float>::quiet_NaN(), .inverse = 0};
  return {.finite = true, .scale = most / 127.0f, .inverse = most >= 1e-35f ? 127.0f / most : 0.0f};
}

inline Int8BlockSums SumsFor(const Int8Scale& scale, int32_t first_half, int32_t second_half) {
  return {.scale = scale.scale,
          .scaled_sum = scale.scale * static_cast<float>(first_half + second_half),
          .scaled_halves = {scale.scale * static_cast<float>(first_half),
                            scale.scale * static_cast<float>(second_half)},
          .sum = first_half + second_half};
}

struct Int8Kernels {
  // x [k] to p [k] and blocks [k / 32]: scale = max |x| / 127, p = x / scale rounded to the nearest, to even
  // between two. A block with a number that is not finite has a NaN as its scale: its row's products are NaN.
  void (*quantise)(const float* x, int64_t k, int8_t* p, Int8BlockSums* blocks);
  // y[row * y_stride + output] for all rows and the outputs of the weights' tiles [tile_begin, tile_end),
  // counted from the first of these.
  void (*multiply)(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
                   int64_t n_rows, float* y, int64_t y_stride);
};

// "amx", "avx512" (with VNNI), "avx2", "ref": ordered, fastest first.
std::span<const Implementation<Int8Kernels>> Int8Implementations();

}  // namespace longheads
