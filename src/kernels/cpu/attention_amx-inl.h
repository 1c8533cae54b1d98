// kernels/attention.h's attend_bf16 by products of tiles of bfloat16, whoever makes the tiles
// (tile_block-inl.h).
//
// K row-major and V transposed are what stands at the left; the queries and the weights, packed in pairs, are
// what stands at the right: logits [keys, rows] and values [dimensions, rows] come out where they are kept.
//
// Products and exponentials take about as long, on other parts of the processor. So that they run at the same
// time, a piece's softmax is cut into blocks of keys, and behind each of them stand products that do not wait
// for it: logits of the next piece, values of the one before.
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
  static constexpr int64_t kBlocks = kKeys / kBlock;
  static_assert(kBlock == kNumbers);  // a block of keys is one step down the values, too

  // Keys [from + first, from + first + n_blocks * kBlock) of a page, of which rows see some.
  struct Piece {
    const BFloat16* k = nullptr;  // of `from`
    const BFloat16* v = nullptr;
    int64_t from = 0;
    int64_t first = 0;
    int64_t n_blocks = 0;
    uint32_t* weights = nullptr;  // [kKeys / 2][kRows], a pair of keys each
    bool rescales = false;        // whether what values of earlier pieces were summed up to is to be rescaled
    alignas(64) float rescale[kRows];
  };

 public:
  // Floats of workspace: with weights of two pieces.
  static constexpr int64_t Workspace(int64_t head_dim) {
    return Base::Workspace(head_dim) + kRows * kKeys / 2;
  }

  MatrixTile(std::span<const RotatedRow> rows, const Bf16KeyPages& pages, const RotationTable& table,
             float* workspace, Tiles& tiles)
      : Base(rows, pages, table, workspace), tiles_(tiles) {}

  void Run() {
    // By the keys' places in their page: what a row's sums are made of does not depend on where a tile
    // begins.
    Piece before, piece = PieceFrom(begin_ / kKeys * kKeys);
    Logits(piece);
    while (piece.n_blocks > 0) {
      const Piece next = PieceFrom(piece.from + kKeys);
      Weigh(piece, next, before);
      before = piece;
      piece = next;
    }
    Softmax nothing;
    for (int64_t b = 0; b < kBlocks; ++b) AddValues(before, b, nothing);
    this->Merge();
  }

 private:
  // Empty behind the last.
  Piece PieceFrom(int64_t from) {
    Piece piece;
    if (from >= end_) return piece;
    const auto [k, v] = pages_.pages[static_cast<std::size_t>(from / kMaxRun)];
    const int64_t begin = std::max(begin_, from) - from, end = std::min(end_, from + kKeys) - from;
    piece.k = k + from % kMaxRun * d_;
    piece.v = v + from % kMaxRun;
    piece.from = from;
    piece.first = begin / kBlock * kBlock;
    piece.n_blocks = (end - piece.first + kBlock - 1) / kBlock;
    piece.weights = from / kKeys % 2 == 0 ? weights_ : queries_ + PackedPairs(d_) * kRows;
    return piece;
  }

  // A block's weights, exp(logit - reference), a pair of keys at a time; sums [kRows] += them before they are
  // rounded.
  class Softmax {
   public:
    HWY_INLINE Softmax() = default;
    HWY_INLINE Softmax(const MatrixTile& tile, const Piece& piece, int64_t b, float* sums)
        : max_(tile.max_), sums_(sums) {
      if (b >= piece.n_blocks) return;
      const int64_t at = piece.first + b * kBlock;
      logits_ = tile.logits_ + at * kRows;
      weights_ = piece.weights + at / 2 * kRows;
      end_ = logits_ + kBlock * kRows;
    }
    // Of the next keys, where there are more.
    HWY_INLINE void Some() {
      if (logits_ == end_) return;
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) {
        const float* const logits = logits_ + v * kLanes;
        const __m512 max = _mm512_loadu_ps(max_ + v * kLanes);
        const __m512 p0 = Exp2(_mm512_sub_ps(_mm512_loadu_ps(logits), max));
        const __m512 p1 = Exp2(_mm512_sub_ps(_mm512_loadu_ps(logits + kRows), max));
        const __m512 sum = _mm512_load_ps(sums_ + v * kLanes);
        _mm512_store_ps(sums_ + v * kLanes, _mm512_add_ps(sum, _mm512_add_ps(p0, p1)));
        _mm512_storeu_si512(weights_ + v * kLanes, RoundedPairs(p0, p1));
      }
      logits_ += 2 * kRows;
      weights_ += kRows;
    }
    HWY_INLINE void Rest() {
      while (logits_ != end_) Some();
    }

   private:
    const float* max_ = nullptr;
    float* sums_ = nullptr;
    const float* logits_ = nullptr;
    const float* end_ = nullptr;
    uint32_t* weights_ = nullptr;
  };

  // Turns a piece's logits into weights, and does meanwhile what is to be done of its neighbours.
  void Weigh(Piece& piece, const Piece& next, const Piece& before) {
    if (this->Hides(piece.from + piece.first, piece.from + piece.first + piece.n_blocks * kBlock))
      Hide(piece);
    __mmask16 raised[kV];
    bool any = false;
    for (int v = 0; v < kV; ++v) {
      raised[v] = _mm512_cmp_ps_mask(_mm512_loadu_ps(max_ + v * kLanes), _mm512_set1_ps(kLeast), _CMP_EQ_OQ);
      any |= raised[v] != 0;
    }
    if (any) Raise(raised, piece);  // of sums and values that are zero
    alignas(64) float sums[kRows] = {};
    for (int64_t b = 0; b < kBlocks; ++b) {
      Softmax softmax(*this, piece, b, sums);
      AddValues(before, b, softmax);
      if (b < next.n_blocks) {
        MultiplyKeys(next, b, softmax);
        softmax.Rest();
        StoreLogits(next, b);  // where this block's were, or an earlier one's
      } else {
        softmax.Rest();
      }
    }
    any = false;
    for (int v = 0; v < kV; ++v) {
      raised[v] =
          _mm512_cmp_ps_mask(_mm512_load_ps(sums + v * kLanes), _mm512_set1_ps(kMostWeight), _CMP_GT_OQ);
      any |= raised[v] != 0;
    }
    if (any) {
      Logits(piece);
      Hide(piece);
      Raise(raised, piece);
      piece.rescales = true;
      std::fill_n(sums, kRows, 0.0f);
      for (int64_t b = 0; b < piece.n_blocks; ++b) Softmax(*this, piece, b, sums).Rest();
      Logits(next);
    }
    for (int v = 0; v < kV; ++v) {
      __m512 sum = _mm512_loadu_ps(sum_ + v * kLanes);
      if (piece.rescales) sum = _mm512_mul_ps(sum, _mm512_load_ps(piece.rescale + v * kLanes));
      _mm512_storeu_ps(sum_ + v * kLanes, _mm512_add_ps(sum, _mm512_load_ps(sums + v * kLanes)));
    }
  }

  void Logits(const Piece& piece) {
    Softmax nothing;
    for (int64_t b = 0; b < piece.n_blocks; ++b) {
      MultiplyKeys(piece, b, nothing);
      StoreLogits(piece, b);
    }
  }

  // Block b's logits into the sums.
  HWY_INLINE void MultiplyKeys(const Piece& piece, int64_t b, Softmax& softmax) {
    const BFloat16* const k = piece.k + (piece.first + b * kBlock) * d_;
    const int64_t whole = d_ / kNumbers * kNumbers;
    ClearSums<2, kV>(tiles_);
    for (int64_t m = 0; m < whole; m += kNumbers) Multiply<2>(k + m, d_, queries_ + m / 2 * kRows, softmax);
    if (whole < d_) {
      // Half a tile, beside zeros: behind it the next key begins, which may be no number.
      for (int64_t j = 0; j < kBlock; ++j) {
        std::memcpy(rest_[j], k + j * d_ + whole, kNumbers / 2 * sizeof(BFloat16));
      }
      Multiply<2>(rest_[0], kNumbers, queries_ + whole / 2 * kRows, softmax);
    }
  }

  // logits_ [kBlock][kRows] of block b.
  HWY_INLINE void StoreLogits(const Piece& piece, int64_t b) {
    StoreSums<2, kV>(tiles_, logits_ + (piece.first + b * kBlock) * kRows, kStride);
  }

  // -inf for the logits of keys that a row does not see.
  void Hide(const Piece& piece) {
    for (int64_t j = piece.first; j < piece.first + piece.n_blocks * kBlock; ++j) {
      float* const logits = logits_ + j * kRows;
      __m512 of_key[1][kV];
      for (int v = 0; v < kV; ++v) of_key[0][v] = _mm512_loadu_ps(logits + v * kLanes);
      this->Mask(piece.from + j, of_key);
      for (int v = 0; v < kV; ++v) _mm512_storeu_ps(logits + v * kLanes, of_key[0][v]);
    }
  }

  // Raises the references of some rows to the largest logit that they have in a piece, and says by what their
  // sums and values are to be rescaled.
  void Raise(const __mmask16 (&rows)[kV], Piece& piece) {
    for (int v = 0; v < kV; ++v) {
      const __m512 before = _mm512_loadu_ps(max_ + v * kLanes);
      __m512 max = before;
      for (int64_t j = piece.first; j < piece.first + piece.n_blocks * kBlock; ++j)
        max = _mm512_max_ps(max, _mm512_loadu_ps(logits_ + j * kRows + v * kLanes));
      max = _mm512_mask_mov_ps(before, rows[v], max);
      _mm512_storeu_ps(max_ + v * kLanes, max);
      const __m512 rescale = Exp2(_mm512_sub_ps(before, max));
      _mm512_store_ps(piece.rescale + v * kLanes, _mm512_mask_mov_ps(_mm512_set1_ps(1), rows[v], rescale));
    }
  }

  // The piece's part of the values, in dimensions of part `part` of kBlocks.
  HWY_INLINE void AddValues(const Piece& piece, int64_t part, Softmax& softmax) {
    if (piece.n_blocks == 0) return;
    // Two tiles' rows at least: products of as many meet each pair of weights that is loaded.
    const int64_t tiles = std::max<int64_t>(2, (d_ / kTileRows + kBlocks - 1) / kBlocks);
    const int64_t per_part = tiles * kTileRows;
    const int64_t end = std::min(d_, (part + 1) * per_part);
    int64_t m = part * per_part;
    for (; m + 2 * kTileRows <= end; m += 2 * kTileRows) AddDimensions<2>(piece, m, softmax);
    if (m < end) AddDimensions<1>(piece, m, softmax);
  }

  // Dimensions m .. m + kI tiles' rows.
  template <int kI>
  HWY_INLINE void AddDimensions(const Piece& piece, int64_t m, Softmax& softmax) {
    float* const to = values_ + m * kRows;
    if (piece.rescales) {
      for (int64_t i = 0; i < kI * kTileRows; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < kV; ++v) {
          float* const sums = to + i * kRows + v * kLanes;
          const __m512 rescale = _mm512_load_ps(piece.rescale + v * kLanes);
          _mm512_storeu_ps(sums, _mm512_mul_ps(_mm512_loadu_ps(sums), rescale));
        }
      }
    }
    LoadSums<kI, kV>(tiles_, to, kStride);
    for (int64_t j = piece.first; j < piece.first + piece.n_blocks * kBlock; j += kBlock) {
      Multiply<kI>(piece.v + m * kMaxRun + j, kMaxRun, piece.weights + j / 2 * kRows, softmax);
    }
    StoreSums<kI, kV>(tiles_, to, kStride);
  }

  // The sums grow by left [kI tiles' rows, kNumbers] times pairs [kNumbers / 2][kRows].
  template <int kI>
  HWY_INLINE void Multiply(const BFloat16* left, int64_t left_stride, const uint32_t* pairs,
                           Softmax& softmax) {
    LoadRight<kV>(tiles_, pairs, kStride);
    LoadLeft<kI>(tiles_, left, left_stride * static_cast<int64_t>(sizeof(BFloat16)));
    tiles_.template AddBf16<kSums, kLeft, kRight>();
    softmax.Some();
    if constexpr (kV == 2) {
      tiles_.template AddBf16<kSums + 1, kLeft, kRight + 1>();
      softmax.Some();
    }
    if constexpr (kI == 2) {
      tiles_.template AddBf16<kSums + 2, kLeft + 1, kRight>();
      softmax.Some();
    }
    if constexpr (kI == 2 && kV == 2) {
      tiles_.template AddBf16<kSums + 3, kLeft + 1, kRight + 1>();
      softmax.Some();
    }
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
