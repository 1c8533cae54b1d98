// Integer products, one output after the other, from the layout of Int8Weights.
#include "kernels/ref/int8.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/block_formats.h"

namespace longheads::ref {
namespace {

constexpr int kTile = Int8Weights::kTile;
constexpr int kColumns = 32;

void Quantise(const float* x, int64_t k, int8_t* p, Int8BlockSums* blocks) {
  for (int64_t begin = 0; begin < k; begin += kColumns, ++blocks) {
    uint32_t largest = 0;  // magnitudes as bits, whose order is theirs, NaN above infinity
    for (int i = 0; i < kColumns; ++i) {
      largest = std::max(largest, std::bit_cast<uint32_t>(x[begin + i]) & 0x7FFFFFFFu);
    }
    const Int8Scale scale = ScaleFor(largest);
    int32_t halves[2] = {0, 0};
    for (int i = 0; i < kColumns; ++i) {
      const int q = scale.finite ? static_cast<int>(std::nearbyint(x[begin + i] * scale.inverse)) : 0;
      p[begin + i] = static_cast<int8_t>(q);
      halves[i / 16] += q;
    }
    *blocks = SumsFor(scale, halves[0], halves[1]);
  }
}

// The integer of an output in column i of a block.
int IntegerOf(const uint8_t* units, int bits, int output, int i) {
  const int group = i / 4;
  const uint8_t* const at = units + 4 * output + i % 4;
  if (bits == 8) return static_cast<int8_t>(at[64 * group]);
  const int low = at[64 * (group / 2)] >> (group % 2 * 4) & 15;
  const uint8_t* const high = at + 4 * 64;
  if (bits == 5) return low | (high[0] >> group & 1) << 4;
  if (bits == 6) return low | (high[64 * (group / 4)] >> (group % 4 * 2) & 3) << 4;
  return low;
}

float HalfOf(const uint8_t* halves, int output) {
  return HalfAt(reinterpret_cast<const std::byte*>(halves + 2 * output));
}

float Output(const Int8Weights& weights, const uint8_t* tile, int output, const int8_t* p,
             const Int8BlockSums* blocks) {
  const Int8Form form = FormOf(weights.type());
  float sum = 0, super_scale = 1, super_min = 1;
  for (int64_t block = 0; block < weights.k() / kColumns; ++block, p += kColumns) {
    if (form.super && block % 8 == 0) {
      super_scale = HalfOf(tile, output);
      if (form.minima) super_min = -HalfOf(tile + 32, output);
      tile += form.head_bytes();
    }
    const Int8BlockSums& x = blocks[block];
    for (int half = 0; half < form.halves; ++half) {
      float scale, min;
      if (!form.super) {
        scale = HalfOf(tile, output);
        min = form.minima ? HalfOf(tile + 32, output) : static_cast<float>(-form.bias) * scale;
      } else if (form.minima) {
        scale = super_scale * static_cast<float>(tile[output]);
        min = super_min * static_cast<float>(tile[16 + output]);
      } else {
        scale = super_scale * static_cast<float>(static_cast<int8_t>(tile[16 * half + output]));
        min = static_cast<float>(-form.bias) * scale;
      }
      int32_t dot = 0;
      const int n = kColumns / form.halves;
      for (int i = half * n; i < (half + 1) * n; ++i) {
        dot += IntegerOf(tile + form.scale_bytes(), form.bits, output, i) * p[i];
      }
      sum = std::fma(scale * x.scale, static_cast<float>(dot), sum);
      if (form.bits != 8) sum = std::fma(min, form.halves == 2 ? x.scaled_halves[half] : x.scaled_sum, sum);
    }
    tile += form.block_bytes();
  }
  return sum;
}

void Multiply(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
              int64_t n_rows, float* y, int64_t y_stride) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t n_outputs = std::min<int64_t>(kTile, weights.n() - tile * kTile);
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int output = 0; output < n_outputs; ++output) {
        y[row * y_stride + (tile - tile_begin) * kTile + output] =
            Output(weights, weights.tile(tile), output, x.p + row * x.k, x.blocks + row * (x.k / kColumns));
      }
    }
  }
}

}  // namespace

const Int8Kernels kInt8 = {.quantise = Quantise, .multiply = Multiply};

}  // namespace longheads::ref
