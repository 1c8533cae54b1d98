// kernels/attention.h's attend_bf16 by products of tiles of bfloat16, whoever makes the tiles
// (tile_block-inl.h).
//
// K row-major and V transposed are what stands at the left; the queries and the weights, packed in pairs, are
// what stands at the right: logits [keys, rows] and values [dimensions, rows] come out where they are kept.
//
// A row's reference, which its logits are taken from before they are exponentials, is the largest logit of
// the first piece that it sees, and is raised only where a piece's weights would become large without it:
// sums and values are seldom rescaled, and few pieces are searched for the largest logit. What a row does
// depends on its own logits alone.
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
// A piece's weights of a row may be as much in sum: far from where float32 ends, and more than keys of which
// none is above the reference have.
constexpr float kMostWeight = 65536;
static_assert(kMostWeight > static_cast<float>(kKeys));

template <typename Tiles, int kV>
class MatrixTile : public Bf16Tile<kV> {
  using Base = Bf16Tile<kV>;
  using Base::begin_, Base::d_, Base::end_, Base::kRows, Base::logits_, Base::max_, Base::pages_,
      Base::queries_, Base::sum_, Base::values_, Base::weights_;
  static constexpr int64_t kStride = kRows * static_cast<int64_t>(sizeof(float));  // of all that has kRows
  static constexpr int64_t kBlock = 2 * kTileRows;                                 // keys
  static_assert(kBlock == kNumbers);  // a block of keys is one step down the values, too

 public:
  using Base::Workspace;

  MatrixTile(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
             float* workspace, Tiles& tiles)
      : Base(rows, pages, table, workspace), tiles_(tiles) {}

  void Run() {
    // By the keys' places in their page: what a row's sums are made of does not depend on where a tile
    // begins.
    for (int64_t from = begin_ / kKeys * kKeys; from < end_; from += kKeys) {
      Attend(from, std::max(begin_, from) - from, std::min(end_, from + kKeys) - from);
    }
    this->Merge();
  }

 private:
  // Keys from + [begin, end) of a page's piece: logits, softmax, values.
  void Attend(int64_t from, int64_t begin, int64_t end) {
    const auto [k, v] = pages_.pages[static_cast<std::size_t>(from / kMaxRun)];
    const int64_t at = from % kMaxRun;
    // Whole blocks: what no row sees weighs nothing.
    const int64_t first = begin / kBlock * kBlock, last = (end + kBlock - 1) / kBlock * kBlock;
    for (int64_t j = first; j < last; j += kBlock) MultiplyKeys(k + (at + j) * d_, logits_ + j * kRows);
    if (this->Hides(from + first, from + last)) Hide(from, first, last);
    const bool rescales = Softmax(first, last);
    int64_t m = 0;
    for (; m + 2 * kTileRows <= d_; m += 2 * kTileRows) AddDimensions<2>(v + at, m, first, last, rescales);
    if (m < d_) AddDimensions<1>(v + at, m, first, last, rescales);
  }

  // logits [kBlock][kRows] of the keys at k.
  void MultiplyKeys(const BFloat16* k, float* logits) {
    const int64_t whole = d_ / kNumbers * kNumbers;
    ClearSums<2, kV>(tiles_);
    for (int64_t m = 0; m < whole; m += kNumbers) Multiply<2>(k + m, d_, queries_ + m / 2 * kRows);
    if (whole < d_) {
      // Half a tile, beside zeros: behind it the next key begins, which may be no number.
      for (int64_t j = 0; j < kBlock; ++j) {
        std::memcpy(rest_[j], k + j * d_ + whole, kNumbers / 2 * sizeof(BFloat16));
      }
      Multiply<2>(rest_[0], kNumbers, queries_ + whole / 2 * kRows);
    }
    StoreSums<2, kV>(tiles_, logits, kStride);
  }

