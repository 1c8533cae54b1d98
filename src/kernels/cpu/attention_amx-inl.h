// kernels/attention.h's attend_bf16 by products of tiles of bfloat16, whoever makes the tiles
// (tile_block-inl.h).
//
// K row-major and V transposed are what stands at the left; the queries and the weights, packed in pairs, are
// what stands at the right: logits [keys, rows] and values [dimensions, rows] come out where they are kept.
//
// The file that includes this defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include "kernels/cpu/attention_bf16-inl.h"
#include "kernels/cpu/tile_block-inl.h"

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

// Rows of a block of tiles. Keys and dimensions go by as many: with 2 x 2 sums each tile that is loaded is
// multiplied twice.
constexpr int64_t kAmxTile = 2 * kLanes;
// Numbers in a row of what stands at the left.
constexpr int64_t kNumbers = kTileRowBytes / static_cast<int64_t>(sizeof(BFloat16));

template <typename Tiles, int kV>
class MatrixTile : public Bf16Tile<MatrixTile<Tiles, kV>, kV> {
  using Base = Bf16Tile<MatrixTile<Tiles, kV>, kV>;
  using Base::d_, Base::kRows, Base::logits_, Base::queries_, Base::rescale_, Base::values_, Base::weights_;
  static constexpr int64_t kStride = kRows * static_cast<int64_t>(sizeof(float));  // of all that has kRows

 public:
  static constexpr int64_t kBlock = 2 * kTileRows;
  static_assert(kBlock == kNumbers);  // a block of keys is one step down the values, too

  MatrixTile(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
             float* workspace, Tiles& tiles)
      : Base(rows, pages, table, workspace), tiles_(tiles) {}

  void Logits(const BFloat16* k, int64_t from, int64_t first, int64_t last) {
    constexpr int kAtOnce = 8;  // keys, of the block's, whose logits are held in registers
    const bool hides = this->Hides(from + first, from + last);
    __m512 max[kV];
    this->LoadMax(max);
    for (int64_t j = first; j < last; j += kBlock) {
      MultiplyKeys(k + j * d_, logits_ + j * kRows);
      for (int64_t i = j; i < j + kBlock; i += kAtOnce) {
        __m512 sums[kAtOnce][kV];
#pragma GCC unroll 8
        for (int b = 0; b < kAtOnce; ++b) {
#pragma GCC unroll 2
          for (int v = 0; v < kV; ++v) sums[b][v] = _mm512_loadu_ps(logits_ + (i + b) * kRows + v * kLanes);
        }
        this->Keep(from, i, hides, sums, max);
      }
    }
    this->Raise(max);
  }

  void AddValues(const BFloat16* v, int64_t first, int64_t last) {
    for (int64_t m = 0; m < d_; ++m) {
#pragma GCC unroll 2
      for (int i = 0; i < kV; ++i) {
        float* const to = values_ + m * kRows + i * kLanes;
        _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_loadu_ps(to), _mm512_loadu_ps(rescale_ + i * kLanes)));
      }
    }
    int64_t m = 0;
    for (; m + 2 * kTileRows <= d_; m += 2 * kTileRows) AddDimensions<2>(v, m, first, last);
    if (m < d_) AddDimensions<1>(v, m, first, last);
  }

 private:
  // logits [kBlock][kRows] of the keys at k.
  void MultiplyKeys(const BFloat16* k, float* logits) {
    const int64_t whole = d_ / kNumbers * kNumbers;
    ClearSums<2, kV>(tiles_);
    for (int64_t m = 0; m < whole; m += kNumbers) {
      Multiply<2>(k + m, d_, queries_ + m / 2 * kRows);
    }
    if (whole < d_) {
      // Half a tile, beside zeros: behind it the next key begins, which may be no number.
      for (int64_t j = 0; j < kBlock; ++j) {
        std::memcpy(rest_[j], k + j * d_ + whole, kNumbers / 2 * sizeof(BFloat16));
      }
      Multiply<2>(rest_[0], kNumbers, queries_ + whole / 2 * kRows);
    }
    StoreSums<2, kV>(tiles_, logits, kStride);
  }

  // Dimensions m .. m + kI tiles' rows.
  template <int kI>
  void AddDimensions(const BFloat16* v, int64_t m, int64_t first, int64_t last) {
    float* const to = values_ + m * kRows;
    LoadSums<kI, kV>(tiles_, to, kStride);
    for (int64_t j = first; j < last; j += kBlock) {
      Multiply<kI>(v + m * kMaxRun + j, kMaxRun, weights_ + j / 2 * kRows);
    }
    StoreSums<kI, kV>(tiles_, to, kStride);
  }

  // The sums grow by left [kI tiles' rows, kNumbers] times pairs [kNumbers / 2][kRows].
  template <int kI>
  HWY_INLINE void Multiply(const BFloat16* left, int64_t left_stride, const uint32_t* pairs) {
    LoadLeft<kI>(tiles_, left, left_stride * static_cast<int64_t>(sizeof(BFloat16)));
    LoadRight<kV>(tiles_, pairs, kStride);
    AddBf16<kI, kV>(tiles_);
  }

  Tiles& tiles_;
  alignas(64) BFloat16 rest_[kBlock][kNumbers] = {};
};

template <typename Tiles>
void AttendPagesByTiles(std::span<const RotatedRow> rows, const Bf16KeyPages& pages,
                        const RotationTable& table, float* workspace) {
  static_assert(MatrixTile<Tiles, 2>::Workspace(kMaxHeadDim) <= AttendWorkspace(kAmxTile, kMaxHeadDim));
  static constexpr TileShapes kShapes = ShapesOfDepth(kNumbers / 2);
  Tiles tiles(kShapes);
  while (!rows.empty()) {
    const auto n = std::min<std::size_t>(kAmxTile, rows.size());
    if (n > kLanes) {
      MatrixTile<Tiles, 2>(rows.first(n), pages, table, workspace, tiles).Run();
    } else {
      MatrixTile<Tiles, 1>(rows.first(n), pages, table, workspace, tiles).Run();
    }
    rows = rows.subspan(n);
  }
}

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
