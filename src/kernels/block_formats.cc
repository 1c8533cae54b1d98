#include "kernels/block_formats.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace longheads {
namespace {

uint8_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }

// Element i of 32 whose nibbles are packed as (i, i + 16) in 16 bytes.
int Nibble(const std::byte* packed, int i) { return i < 16 ? U8(packed + i) & 15 : U8(packed + i - 16) >> 4; }

// The fifth bit of element i of 32, from 32 bits in ascending order.
int FifthBit(const std::byte* bits, int i) { return (U8(bits + i / 8) >> (i % 8) & 1) << 4; }

}  // namespace

float HalfAt(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
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

SubBlockScale SubBlockScaleOf(const std::byte* s, int j) {
  if (j < 4) return {U8(s + j) & 63, U8(s + j + 4) & 63};
  return {(U8(s + j + 4) & 15) | U8(s + j - 4) >> 6 << 4, U8(s + j + 4) >> 4 | U8(s + j) >> 6 << 4};
}

void BlockIntegers(DType type, const std::byte* b, int part, uint8_t q[32]) {
  const auto each = [q](const auto& integer) {
    for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(integer(i));
  };
  // Of the types with blocks of 256: parts 2 j and 2 j + 1 are the halves of the same bytes.
  const auto nibble = [part](const std::byte* bytes, int i) {
    return U8(bytes + part / 2 * 32 + i) >> (part % 2 * 4) & 15;
  };
  switch (type) {
    case DType::kQ4_0:
      return each([&](int i) { return Nibble(b + 2, i); });
    case DType::kQ4_1:
      return each([&](int i) { return Nibble(b + 4, i); });
    case DType::kQ5_0:
      return each([&](int i) { return Nibble(b + 6, i) | FifthBit(b + 2, i); });
    case DType::kQ5_1:
      return each([&](int i) { return Nibble(b + 8, i) | FifthBit(b + 4, i); });
    case DType::kQ8_0:
      return each([&](int i) { return U8(b + 2 + i); });
    case DType::kQ4_K:
      return each([&](int i) { return nibble(b + 16, i); });
    case DType::kQ5_K:
      return each([&](int i) { return nibble(b + 48, i) | (U8(b + 16 + i) >> part & 1) << 4; });
    case DType::kQ6_K: {  // two halves of 128, in each four quarters of 32
      const int half = part / 4, quarter = part % 4;
      return each([&](int i) {
        const int low = U8(b + half * 64 + quarter % 2 * 32 + i) >> (quarter / 2 * 4) & 15;
        return low | (U8(b + 128 + half * 32 + i) >> (quarter * 2) & 3) << 4;
      });
    }
    default:
      LH_CHECK(false);
  }
}

}  // namespace longheads