  // -inf for the logits of keys that a row does not see.
  void Hide(int64_t from, int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      float* const logits = logits_ + j * kRows;
      __m512 of_key[1][kV];
      for (int v = 0; v < kV; ++v) of_key[0][v] = _mm512_loadu_ps(logits + v * kLanes);
      this->Mask(from + j, of_key);
      for (int v = 0; v < kV; ++v) _mm512_storeu_ps(logits + v * kLanes, of_key[0][v]);
    }
  }

  // Weights of keys [first, last) of the piece, and sum_ with them. Whether some reference was raised, so
  // that what values were summed up to is to be rescaled.
  bool Softmax(int64_t first, int64_t last) {
    bool rescales = false;
    for (int v = 0; v < kV; ++v) {
      const __m512 sum = _mm512_loadu_ps(sum_ + v * kLanes), max = _mm512_loadu_ps(max_ + v * kLanes);
      __m512 rescale = _mm512_set1_ps(1);
      // Of rows that have seen nothing yet: their sums and values are zero.
      const __mmask16 fresh = _mm512_cmp_ps_mask(max, _mm512_set1_ps(kLeast), _CMP_EQ_OQ);
      if (fresh != 0) Raise(v, fresh, first, last);
      __m512 sums = Weigh(v, first, last);
      const __mmask16 large = _mm512_cmp_ps_mask(sums, _mm512_set1_ps(kMostWeight), _CMP_GT_OQ);
      if (large != 0) {
        rescale = Raise(v, large, first, last);
        rescales = true;
        sums = Weigh(v, first, last);
      }
      _mm512_store_ps(rescale_ + v * kLanes, rescale);
      _mm512_storeu_ps(sum_ + v * kLanes, _mm512_fmadd_ps(sum, rescale, sums));
    }
    return rescales;
  }

  // Raises the references of some rows of vector v to the largest logit that they have in a piece; what sums
  // are to be multiplied with.
  __m512 Raise(int v, __mmask16 rows, int64_t first, int64_t last) {
    const __m512 before = _mm512_loadu_ps(max_ + v * kLanes);
    __m512 max = before;
    for (int64_t j = first; j < last; ++j)
      max = _mm512_max_ps(max, _mm512_loadu_ps(logits_ + j * kRows + v * kLanes));
    max = _mm512_mask_mov_ps(before, rows, max);
    _mm512_storeu_ps(max_ + v * kLanes, max);
    return _mm512_mask_mov_ps(_mm512_set1_ps(1), rows, Exp2(_mm512_sub_ps(before, max)));
  }

  // weights_[pair of keys][row of vector v] = exp(logit - reference); their sums before they are rounded.
  __m512 Weigh(int v, int64_t first, int64_t last) {
    const __m512 max = _mm512_loadu_ps(max_ + v * kLanes);
    // Two sums by the key's parity, so that the additions overlap.
    __m512 even = _mm512_setzero_ps(), odd = even;
#pragma GCC unroll 4
    for (int64_t j = first; j < last; j += 2) {
      const float* const logits = logits_ + j * kRows + v * kLanes;
      const __m512 p0 = Exp2(_mm512_sub_ps(_mm512_loadu_ps(logits), max));
      const __m512 p1 = Exp2(_mm512_sub_ps(_mm512_loadu_ps(logits + kRows), max));
      even = _mm512_add_ps(even, p0);
      odd = _mm512_add_ps(odd, p1);
      _mm512_storeu_si512(weights_ + j / 2 * kRows + v * kLanes, RoundedPairs(p0, p1));
    }
    return _mm512_add_ps(even, odd);
  }

  // Dimensions m .. m + kI tiles' rows.
  template <int kI>
  void AddDimensions(const BFloat16* v, int64_t m, int64_t first, int64_t last, bool rescales) {
    float* const to = values_ + m * kRows;
    for (int64_t i = 0; i < kI * kTileRows && rescales; ++i) {
#pragma GCC unroll 2
      for (int of = 0; of < kV; ++of) {
        float* const sums = to + i * kRows + of * kLanes;
        const __m512 rescale = _mm512_load_ps(rescale_ + of * kLanes);
        _mm512_storeu_ps(sums, _mm512_mul_ps(_mm512_loadu_ps(sums), rescale));
      }
    }
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
  alignas(64) float rescale_[kRows];
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
