// Integer products on AVX2: pairs of bytes multiply into 16-bit sums (VPMADDUBSW), whose sums stay within 16
// bits for a whole block where weights have four bits.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/int8_kernels.h"

// After the headers: what they define inline must run on every processor.
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
#define LONGHEADS_TARGET __attribute__((target("avx2,fma,f16c")))  // of lambdas, which Clang leaves out

namespace longheads::cpu {
namespace {

constexpr int64_t kTile = Int8Weights::kTile;
constexpr int64_t kColumns = 32;
constexpr int kGroups = 8;  // of four columns, in a block
// How far ahead of a single row weights are asked for: the hardware's own prefetching ends at multiples of so
// many bytes.
constexpr int64_t kAhead = 4096;

inline __m256i Load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// Half `v` of group g's bytes: outputs 8 v .. 8 v + 7, four columns each.
template <int kBits>
inline __m256i Group(const uint8_t* units, int g, int v) {
  if constexpr (kBits == 8) return Load(units + 64 * g + 32 * v);
  __m256i both = Load(units + 64 * (g / 2) + 32 * v);
  if (g % 2 != 0) both = _mm256_srli_epi16(both, 4);
  const __m256i low = _mm256_and_si256(both, _mm256_set1_epi8(15));
  if constexpr (kBits == 4) return low;
  const __m256i high = Load(units + 4 * 64 + (kBits == 6 ? 64 * (g / 4) : 0) + 32 * v);
  const int from = kBits == 5 ? g : g % 4 * 2;  // the bit that becomes the fifth
  const __m256i moved = from < 4 ? _mm256_slli_epi16(high, 4 - from) : _mm256_srli_epi16(high, from - 4);
  return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8(kBits == 5 ? 0x10 : 0x30)));
}

// Four columns of a row, for every output.
inline __m256i Columns(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// 16-bit sums of pairs. |q p| <= 128 * 127, so a pair's sum fits.
template <int kBits>
inline __m256i Pairs(__m256i q, __m256i p) {
  if constexpr (kBits == 8) return _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(p, q));
  return _mm256_maddubs_epi16(q, p);
}

// dots[row][v] = sums over groups [kBegin, kEnd) of a block.
template <int kBits, int kRows, int kBegin, int kEnd>
inline void Dots(const uint8_t* units, const int8_t* p, int64_t stride, __m256i dots[kRows][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) dots[row][0] = dots[row][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = kBegin; g < kEnd; ++g) {
    const __m256i q[2] = {Group<kBits>(units, g, 0), Group<kBits>(units, g, 1)};
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const __m256i columns = Columns(p + row * stride + 4 * g);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const __m256i pairs = Pairs<kBits>(q[v], columns);
        if constexpr (kBits == 4) {  // eight of at most 2 * 15 * 127 stay below 2^15
          dots[row][v] = _mm256_add_epi16(dots[row][v], pairs);
          __asm__("" : "+x"(dots[row][v]));  // now: the compiler would let all products wait in memory
        } else {
          dots[row][v] = _mm256_add_epi32(dots[row][v], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
  }
  if constexpr (kBits != 4) return;
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    dots[row][0] = _mm256_madd_epi16(dots[row][0], ones);
    dots[row][1] = _mm256_madd_epi16(dots[row][1], ones);
  }
}

inline __m256 Halves(const uint8_t* p, int v) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * v)));
}
template <bool kSigned>
inline __m256 Bytes(const uint8_t* p, int v) {
  const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * v));
  return _mm256_cvtepi32_ps(kSigned ? _mm256_cvtepi8_epi32(eight) : _mm256_cvtepu8_epi32(eight));
}

