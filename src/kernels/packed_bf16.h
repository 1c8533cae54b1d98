// A page of bfloat16 keys and values, without loss, in little more than three quarters of its bytes.
//
// Numbers of one channel, a column of K or a row of the transposed V, are of much the same size: of 8 bits of
// exponent the upper ones say little. So a number's sign and mantissa take a byte, and half a byte, its code,
// says how far its exponent is below the largest of its channel: 15 stands for that one, 1 for the fourteenth
// below it. A code of 0 says that the number is further below, as few are: these stand apart as they are, and
// a page that has too many of them is not packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_limits.h"

namespace longheads {

// Numbers of a packed page lie in blocks of so many. Code j of a block, of half as many bytes, is that of its
// number j in the lower half of byte j, and of number kPackedBlock / 2 + j in the upper.
inline constexpr int64_t kPackedBlock = 64;
// head_dim is a multiple of this, and at most kMaxHeadDim.
inline constexpr int64_t kPackedDims = 16;
// Numbers that stand apart, at most.
inline constexpr int64_t kMostApart = 64;

// The places in a packed page: K [kMaxRun, head_dim], then V [head_dim, kMaxRun], in two pieces of memory.
struct PackedBf16Places {
  explicit PackedBf16Places(int64_t dim)
      : head_dim(dim), n_numbers(2 * kMaxRun * dim), planes_bytes(n_numbers + n_numbers / 2) {}

  int64_t head_dim;
  int64_t n_numbers;
  int64_t planes_bytes;  // a byte of each number, then the codes

  // What a channel's codes count from: (largest exponent - 15) << 7, of K's channels, then of V's.
  int64_t n_bases() const { return 2 * head_dim; }
  // Of the second piece: the bases, int16_t; how many stand apart, uint32_t; where each is, uint32_t, and
  // what, uint16_t.
  int64_t count_at() const { return 2 * n_bases(); }
  int64_t apart_at() const { return count_at() + 4; }
  int64_t bits_at() const { return apart_at() + 4 * kMostApart; }
  int64_t rest_bytes() const { return bits_at() + 2 * kMostApart; }
};

// A packed page, and room for one. Aligned for their largest numbers.
struct PackedBf16 {
  const std::byte* planes;  // [planes_bytes]
  const std::byte* rest;    // [rest_bytes()]
};
struct PackedBf16Room {
  std::byte* planes;
  std::byte* rest;
  operator PackedBf16() const { return {planes, rest}; }
};

}  // namespace longheads
