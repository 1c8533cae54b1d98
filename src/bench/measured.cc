#include "bench/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace longheads {

Measured Summarise(std::vector<double> values) {
  LH_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.median = median,
          .low = values.front(),
          .high = values.back(),
          .n = static_cast<int>(values.size()),
          .mean = sum / static_cast<double>(values.size())};
}

Measured PerSecond(double amount, const Measured& seconds) {
  if (seconds.n == 0) return {};
  return {.median = amount / seconds.median,
          .low = amount / seconds.high,
          .high = amount / seconds.low,
          .n = seconds.n,
          .mean = amount / seconds.mean};
}

std::string Format(const Measured& measured, double unit) {
  if (measured.n == 0) return "-";
  const auto number = [unit](double value) {
    value /= unit;
    return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  };
  if (measured.n == 1) return number(measured.median);
  return fmt::format("{} ({}-{})", number(measured.median), number(measured.low), number(measured.high));
}

}  // namespace longheads