// y[row][output] of kRows rows and a tile's 16 outputs.
template <DType kType, int kRows>
void Tile(const uint8_t* w, const Int8Rows& x, int64_t first_row, float y[kRows][kTile]) {
  constexpr Int8Form kForm = FormOf(kType);
  constexpr int kHalf = kGroups / kForm.halves;
  const int64_t n_blocks = x.k / kColumns;
  const int8_t* p = x.p + first_row * x.k;
  const Int8BlockSums* blocks = x.blocks + first_row * n_blocks;
  std::memset(y, 0, sizeof(float) * kRows * kTile);
  __m256 super_scale[2] = {}, super_min[2] = {};
  for (int64_t block = 0; block < n_blocks; ++block, p += kColumns, ++blocks) {
    if constexpr (kRows == 1) {
      for (int64_t line = 0; line < kForm.block_bytes(); line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w) + kAhead + line, _MM_HINT_T0);
      }
    }
    if constexpr (kForm.super) {
      if (block % 8 == 0) {
        for (int v = 0; v < 2; ++v) {
          super_scale[v] = Halves(w, v);
          if constexpr (kForm.minima) super_min[v] = _mm256_xor_ps(Halves(w + 32, v), _mm256_set1_ps(-0.0f));
        }
        w += kForm.head_bytes();
      }
    }
    const auto part = [&]<int kPart>(std::integral_constant<int, kPart>) LONGHEADS_TARGET {
      __m256 scale[2], min[2];
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        if constexpr (!kForm.super) {
          scale[v] = Halves(w, v);
        } else {
          scale[v] = _mm256_mul_ps(super_scale[v], Bytes<!kForm.minima>(w + 16 * kPart, v));
        }
        if constexpr (kForm.minima) {
          min[v] = kForm.super ? _mm256_mul_ps(super_min[v], Bytes<false>(w + 16, v)) : Halves(w + 32, v);
        } else {
          min[v] = _mm256_mul_ps(_mm256_set1_ps(static_cast<float>(-kForm.bias)), scale[v]);
        }
      }
      __m256i dots[kRows][2];
      Dots<kForm.bits, kRows, kPart * kHalf, (kPart + 1) * kHalf>(w + kForm.scale_bytes(), p, x.k, dots);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const Int8BlockSums& sums = blocks[row * n_blocks];
        const __m256 s = _mm256_set1_ps(sums.scale);
        const __m256 of_min = _mm256_set1_ps(kForm.halves == 2 ? sums.scaled_halves[kPart] : sums.scaled_sum);
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          __m256 sum = _mm256_loadu_ps(y[row] + 8 * v);
          sum = _mm256_fmadd_ps(_mm256_mul_ps(scale[v], s), _mm256_cvtepi32_ps(dots[row][v]), sum);
          if constexpr (kForm.bits != 8) sum = _mm256_fmadd_ps(min[v], of_min, sum);
          _mm256_storeu_ps(y[row] + 8 * v, sum);
        }
      }
    };
    part(std::integral_constant<int, 0>());
    if constexpr (kForm.halves == 2) part(std::integral_constant<int, 1>());
    w += kForm.block_bytes();
  }
}

template <DType kType, int kRows>
void TileRows(const uint8_t* w, const Int8Rows& x, int64_t row, int64_t n_outputs, float* y,
              int64_t y_stride) {
  float tile[kRows][kTile];
  Tile<kType, kRows>(w, x, row, tile);
  for (int i = 0; i < kRows; ++i) {
    std::memcpy(y + (row + i) * y_stride, tile[i], sizeof(float) * static_cast<std::size_t>(n_outputs));
  }
}

template <DType kType>
void MultiplyType(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
                  int64_t n_rows, float* y, int64_t y_stride) {
  // What sixteen registers hold: two sums a row, two vectors of weights, one of activations.
  constexpr int kMany = 4;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const uint8_t* const w = weights.tile(tile);
    const int64_t n_outputs = std::min(kTile, weights.n() - tile * kTile);
    float* const to = y + (tile - tile_begin) * kTile;
    int64_t row = 0;
    for (; row + kMany <= n_rows; row += kMany) TileRows<kType, kMany>(w, x, row, n_outputs, to, y_stride);
    for (; row + 2 <= n_rows; row += 2) TileRows<kType, 2>(w, x, row, n_outputs, to, y_stride);
    if (row < n_rows) TileRows<kType, 1>(w, x, row, n_outputs, to, y_stride);
  }
}

void Multiply(const Int8Weights& weights, int64_t tile_begin, int64_t tile_end, const Int8Rows& x,
              int64_t n_rows, float* y, int64_t y_stride) {
  DispatchInt8(weights.type(), [&]<DType kType>(std::integral_constant<DType, kType>) {
    MultiplyType<kType>(weights, tile_begin, tile_end, x, n_rows, y, y_stride);
  });
}

inline int32_t SumOf(__m256i lanes) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0b01001110));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0b10110001)));
}

void Quantise(const float* x, int64_t k, int8_t* p, Int8BlockSums* blocks) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (int64_t begin = 0; begin < k; begin += kColumns, ++blocks) {
    __m256 v[4];
    __m256i largest = _mm256_setzero_si256();  // as bits, whose order is that of the magnitudes
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + begin + 8 * i);
      largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0b01001110));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0b10110001));
    const Int8Scale scale = ScaleFor(static_cast<uint32_t>(_mm_cvtsi128_si32(four)));
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    __m256i q[4];
    for (int i = 0; i < 4; ++i) {
      q[i] = scale.finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)) : _mm256_setzero_si256();
    }
    *blocks = SumsFor(scale, SumOf(_mm256_add_epi32(q[0], q[1])), SumOf(_mm256_add_epi32(q[2], q[3])));
    // Packing works within halves of the register: the words come out in the order 0 2 4 6 1 3 5 7.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i ordered = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + begin), ordered);
  }
}

}  // namespace

const Int8Kernels kInt8Avx2 = {.quantise = Quantise, .multiply = Multiply};

}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
