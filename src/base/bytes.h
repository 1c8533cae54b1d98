// Arithmetic on sizes that come from files and users: it cannot overflow; and sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace longheads {

// a * b and a + b, or nothing where the result does not fit.
inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// "123 B", "4.0 KiB", "1.5 GiB".
std::string FormatBytes(uint64_t bytes);

// "4096", "4k" (4096), "1m" (1048576): a count of tokens; at most 2^40.
Result<int64_t> ParseCount(std::string_view text);

// "64m" or "64 MiB" or "67108864": a number of bytes, with k, m, g or t for powers of 1024; at most 2^60.
Result<uint64_t> ParseBytes(std::string_view text);

}  // namespace longheads
