// Integer products by tiles, whoever makes them (tile_block-inl.h): activations as they lie stand at the
// left, a block of a tile of weights, unpacked for all rows of the left, at the right.
//
// Integers of weights fit a byte with a sign in every type. Rows that fill no tile are VNNI's, with the same
// bits.
//
// The file that includes this defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include "kernels/cpu/int8_avx512-inl.h"
#include "kernels/cpu/tile_block-inl.h"

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

// y[row][output] of kI tiles' rows and a tile's outputs, those that `stored` names. tiles are of the depth
// that the type's scales have.
template <DType kType, int kI, typename Tiles>
void AddTileRows(Tiles& tiles, const uint8_t* w, const Int8Rows& x, int64_t first_row, __mmask16 stored,
                 float* y, int64_t y_stride) {
  constexpr Int8Form kForm = FormOf(kType);
  constexpr int kDepth = kGroups / kForm.halves;
  constexpr int kRows = kI * static_cast<int>(kTileRows);
  const int64_t n_blocks = x.k / kColumns;
  const int8_t* p = x.p + first_row * x.k;
  const Int8BlockSums* blocks = x.blocks + first_row * n_blocks;
  alignas(64) uint8_t integers[kGroups][kTileRowBytes];
  alignas(64) int32_t dots[kRows][kTile];
  alignas(64) float sums[kRows][kTile] = {};
  Factors<kType> factors;
  for (int64_t block = 0; block < n_blocks; ++block, p += kColumns, ++blocks) {
    if constexpr (kForm.super) {
      if (block % 8 == 0) {
        factors.TakeHead(w);
        w += kForm.head_bytes();
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      _mm512_store_si512(integers[g], Group<kForm.bits>(w + kForm.scale_bytes(), g));
    }
    for (int part = 0; part < kForm.halves; ++part) {
      ClearSums<kI, 1>(tiles);
      LoadLeft<kI>(tiles, p + 4 * kDepth * part, x.k);
      LoadRight<1>(tiles, integers[kDepth * part], kTileRowBytes);
      AddInt8<kI, 1>(tiles);
      StoreSums<kI, 1>(tiles, dots, sizeof dots[0]);
      factors.Take(w, part);
      for (int row = 0; row < kRows; ++row) {
        const __m512i of_row = _mm512_load_si512(dots[row]);
        const __m512 before = _mm512_load_ps(sums[row]);
        _mm512_store_ps(sums[row], factors.Add(before, of_row, blocks[row * n_blocks], part));
      }
    }
    w += kForm.block_bytes();
  }
  for (int row = 0; row < kRows; ++row) {
    _mm512_mask_storeu_ps(y + (first_row + row) * y_stride, stored, _mm512_load_ps(sums[row]));
  }
}

// Of the first n_rows rows, whole tiles of them.
template <DType kType, typename Tiles>
void MultiplyTypeByTiles(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
                         int64_t n_rows, float* y, int64_t y_stride) {
  static constexpr TileShapes kShapes = ShapesOfDepth(kGroups / FormOf(kType).halves);
  Tiles tiles(kShapes);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const uint8_t* const w = weights.tile(tile);
    const __mmask16 stored = Outputs(weights, tile);
    float* const to = y + (tile - tile_begin) * kTile;
    int64_t row = 0;
    for (; row + 2 * kTileRows <= n_rows; row += 2 * kTileRows)
      AddTileRows<kType, 2>(tiles, w, x, row, stored, to, y_stride);
    if (row < n_rows) AddTileRows<kType, 1>(tiles, w, x, row, stored, to, y_stride);
  }
}

template <typename Tiles>
void MultiplyByTiles(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
                     int64_t n_rows, float* y, int64_t y_stride) {
  const int64_t whole = n_rows / kTileRows * kTileRows;
  if (whole > 0) {
    DispatchInt8(weights.type(), [&]<DType kType>(std::integral_constant<DType, kType>) {
      MultiplyTypeByTiles<kType, Tiles>(weights, tile_begin, tile_end, x, whole, y, y_stride);
    });
  }
  if (whole == n_rows) return;
  const Int8Rows rest = {.p = x.p + whole * x.k, .blocks = x.blocks + whole * (x.k / kColumns), .k = x.k};
  kInt8Avx512Vnni.multiply(weights, tile_begin, tile_end, rest, n_rows - whole, y + whole * y_stride,
                           y_stride);
}

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
