// Scalar de-quantisation, block by block as GGUF lays the types out, and a matrix-vector product on top of
// it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/quantised_tables.h"

namespace longheads {
namespace {

constexpr int kLargestBlock = 256;

uint8_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }
int8_t I8(const std::byte* p) { return static_cast<int8_t>(*p); }

uint16_t U16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

// IEEE binary16 at p, exactly; every NaN becomes the quiet one of its sign and payload.
float Half(const std::byte* p) {
  const uint16_t bits = U16(p);
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13 | (mantissa ? 0x00400000u : 0u));
  }
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Element i of 32 whose nibbles are packed as (i, i + 16) in 16 bytes.
int Nibble(const std::byte* packed, int i) { return i < 16 ? U8(packed + i) & 15 : U8(packed + i - 16) >> 4; }

// The fifth bit of element i of 32, from 32 bits in ascending order.
int FifthBit(const std::byte* bits, int i) { return (U8(bits + i / 8) >> (i % 8) & 1) << 4; }

void Q4_0(const std::byte* b, float* dst) {
  const float d = Half(b);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(Nibble(b + 2, i) - 8);
}

void Q4_1(const std::byte* b, float* dst) {
  const float d = Half(b), m = Half(b + 2);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(Nibble(b + 4, i)) + m;
}

void Q5_0(const std::byte* b, float* dst) {
  const float d = Half(b);
  for (int i = 0; i < 32; ++i) {
    dst[i] = d * static_cast<float>((Nibble(b + 6, i) | FifthBit(b + 2, i)) - 16);
  }
}

void Q5_1(const std::byte* b, float* dst) {
  const float d = Half(b), m = Half(b + 2);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(Nibble(b + 8, i) | FifthBit(b + 4, i)) + m;
}

void Q8_0(const std::byte* b, float* dst) {
  const float d = Half(b);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(I8(b + 2 + i));
}

// Scale and minimum (6 bits each) of sub-block j of 8, from the 12 bytes that Q4_K and Q5_K share: the first
// four of each lie whole in bytes j and j + 4; the last four have their low nibbles in byte j + 4 and their
// top two bits above those of the first four.
struct ScaleMin {
  int scale, min;
};
ScaleMin SubBlockScale(const std::byte* s, int j) {
  if (j < 4) return {U8(s + j) & 63, U8(s + j + 4) & 63};
  return {(U8(s + j + 4) & 15) | U8(s + j - 4) >> 6 << 4, U8(s + j + 4) >> 4 | U8(s + j) >> 6 << 4};
}

void Q4_K(const std::byte* b, float* dst) {
  const float d = Half(b), dmin = Half(b + 2);
  const std::byte* q = b + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sub = SubBlockScale(b + 4, j);
    const float scale = d * static_cast<float>(sub.scale), min = dmin * static_cast<float>(sub.min);
    for (int i = 0; i < 32; ++i) {
      const int nibble = U8(q + j / 2 * 32 + i) >> (j % 2 * 4) & 15;
      dst[j * 32 + i] = scale * static_cast<float>(nibble) - min;
    }
  }
}

void Q5_K(const std::byte* b, float* dst) {
  const float d = Half(b), dmin = Half(b + 2);
  const std::byte *high = b + 16, *q = b + 48;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sub = SubBlockScale(b + 4, j);
    const float scale = d * static_cast<float>(sub.scale), min = dmin * static_cast<float>(sub.min);
    for (int i = 0; i < 32; ++i) {
      const int nibble = U8(q + j / 2 * 32 + i) >> (j % 2 * 4) & 15;
      const int fifth = (U8(high + i) >> j & 1) << 4;
      dst[j * 32 + i] = scale * static_cast<float>(nibble | fifth) - min;
    }
  }
}

void Q6_K(const std::byte* b, float* dst) {
  const std::byte *low = b, *high = b + 128, *scales = b + 192;
  const float d = Half(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, column = i % 32;
    const int nibble = U8(low + half * 64 + quarter % 2 * 32 + column) >> (quarter / 2 * 4) & 15;
    const int top = (U8(high + half * 32 + column) >> (quarter * 2) & 3) << 4;
    const float scale = d * static_cast<float>(I8(scales + i / 16));
    dst[i] = scale * static_cast<float>((nibble | top) - 32);
  }
}

void F32(const std::byte* b, float* dst) { std::memcpy(dst, b, sizeof *dst); }
void F16(const std::byte* b, float* dst) { *dst = Half(b); }
void BF16(const std::byte* b, float* dst) {
  *dst = std::bit_cast<float>(static_cast<uint32_t>(U16(b)) << 16);
}

void Dequantize(DType type, const std::byte* src, int64_t n, float* dst) {
  using Block = void (*)(const std::byte* block, float* values);
  static constexpr Block kBlocks[kDTypes] = {F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K};
  const DTypeInfo& info = Info(type);
  LH_CHECK(n >= 0 && n % info.block == 0);
  for (int64_t i = 0; i < n; i += info.block, src += info.block_bytes) {
    kBlocks[static_cast<int>(type)](src, dst + i);
  }
}

void Gemv(DType type, const std::byte* w, int64_t row_begin, int64_t row_end, int64_t k, const float* x,
          float* y) {
  const DTypeInfo& info = Info(type);
  LH_CHECK(k >= 0 && k % info.block == 0);
  const std::byte* src = w + row_begin * (k / info.block) * info.block_bytes;
  for (int64_t row = row_begin; row < row_end; ++row) {
    float sum = 0;
    for (int64_t begin = 0; begin < k; begin += kLargestBlock) {
      float values[kLargestBlock];
      const int64_t n = std::min<int64_t>(kLargestBlock, k - begin);
      Dequantize(type, src, n, values);
      for (int64_t i = 0; i < n; ++i) sum += values[i] * x[begin + i];
      src += n / info.block * info.block_bytes;
    }
    y[row - row_begin] = sum;
  }
}

}  // namespace

const QuantisedKernels kQuantisedRef = {.dequantize = Dequantize, .gemv = Gemv};

}  // namespace longheads
