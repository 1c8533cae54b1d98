// AMX's tiles for kernels/cpu/tile_block-inl.h by AVX-512, as Intel's Software Developer's Manual defines the
// instructions: the processor's bits, on a processor that has no tiles.
//
// The file that includes this defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include <immintrin.h>

#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/tile_block-inl.h"

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

class EmulatedTiles {
 public:
  explicit EmulatedTiles(const TileShapes& shapes) : shapes_(shapes) {
    LH_CHECK(shapes.palette == 1 && shapes.start_row == 0);
    for (int tile = 0; tile < kTiles; ++tile) {
      LH_CHECK(shapes.rows[tile] <= kTileRows && shapes.row_bytes[tile] <= kTileRowBytes);
    }
  }
  EmulatedTiles(const EmulatedTiles&) = delete;
  EmulatedTiles& operator=(const EmulatedTiles&) = delete;

  template <int kTile>
  void Clear() {
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void Load(const void* from, int64_t stride) {
    Clear<kTile>();
    for (int row = 0; row < shapes_.rows[kTile]; ++row) {
      std::memcpy(tiles_[kTile][row], static_cast<const uint8_t*>(from) + row * stride,
                  shapes_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void Store(void* to, int64_t stride) const {
    for (int row = 0; row < shapes_.rows[kTile]; ++row) {
      std::memcpy(static_cast<uint8_t*>(to) + row * stride, tiles_[kTile][row], shapes_.row_bytes[kTile]);
    }
  }

  // First and second numbers of the pairs are summed up apart, in ascending order, by fused multiply-adds
  // that begin at 0; then the one sum is added to the other, and both to what was there.
  template <int kSum, int kLeft, int kRight>
  void AddBf16() {
    CheckShapes(kSum, kLeft, kRight);
    for (int row = 0; row < shapes_.rows[kSum]; ++row) {
      __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
      for (int i = 0; i < shapes_.rows[kRight]; ++i) {
        const __m512i left = Four(kLeft, row, i), right = Row(kRight, i);
        first = Flush(_mm512_fmadd_ps(First(left), First(right), first));
        second = Flush(_mm512_fmadd_ps(Second(left), Second(right), second));
      }
      const __m512 both = Flush(_mm512_add_ps(first, second));
      const __m512 before = Flush(_mm512_castsi512_ps(Row(kSum, row)));
      _mm512_store_ps(tiles_[kSum][row], Flush(_mm512_add_ps(before, both)));
    }
  }

  // Sums wrap around.
  template <int kSum, int kLeft, int kRight>
  void AddInt8() {
    CheckShapes(kSum, kLeft, kRight);
    for (int row = 0; row < shapes_.rows[kSum]; ++row) {
      __m512i sum = Row(kSum, row);
      for (int i = 0; i < shapes_.rows[kRight]; ++i) {
        const __m512i left = Four(kLeft, row, i), right = Row(kRight, i);
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(Byte<0>(left), Byte<0>(right)));
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(Byte<1>(left), Byte<1>(right)));
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(Byte<2>(left), Byte<2>(right)));
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(Byte<3>(left), Byte<3>(right)));
      }
      _mm512_store_si512(tiles_[kSum][row], sum);
    }
  }

 private:
  static constexpr int kTiles = 8;

  // The processor raises an exception where they do not fit each other.
  void CheckShapes(int sum, int left, int right) const {
    LH_CHECK(shapes_.rows[sum] == shapes_.rows[left] && shapes_.row_bytes[sum] == shapes_.row_bytes[right] &&
             shapes_.row_bytes[left] == 4 * shapes_.rows[right]);
  }

  __m512i Row(int tile, int row) const { return _mm512_load_si512(tiles_[tile][row]); }
  // Four bytes of a row, for every column.
  __m512i Four(int tile, int row, int i) const {
    int32_t four;
    std::memcpy(&four, tiles_[tile][row] + 4 * i, sizeof four);
    return _mm512_set1_epi32(four);
  }

  // Numbers too small to be normal are 0 of their sign, on the way in as on the way out. (A sum that only its
  // rounding makes the least normal number stays, where a processor may flush it.)
  static __m512 Flush(__m512 x) {
    const __m512 least = _mm512_set1_ps(std::numeric_limits<float>::min());
    const __mmask16 small = _mm512_cmp_ps_mask(_mm512_abs_ps(x), least, _CMP_LT_OQ);
    return _mm512_mask_and_ps(x, small, x, _mm512_set1_ps(-0.0f));
  }
  static __m512 First(__m512i pairs) { return Flush(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))); }
  static __m512 Second(__m512i pairs) {
    return Flush(_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536))));
  }
  template <int kByte>
  static __m512i Byte(__m512i fours) {
    return _mm512_srai_epi32(_mm512_slli_epi32(fours, 24 - 8 * kByte), 24);
  }

  const TileShapes shapes_;
  alignas(64) uint8_t tiles_[kTiles][kTileRows][kTileRowBytes] = {};
};

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
