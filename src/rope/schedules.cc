#include "rope/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

namespace longheads {
namespace {

Status CheckAtLeast(std::string_view name, double value, double least) {
  if (value >= least && std::isfinite(value)) return {};
  return InvalidInput(fmt::format("{} is {}, but must be a number of at least {}", name, value, least));
}

Status CheckPositive(std::string_view name, double value) {
  if (value > 0 && std::isfinite(value)) return {};
  return InvalidInput(fmt::format("{} is {}, but must be a positive number", name, value));
}

// The share of a pair that keeps its frequency is `kept`, the rest is slowed by `factor`. Written so that a
// factor of 1 gives back theta to the last bit.
double Mixed(double theta, double kept, double factor) { return theta * (kept + (1 - kept) / factor); }

// How much YaRN raises logits (their square root), by one of its coefficients.
double Magnitude(double factor, double coefficient) { return 0.1 * coefficient * std::log(factor) + 1; }

double YarnAmplitude(const YarnOptions& options) {
  if (options.attention_factor) return *options.attention_factor;
  if (options.factor <= 1 || options.ext_factor == 0) return 1;
  if (options.mscale != 0 && options.mscale_all_dim != 0) {
    return Magnitude(options.factor, options.mscale) / Magnitude(options.factor, options.mscale_all_dim);
  }
  return Magnitude(options.factor, 1);
}

}  // namespace

Result<Frequencies> PositionInterpolation(const Frequencies& own, double factor) {
  LH_TRY(CheckAtLeast("factor", factor, 1));
  Frequencies result = own;
  for (double& theta : result.theta) theta /= factor;
  return result;
}

Result<Frequencies> NtkAware(const Frequencies& own, double factor) {
  LH_TRY(CheckAtLeast("factor", factor, 1));
  const int64_t d = own.rotary_dim();
  if (d < 4) {
    return InvalidInput(
        fmt::format("NTK-aware scaling spreads over pairs of dimensions and needs two of them, but the model "
                    "rotates {} dimensions",
                    d));
  }
  Frequencies result = own;
  for (std::size_t m = 0; m < result.theta.size(); ++m) {
    result.theta[m] *= std::pow(factor, -2.0 * static_cast<double>(m) / static_cast<double>(d - 2));
  }
  return result;
}

Result<Frequencies> DynamicNtk(const Frequencies& own, double factor, int64_t window, int64_t n_tokens) {
  LH_TRY(CheckAtLeast("factor", factor, 1));
  LH_TRY(CheckAtLeast("the window", static_cast<double>(window), 1));
  if (n_tokens <= window) return own;
  const double length = static_cast<double>(n_tokens) / static_cast<double>(window);
  return NtkAware(own, factor * length - (factor - 1));
}

YarnRamp YarnRampOf(double base, int64_t rotary_dim, const YarnOptions& options) {
  const double d = static_cast<double>(rotary_dim);
  const auto index = [&](double rotations) {
    const double length = static_cast<double>(options.original_context);
    return d * std::log(length / (2 * std::numbers::pi * rotations)) / (2 * std::log(base));
  };
  double low = index(options.beta_fast);
  double high = index(options.beta_slow);
  if (options.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  return {.low = std::max(low, 0.0), .high = std::min(high, d - 1)};
}

Result<Frequencies> Yarn(const Frequencies& own, double base, const YarnOptions& options) {
  LH_TRY(CheckAtLeast("factor", options.factor, 1));
  LH_TRY(CheckAtLeast("the original context", static_cast<double>(options.original_context), 1));
  LH_TRY(CheckPositive("beta_slow", options.beta_slow));
  LH_TRY(CheckAtLeast("beta_fast (which may not be below beta_slow)", options.beta_fast, options.beta_slow));
  if (!(options.ext_factor >= 0) || !(options.ext_factor <= 1)) {
    return InvalidInput(fmt::format("ext_factor is {}, but must be between 0 and 1", options.ext_factor));
  }
  if (options.attention_factor) LH_TRY(CheckPositive("attention_factor", *options.attention_factor));
  LH_TRY(CheckAtLeast("mscale", options.mscale, 0));
  LH_TRY(CheckAtLeast("mscale_all_dim", options.mscale_all_dim, 0));
  if (!(base > 1) || !std::isfinite(base)) {
    return InvalidInput(fmt::format("YaRN needs a RoPE base above 1, not {}", base));
  }
  const YarnRamp ramp = YarnRampOf(base, own.rotary_dim(), options);
  const double width = std::max(ramp.high - ramp.low, 0.001);  // a step where the bounds meet
  Frequencies result = own;
  for (std::size_t m = 0; m < result.theta.size(); ++m) {
    const double gamma = 1 - std::clamp((static_cast<double>(m) - ramp.low) / width, 0.0, 1.0);
    result.theta[m] = Mixed(result.theta[m], options.ext_factor * gamma, options.factor);
  }
  result.amplitude *= YarnAmplitude(options);
  return result;
}

Result<Frequencies> Llama3(const Frequencies& own, const Llama3Options& options) {
  LH_TRY(CheckAtLeast("factor", options.factor, 1));
  LH_TRY(CheckAtLeast("the original context", static_cast<double>(options.original_context), 1));
  LH_TRY(CheckPositive("low_freq_factor", options.low_freq_factor));
  if (!(options.high_freq_factor > options.low_freq_factor) || !std::isfinite(options.high_freq_factor)) {
    return InvalidInput(fmt::format("high_freq_factor is {}, but must be above low_freq_factor, which is {}",
                                    options.high_freq_factor, options.low_freq_factor));
  }
  Frequencies result = own;
  for (double& theta : result.theta) {
    const double wavelength = 2 * std::numbers::pi / theta;
    const double rotations = static_cast<double>(options.original_context) / wavelength;
    const double t =
        (rotations - options.low_freq_factor) / (options.high_freq_factor - options.low_freq_factor);
    theta = Mixed(theta, std::clamp(t, 0.0, 1.0), options.factor);
  }
  return result;
}

Result<Frequencies> Longrope(const Frequencies& own, const LongropeOptions& options, int64_t n_tokens) {
  LH_TRY(CheckAtLeast("the original context", static_cast<double>(options.original_context), 2));
  LH_TRY(CheckPositive("factor", options.factor));
  if (options.attention_factor) LH_TRY(CheckPositive("attention_factor", *options.attention_factor));
  for (const std::span<const float> factors : {options.short_factors, options.long_factors}) {
    if (factors.size() != own.theta.size()) {
      return InvalidInput(fmt::format("a table of LongRoPE factors has {} entries, but {} were expected",
                                      factors.size(), own.theta.size()));
    }
    for (const float factor : factors) LH_TRY(CheckPositive("a LongRoPE factor", factor));
  }
  const bool is_long = n_tokens > options.original_context;
  const std::span<const float> factors = is_long ? options.long_factors : options.short_factors;
  Frequencies result = own;
  for (std::size_t m = 0; m < result.theta.size(); ++m) {
    result.theta[m] /= static_cast<double>(factors[m]);
  }
  if (options.attention_factor) {
    result.amplitude *= *options.attention_factor;
  } else if (options.factor > 1) {
    const double length = static_cast<double>(options.original_context);
    result.amplitude *= std::sqrt(1 + std::log(options.factor) / std::log(length));
  }
  return result;
}

}  // namespace longheads
