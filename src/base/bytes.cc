#include "base/bytes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

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
        fmt::format("'{}' is not a count: write a whole number, or one with k (1024) or m (1024k)", text));
  }
  return value * unit;
}

Result<uint64_t> ParseBytes(std::string_view text) {
  constexpr uint64_t kMost = uint64_t{1} << 60;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  std::string_view tail(rest, static_cast<std::size_t>(end - rest));
  if (tail.starts_with(' ')) tail.remove_prefix(1);
  int power = 0;
  if (!tail.empty()) {
    const std::size_t at = std::string_view("kmgt").find(static_cast<char>(tail.front() | 0x20));
    if (at != std::string_view::npos) {
      power = static_cast<int>(at) + 1;
      tail.remove_prefix(1);
      if (tail.starts_with('i')) tail.remove_prefix(1);
    }
    if (tail.starts_with('B')) tail.remove_prefix(1);
  }
  const double bytes = std::ldexp(value, 10 * power);
  if (error != std::errc() || !tail.empty() || !(bytes >= 0) || bytes > static_cast<double>(kMost)) {
    return InvalidInput(
        fmt::format("'{}' is not a size: write bytes, or a number with k, m, g or t, as in 512m", text));
  }
  if (bytes > 0 && bytes < 1) {
    return InvalidInput(fmt::format(
        "'{}' is less than a byte: write bytes, or a number with k, m, g or t, as in 512m", text));
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace longheads
