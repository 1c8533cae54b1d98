// A page of bfloat16 keys and values, without loss, in little more than three quarters of its bytes.
//
// Numbers of one channel, a column of K or a row of the transposed V, are of much the same size: of 8 bits of
// exponent the upper ones say little. So four bits, a number's code, say how far its exponent is below the
// largest of its channel: 15 stands for that one, 1 for the fourteenth below it. A code of 0 says that the
// number is further below, as few are: these stand apart as they are, and a page that has too many of them
// is not packed.
//
// Of four rows, keys or channels of V, three lie in words of 16 bits, the code where a bfloat16 has the lower
// half of its exponent. The upper half's places in three such words hold a number of the fourth row: so a
// product widens what it reads by few instructions, whatever else it needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/kv_limits.h"

namespace longheads {

// Rows that lie together: keys 4 i, ... of K, channels 4 i, ... of V.
inline constexpr int64_t kPackedRows = 4;
// Numbers of a row that lie together, but for the last 16 of some: one from the first half and one from the
// second in turn, which double words widen to the one and the other.
inline constexpr int64_t kPackedTogether = 32;
// head_dim is a multiple of this, and at most kMaxHeadDim.
inline constexpr int64_t kPackedDims = 16;

// A word of one of the first three rows: sign, four free bits, code, mantissa.
inline constexpr uint16_t kPackedSign = 0x8000;
inline constexpr uint16_t kPackedCode = 0x0780;
inline constexpr uint16_t kPackedMantissa = 0x007f;
inline constexpr uint16_t kPackedBits = kPackedSign | kPackedCode | kPackedMantissa;
// The free bits of the first hold the fourth row's code, those of the second its mantissa's upper four bits,
// and those of the third its sign and its mantissa's lower three: so many to the left of where they belong,
// the sign one to the right.
inline constexpr int kCodeMoved = 4;
inline constexpr int kUpperMoved = 8;
inline constexpr int kLowerMoved = 11;
inline constexpr int kSignMoved = 1;
inline constexpr uint16_t kUpperMantissa = 0x0078;
inline constexpr uint16_t kLowerMantissa = 0x0007;

// Which word of a row of n numbers holds number i.
constexpr int64_t PackedPlace(int64_t i, int64_t n) {
  const int64_t first = i / kPackedTogether * kPackedTogether;
  const int64_t half = std::min(kPackedTogether, n - first) / 2;
  return first + 2 * ((i - first) % half) + (i - first) / half;
}

// Words of n numbers, of whole rows that lie together.
constexpr int64_t PackedWords(int64_t n) { return n / kPackedRows * (kPackedRows - 1); }

// What a channel's codes count from, for one whose largest number has this exponent: of the exponents' bits
// as they lie in a bfloat16.
constexpr int16_t PackedBase(int largest) { return static_cast<int16_t>((largest - 15) * 128); }

// The places in a packed page: K [kMaxRun, head_dim], then V [head_dim, kMaxRun], in two pieces of memory.
struct PackedBf16Places {
  explicit PackedBf16Places(int64_t dim)
      : head_dim(dim),
        n_numbers(2 * kMaxRun * dim),
        words_bytes(2 * PackedWords(n_numbers)),
        most_apart(std::max(int64_t{16}, 5 * dim / 16)) {}

  int64_t head_dim;
  int64_t n_numbers;
  int64_t words_bytes;
  // Numbers that stand apart, at most. Of 32,768, where head_dim is 64, 3 mostly do, and with 20 all that
  // lies beside the words fills whole lines of a cache.
  int64_t most_apart;

  // Of the second piece: the largest exponents of K's channels, then of V's, a byte each; how many numbers
  // stand apart, uint32_t; where each is, uint32_t, and what, uint16_t.
  int64_t n_channels() const { return 2 * head_dim; }
  int64_t count_at() const { return n_channels(); }
  int64_t apart_at() const { return count_at() + 4; }
  int64_t bits_at() const { return apart_at() + 4 * most_apart; }
  int64_t rest_bytes() const { return bits_at() + 2 * most_apart; }
};

// A packed page, and room for one. Aligned for their largest numbers.
struct PackedBf16 {
  const std::byte* words;  // [words_bytes]
  const std::byte* rest;   // [rest_bytes()]
};
struct PackedBf16Room {
  std::byte* words;
  std::byte* rest;
  operator PackedBf16() const { return {words, rest}; }
};

}  // namespace longheads
