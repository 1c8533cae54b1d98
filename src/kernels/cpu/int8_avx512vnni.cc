// Integer products on AVX-512 with VNNI: one vector has four columns of all 16 outputs of a tile, one
// instruction (VPDPBUSD) multiplies it with four activations of a row.
#define LONGHEADS_TARGETS "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni"
#include <cstring>

#include "kernels/cpu/int8_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)
#define LONGHEADS_TARGET __attribute__((target(LONGHEADS_TARGETS)))  // of lambdas, which Clang leaves out

namespace longheads::cpu {
namespace {

// Rows at once: an integer and a float sum each, of 32 registers. What is left of 512 rows are eight.
constexpr int kMany = 12;
constexpr int kSome = 8;
constexpr int kFew = 4;

// How far ahead of a single row weights are asked for: the hardware's own prefetching ends at multiples of so
// many bytes, and one row's arithmetic is too short to hide what that costs.
constexpr int64_t kAhead = 4096;

// Group g's bytes without signs, as the instruction wants the one factor: Q8_0's are 128 too large.
template <int kBits>
inline __m512i UnsignedGroup(const uint8_t* units, int g) {
  const __m512i group = Group<kBits>(units, g);
  return kBits == 8 ? _mm512_xor_si512(group, _mm512_set1_epi8(-128)) : group;
}

// Four columns of a row, for every output.
inline __m512i Columns(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
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
  Factors<kType> factors;
  for (int64_t block = 0; block < n_blocks; ++block, p += kColumns, ++blocks) {
    if constexpr (kRows == 1) {
      for (int64_t line = 0; line < kForm.block_bytes(); line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w) + kAhead + line, _MM_HINT_T0);
      }
    }
    if constexpr (kForm.super) {
      if (block % 8 == 0) {
        factors.TakeHead(w);
        w += kForm.head_bytes();
      }
    }
    const auto part = [&]<int kPart>(std::integral_constant<int, kPart>) LONGHEADS_TARGET {
      factors.Take(w, kPart);
      __m512i dots[kRows];
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) {
        dots[row] =
            kForm.bits == 8 ? _mm512_set1_epi32(-128 * blocks[row * n_blocks].sum) : _mm512_setzero_si512();
      }
#pragma GCC unroll 8
      for (int g = kPart * kHalf; g < (kPart + 1) * kHalf; ++g) {
        const __m512i q = UnsignedGroup<kForm.bits>(w + kForm.scale_bytes(), g);
#pragma GCC unroll 12
        for (int row = 0; row < kRows; ++row) {
          dots[row] = _mm512_dpbusd_epi32(dots[row], q, Columns(p + row * x.k + 4 * g));
        }
      }
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) {
        sums[row] = factors.Add(sums[row], dots[row], blocks[row * n_blocks], kPart);
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
    const __mmask16 stored = Outputs(weights, tile);
    float* const to = y + (tile - tile_begin) * kTile;
    int64_t row = 0;
    for (; row + kMany <= n_rows; row += kMany) TileRows<kType, kMany>(w, x, row, stored, to, y_stride);
    for (; row + kSome <= n_rows; row += kSome) TileRows<kType, kSome>(w, x, row, stored, to, y_stride);
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
