#include "base/bytes.h"

#include <fmt/format.h>

#include <charconv>

namespace longheads {

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

Result<int64_t> ParseCount(std::string_view text) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  int64_t unit = 1;
  const char* tail = rest;
  if (error == std::errc() && tail != end) {
    if (*tail == 'k' || *tail == 'K') unit = 1024;
    if (*tail == 'm' || *tail == 'M') unit = 1024 * 1024;
    if (unit != 1) ++tail;
  }
  if (error != std::errc() || tail != end || value < 0 || value > kMost / unit) {
    return InvalidInput(
        fmt::format("'{}' is not a count: write a whole number, or one with k (1024) or m", text));
  }
  return value * unit;
}

}  // namespace longheads
