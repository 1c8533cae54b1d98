#include "rope/frequencies.h"

#include <fmt/format.h>

#include <cmath>

namespace longheads {

Result<Frequencies> TrainedFrequencies(double base, int64_t rotary_dim, std::span<const float> divisors) {
  if (!(base > 0) || !std::isfinite(base)) {
    return InvalidInput(fmt::format("the RoPE base is {}, but it must be a positive number", base));
  }
  if (rotary_dim <= 0 || rotary_dim % 2 != 0) {
    return InvalidInput(fmt::format("RoPE needs an even number of dimensions, not {}", rotary_dim));
  }
  const int64_t n_pairs = rotary_dim / 2;
  if (!divisors.empty() && static_cast<int64_t>(divisors.size()) != n_pairs) {
    return InvalidInput(
        fmt::format("the model's rope_freqs has {} entries, but {} were expected", divisors.size(), n_pairs));
  }
  Frequencies result;
  for (int64_t m = 0; m < n_pairs; ++m) {
    double theta = std::pow(base, -2.0 * static_cast<double>(m) / static_cast<double>(rotary_dim));
    if (!divisors.empty()) {
      if (!(divisors[m] > 0) || !std::isfinite(divisors[m])) {
        return InvalidInput(
            fmt::format("the model's rope_freqs[{}] is {}, but it must be positive", m, divisors[m]));
      }
      theta /= static_cast<double>(divisors[m]);
    }
    result.theta.push_back(theta);
  }
  return result;
}

}  // namespace longheads
