// Integer products on AVX-512 with VNNI: one vector has four columns of all 16 outputs of a tile, one
// instruction (VPDPBUSD) multiplies it with four activations of a row.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/int8_kernels.h"

// After the headers: what they define inline must run on every processor.
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")
#define LONGHEADS_TARGET \
  __attribute__((        \
      target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")))  // of lambdas, which Clang leaves out

namespace longheads::cpu {
namespace {

constexpr int64_t kTile = Int8Weights::kTile;
constexpr int64_t kColumns = 32;
constexpr int kGroups = 8;  // of four columns, in a block
// Rows at once: an integer and a float sum each, of 32 registers.
constexpr int kMany = 12;
constexpr int kFew = 4;

// Group g's bytes, unsigned: Q8_0's are 128 too large.
template <int kBits>
inline __m512i Group(const uint8_t* units, int g) {
  if constexpr (kBits == 8)
    return _mm512_xor_si512(_mm512_loadu_si512(units + 64 * g), _mm512_set1_epi8(-128));
  __m512i both = _mm512_loadu_si512(units + 64 * (g / 2));
  if (g % 2 != 0) both = _mm512_srli_epi16(both, 4);
  const __m512i low = _mm512_and_si512(both, _mm512_set1_epi8(15));
  if constexpr (kBits == 4) return low;
  const __m512i high = _mm512_loadu_si512(units + 4 * 64 + (kBits == 6 ? 64 * (g / 4) : 0));
  const unsigned from = static_cast<unsigned>(kBits == 5 ? g : g % 4 * 2);  // the bit that becomes the fifth
  const __m512i moved = from < 4 ? _mm512_slli_epi16(high, 4 - from) : _mm512_srli_epi16(high, from - 4);
  return _mm512_or_si512(low, _mm512_and_si512(moved, _mm512_set1_epi8(kBits == 5 ? 0x10 : 0x30)));
}

// Four columns of a row, for every output.
inline __m512i Columns(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

inline __m512 Halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
template <bool kSigned>
inline __m512 Bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
}

// y[row][output] of kRows rows and a tile's outputs, those that `stored` names.
template <DType kType, int kRows>
void TileRows(const uint8_t* w, const Int8Rows& x, int64_t first_row, __mmask16 stored, float* y,
              int64_t y_stride) {
  constexpr Int8Form kForm = FormOf(kType);
  constexpr int kHalf = kGroups / kForm.halves;
  const int64_t n_blocks = x.k / kColumns;
  const int8_t* p = x.p + first_row * x.k;
  const Int8BlockSums* blocks = x.blocks + first_row * n_blocks;
  __m512 sums[kRows];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) sums[row] = _mm512_setzero_ps();
  __m512 super_scale = _mm512_setzero_ps(), super_min = _mm512_setzero_ps();
  for (int64_t block = 0; block < n_blocks; ++block, p += kColumns, ++blocks) {
    if constexpr (kForm.super) {
      if (block % 8 == 0) {
        super_scale = Halves(w);
        if constexpr (kForm.minima) super_min = _mm512_sub_ps(_mm512_set1_ps(-0.0f), Halves(w + 32));
        w += kForm.head_bytes();
      }
    }
    const auto part = [&]<int kPart>(std::integral_constant<int, kPart>) LONGHEADS_TARGET {
      const __m512 scale =
          kForm.super ? _mm512_mul_ps(super_scale, Bytes<!kForm.minima>(w + 16 * kPart)) : Halves(w);
      __m512 min;
      if constexpr (kForm.minima) {
        min = kForm.super ? _mm512_mul_ps(super_min, Bytes<false>(w + 16)) : Halves(w + 32);
      } else {
        min = _mm512_mul_ps(_mm512_set1_ps(static_cast<float>(-kForm.bias)), scale);
      }
      __m512i dots[kRows];
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) {
        dots[row] =
            kForm.bits == 8 ? _mm512_set1_epi32(-128 * blocks[row * n_blocks].sum) : _mm512_setzero_si512();
      }
#pragma GCC unroll 8
      for (int g = kPart * kHalf; g < (kPart + 1) * kHalf; ++g) {
        const __m512i q = Group<kForm.bits>(w + kForm.scale_bytes(), g);
#pragma GCC unroll 12
        for (int row = 0; row < kRows; ++row) {
          dots[row] = _mm512_dpbusd_epi32(dots[row], q, Columns(p + row * x.k + 4 * g));
        }
      }
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) {
        const Int8BlockSums& of = blocks[row * n_blocks];
        const __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(of.scale));
        sums[row] = _mm512_fmadd_ps(s, _mm512_cvtepi32_ps(dots[row]), sums[row]);
        if constexpr (kForm.bits != 8) {
          const float of_min = kForm.halves == 2 ? of.scaled_halves[kPart] : of.scaled_sum;
          sums[row] = _mm512_fmadd_ps(min, _mm512_set1_ps(of_min), sums[row]);
        }
      }
    };
    part(std::integral_constant<int, 0>());
    if constexpr (kForm.halves == 2) part(std::integral_constant<int, 1>());
    w += kForm.block_bytes();
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row)
    _mm512_mask_storeu_ps(y + (first_row + row) * y_stride, stored, sums[row]);
}

template <DType kType>
void MultiplyType(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
                  int64_t n_rows, float* y, int64_t y_stride) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const uint8_t* const w = weights.tile(tile);
    const int64_t n_outputs = std::min(kTile, weights.n() - tile * kTile);
    const __mmask16 stored = static_cast<__mmask16>((1u << n_outputs) - 1);
    float* const to = y + tile * kTile;
    int64_t row = 0;
    for (; row + kMany <= n_rows; row += kMany) TileRows<kType, kMany>(w, x, row, stored, to, y_stride);
    for (; row + kFew <= n_rows; row += kFew) TileRows<kType, kFew>(w, x, row, stored, to, y_stride);
    for (; row < n_rows; ++row) TileRows<kType, 1>(w, x, row, stored, to, y_stride);
  }
}

void Multiply(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
              int64_t n_rows, float* y, int64_t y_stride) {
  DispatchInt8(weights.type(), [&]<DType kType>(std::integral_constant<DType, kType>) {
    MultiplyType<kType>(weights, tile_begin, tile_end, x, n_rows, y, y_stride);
  });
}

// The sum of sixteen bytes.
inline int32_t SumOf(__m128i bytes) {
  const __m128i four = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), bytes);
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0b01001110));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0b10110001)));
}

void Quantise(const float* x, int64_t k, int8_t* p, Int8BlockSums* blocks) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  for (int64_t begin = 0; begin < k; begin += kColumns, ++blocks) {
    const __m512 v0 = _mm512_loadu_ps(x + begin);
    const __m512 v1 = _mm512_loadu_ps(x + begin + 16);
    // As bits, whose order is that of the magnitudes.
    const __m512i largest = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
                                             _mm512_and_si512(_mm512_castps_si512(v1), magnitude));
    const Int8Scale scale = ScaleFor(_mm512_reduce_max_epu32(largest));
    const __m512 inverse = _mm512_set1_ps(scale.inverse);
    const __mmask16 kept = scale.finite ? 0xFFFF : 0;
    const __m128i first = _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(v0, inverse)));
    const __m128i second = _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(v1, inverse)));
    *blocks = SumsFor(scale, SumOf(first), SumOf(second));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + begin), first);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + begin + 16), second);
  }
}

}  // namespace

const Int8Kernels kInt8Avx512Vnni = {.quantise = Quantise, .multiply = Multiply};

}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
