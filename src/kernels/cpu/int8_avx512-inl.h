// What integer products on AVX-512 share, whatever sums up the integers: a block's integers and factors, and
// what it adds to a row's outputs.
//
// The file that includes this defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/int8_kernels.h"

// After the headers: what they define inline must run on every processor.
HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

constexpr int64_t kTile = Int8Weights::kTile;
constexpr int64_t kColumns = 32;
constexpr int kGroups = 8;  // of four columns, in a block

// Group g's bytes, with signs in Q8_0.
template <int kBits>
inline __m512i Group(const uint8_t* units, int g) {
  if constexpr (kBits == 8) return _mm512_loadu_si512(units + 64 * g);
  __m512i both = _mm512_loadu_si512(units + 64 * (g / 2));
  if (g % 2 != 0) both = _mm512_srli_epi16(both, 4);
  const __m512i low = _mm512_and_si512(both, _mm512_set1_epi8(15));
  if constexpr (kBits == 4) return low;
  const __m512i high = _mm512_loadu_si512(units + 4 * 64 + (kBits == 6 ? 64 * (g / 4) : 0));
  const unsigned from = static_cast<unsigned>(kBits == 5 ? g : g % 4 * 2);  // the bit that becomes the fifth
  const __m512i moved = from < 4 ? _mm512_slli_epi16(high, 4 - from) : _mm512_srli_epi16(high, from - 4);
  return _mm512_or_si512(low, _mm512_and_si512(moved, _mm512_set1_epi8(kBits == 5 ? 0x10 : 0x30)));
}

inline __m512 Halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
template <bool kSigned>
inline __m512 Bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
}

// What makes weights of a block's integers, for all outputs: w = scale * q + min.
template <DType kType>
class Factors {
  static constexpr Int8Form kForm = FormOf(kType);

 public:
  // The compiler's own would be for every processor.
  HWY_INLINE Factors() : super_scale_(_mm512_setzero_ps()), super_min_(super_scale_) {}

  // Of the blocks that follow, where the type has heads.
  HWY_INLINE void TakeHead(const uint8_t* head) {
    super_scale_ = Halves(head);
    if constexpr (kForm.minima) super_min_ = _mm512_sub_ps(_mm512_set1_ps(-0.0f), Halves(head + 32));
  }

  // Of the block at w, or of its half `part`.
  HWY_INLINE void Take(const uint8_t* w, int part) {
    scale_ = kForm.super ? _mm512_mul_ps(super_scale_, Bytes<!kForm.minima>(w + 16 * part)) : Halves(w);
    if constexpr (kForm.minima) {
      min_ = kForm.super ? _mm512_mul_ps(super_min_, Bytes<false>(w + 16)) : Halves(w + 32);
    } else {
      min_ = _mm512_mul_ps(_mm512_set1_ps(static_cast<float>(-kForm.bias)), scale_);
    }
  }

  // A row's outputs with what was taken: dots are the sums of q p, x the row's activations in the block.
  HWY_INLINE __m512 Add(__m512 sum, __m512i dots, const Int8BlockSums& x, int part) const {
    const __m512 s = _mm512_mul_ps(scale_, _mm512_set1_ps(x.scale));
    sum = _mm512_fmadd_ps(s, _mm512_cvtepi32_ps(dots), sum);
    if constexpr (kForm.bits == 8) return sum;
    const float of_min = kForm.halves == 2 ? x.scaled_halves[part] : x.scaled_sum;
    return _mm512_fmadd_ps(min_, _mm512_set1_ps(of_min), sum);
  }

 private:
  __m512 super_scale_, super_min_, scale_, min_;
};

// Those of a tile's outputs that the weights have.
inline __mmask16 Outputs(const Int8Weights& weights, int64_t tile) {
  return static_cast<__mmask16>((1u << std::min(kTile, weights.n() - tile * kTile)) - 1);
}

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
