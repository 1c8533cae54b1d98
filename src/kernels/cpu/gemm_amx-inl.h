// kernels/gemm.h in bfloat16 by products of tiles, whoever makes them (tile_block-inl.h): activations stand
// at the left, weights at the right.
//
// Both lie as tiles are read, each in one run of cache lines: a strip of 32 rows, or of 32 outputs, has two
// tiles for each step of 32 columns, [16 rows, 32 columns] or [16 pairs of columns, 16 outputs]. What is
// missing of the last step, and of the last tile of outputs, is zero.
//
// The file that includes this defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/cpu/tile_block-inl.h"
#include "kernels/cpu/transpose-inl.h"
#include "kernels/gemm.h"

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

template <typename Tiles>
class TileGemm : public Gemm {
  static constexpr int64_t kTile = cpu::kTileRows;  // rows, or outputs, of one of AMX's
  static constexpr int64_t kStrip = 2 * kTile;
  static constexpr int64_t kStep = 32;  // columns
  static constexpr int64_t kTileBytes = kTile * kTileRowBytes;
  static constexpr int64_t kStepBytes = 2 * kTileBytes;  // of a strip
  static_assert(kTileRows % kStrip == 0 && kPanel % kStrip == 0 && kColumnUnit % kStep == 0);

 public:
  TileGemm(int64_t k, int64_t n) : Gemm(k, n), n_steps_((k + kStep - 1) / kStep) {}

  int64_t panel_stride() const override { return kPanel / kStrip * n_steps_ * kStepBytes; }

  void Pack(int64_t panel, float* weights, std::byte* packed, int) const override {
    for (int64_t output = 0; output < panel_width(panel); output += kTile) {
      std::byte* const strip = packed + output / kStrip * n_steps_ * kStepBytes;
      std::byte* to = strip + output % kStrip / kTile * kTileBytes;
      const int64_t n_here = std::min(kTile, panel_width(panel) - output);
      for (int64_t column = 0; column < k(); column += kStep, to += kStepBytes) {
        __m512i block[kTile];
        for (int64_t i = 0; i < kTile; ++i) {
          block[i] = i < n_here ? Rounded(weights + (output + i) * k() + column, k() - column)
                                : _mm512_setzero_si512();
        }
        Transpose(block);
        for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(to + i * kTileRowBytes, block[i]);
      }
    }
  }

  int64_t row_bytes() const override { return n_steps_ * kTileRowBytes; }

  void Place(const float* x, int64_t n, int64_t row, int64_t column, std::byte* rows) const override {
    std::byte* to = rows + row / kStrip * kStrip * row_bytes() + column / kStep * kStepBytes +
                    row % kStrip * kTileRowBytes;
    for (int64_t i = 0; i < n; i += kStep, to += kStepBytes) _mm512_store_si512(to, Rounded(x + i, n - i));
  }

  void Multiply(int64_t panel, const std::byte* x, const std::byte* packed, int64_t n_rows, float* y,
                int64_t y_stride, int) const override {
    // Steps at once: so few that both strips stay in the first cache, the one until the next strip of rows
    // comes. Sums wait where they go.
    constexpr int64_t kMostSteps = 9;
    const int64_t n_parts = (n_steps_ + kMostSteps - 1) / kMostSteps;
    const int64_t n_at_once = (n_steps_ + n_parts - 1) / n_parts;
    static constexpr TileShapes kShapes = ShapesOfDepth(kTile);
    Tiles tiles(kShapes);
    for (int64_t step = 0; step < n_steps_; step += n_at_once) {
      const int64_t n_here = std::min(n_at_once, n_steps_ - step);
      for (int64_t row = 0; row < n_rows; row += kStrip) {
        for (int64_t output = 0; output < panel_width(panel); output += kStrip) {
          AddStrips(tiles, x + row * row_bytes() + step * kStepBytes,
                    packed + output / kStrip * n_steps_ * kStepBytes + step * kStepBytes, n_here, step == 0,
                    std::min(kStrip, n_rows - row), std::min(kStrip, panel_width(panel) - output),
                    y + row * y_stride + output, y_stride);
        }
      }
    }
  }

 private:
  // Up to 32 numbers in bfloat16, zeros behind them.
  static HWY_INLINE __m512i Rounded(const float* x, int64_t n) {
    const auto seen = static_cast<__mmask32>(n >= kStep ? ~0u : (1u << n) - 1);
    const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(seen), x);
    const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(seen >> 16), x + kStep / 2);
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }

  // y [n_rows, n_outputs] += the products of a strip of rows and one of outputs in some steps, or = in the
  // first.
  static void AddStrips(Tiles& tiles, const std::byte* left, const std::byte* right, int64_t n_steps,
                        bool first, int64_t n_rows, int64_t n_outputs, float* y, int64_t y_stride) {
    const bool high = n_rows > kTile, wide = n_outputs > kTile;
    const auto add = [&](float* sums, int64_t stride) {
      const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
      if (high && wide) {
        AddSteps<2, 2>(tiles, left, right, n_steps, first, sums, bytes);
      } else if (high) {
        AddSteps<2, 1>(tiles, left, right, n_steps, first, sums, bytes);
      } else if (wide) {
        AddSteps<1, 2>(tiles, left, right, n_steps, first, sums, bytes);
      } else {
        AddSteps<1, 1>(tiles, left, right, n_steps, first, sums, bytes);
      }
    };
    if (n_rows % kTile == 0 && n_outputs % kTile == 0) return add(y, y_stride);
    // Tiles that reach beyond what there is.
    alignas(64) float sums[kStrip][kStrip];
    const auto bytes = sizeof(float) * static_cast<std::size_t>(n_outputs);
    for (int64_t row = 0; row < n_rows && !first; ++row) std::memcpy(sums[row], y + row * y_stride, bytes);
    add(sums[0], kStrip);
    for (int64_t row = 0; row < n_rows; ++row) std::memcpy(y + row * y_stride, sums[row], bytes);
  }

  template <int kI, int kJ>
  static void AddSteps(Tiles& tiles, const std::byte* left, const std::byte* right, int64_t n_steps,
                       bool first, float* sums, int64_t stride) {
    if (first) {
      ClearSums<kI, kJ>(tiles);
    } else {
      LoadSums<kI, kJ>(tiles, sums, stride);
    }
    for (int64_t step = 0; step < n_steps; ++step, left += kStepBytes, right += kStepBytes) {
      tiles.template Load<kRight>(right, kTileRowBytes);
      if constexpr (kJ == 2) tiles.template Load<kRight + 1>(right + kTileBytes, kTileRowBytes);
      LoadLeft<kI>(tiles, left, kTileRowBytes);
      AddBf16<kI, kJ>(tiles);
    }
    StoreSums<kI, kJ>(tiles, sums, stride);
  }

  int64_t n_steps_;
};

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
