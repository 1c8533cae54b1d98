// Frequency schedules: pure functions from a model's own frequencies, and few numbers, to others that serve
// texts longer than its window without training. All of them change theta_m and the amplitude alone; m counts
// pairs, d is the rotary dimension, s (or alpha) the factor by which the window grows. With a factor of 1
// each gives back what it was given. The amplitude of the own frequencies is kept as a factor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "rope/frequencies.h"

namespace longheads {

// Position interpolation (Chen et al. 2023, "Extending Context Window of Large Language Models via Positional
// Interpolation"): theta'_m = theta_m / s.
Result<Frequencies> PositionInterpolation(const Frequencies& own, double factor);

// NTK-aware scaling (bloc97 2023, "NTK-Aware Scaled RoPE"; Peng et al. 2023, "YaRN", section 3.1): the base
// becomes b alpha^(d / (d - 2)), which is theta'_m = theta_m alpha^(-2m / (d - 2)): the fastest pair stays,
// the slowest is slowed by alpha. Needs d >= 4.
Result<Frequencies> NtkAware(const Frequencies& own, double factor);

// Dynamic NTK scaling (emozilla 2023, "Dynamically Scaled RoPE"; "YaRN", section 3.3): for a text of n
// tokens, NTK-aware scaling by alpha n / L - (alpha - 1) where n is above the window L, and none below. For
// alpha = 1 that is n / L.
Result<Frequencies> DynamicNtk(const Frequencies& own, double factor, int64_t window, int64_t n_tokens);

// YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models") in the form
// that all code has: the ramp between interpolated and kept pairs is linear in the pair's index between two
// rounded bounds. (The paper's is linear in the number of rotations; they differ by up to 0.37 of the ramp.)
struct YarnOptions {
  double factor = 1;             // s
  int64_t original_context = 0;  // L, the window before any extension: tokens
  double beta_fast = 32;         // pairs that turn more often than this over L stay as they are
  double beta_slow = 1;          // those that turn less often are interpolated by s
  double ext_factor = 1;         // of gamma, below: 0 interpolates every pair and keeps a = 1 (llama.cpp)
  bool truncate = true;          // round the bounds outwards to whole pairs
  // a; where it is not given, (0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1) if both are not zero
  // (DeepSeek), and 0.1 ln s + 1 else.
  std::optional<double> attention_factor = {};
  double mscale = 0;
  double mscale_all_dim = 0;
};

// Where YaRN's ramp begins and ends: pairs up to `low` keep their frequency, pairs from `high` on are
// interpolated. With c(r) = d ln(L / (2 pi r)) / (2 ln b): low = max(floor(c(beta_fast)), 0), high =
// min(ceil(c(beta_slow)), d - 1).
struct YarnRamp {
  double low;
  double high;
};
YarnRamp YarnRampOf(double base, int64_t rotary_dim, const YarnOptions& options);

// theta'_m = gamma_m theta_m + (1 - gamma_m) theta_m / s with gamma_m = ext_factor (1 - clamp((m - low) /
// (high - low), 0, 1)). `base` is the RoPE base of the own frequencies.
Result<Frequencies> Yarn(const Frequencies& own, double base, const YarnOptions& options);

// The scaling of Llama 3.1 (Dubey et al. 2024, "The Llama 3 Herd of Models"; formula as in its reference
// code). With lambda_m = 2 pi / theta_m: shorter than L0 / high_freq_factor stays, longer than L0 /
// low_freq_factor is divided by s, and between them t = (L0 / lambda_m - low) / (high - low), theta'_m = (1 -
// t) theta_m / s + t theta_m.
struct Llama3Options {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;  // L0, tokens
};
Result<Frequencies> Llama3(const Frequencies& own, const Llama3Options& options);

// LongRoPE (Ding et al. 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens") as Phi-3
// ships it: theta'_m = theta_m / f_m with one table of divisors f for texts up to L0 tokens and one for
// longer ones. The amplitude is the same for both: attention_factor if given, else sqrt(1 + ln(s) / ln(L0)),
// and 1 for s <= 1.
struct LongropeOptions {
  std::span<const float> short_factors = {};  // [rotary_dim / 2] each, positive
  std::span<const float> long_factors = {};
  int64_t original_context = 0;  // L0, tokens
  double factor = 1;             // s: the extended window over L0
  std::optional<double> attention_factor = {};
};
// For a text of n_tokens in all: one of the tables must serve a text from its beginning to its end, or keys
// that are cached would not fit together.
Result<Frequencies> Longrope(const Frequencies& own, const LongropeOptions& options, int64_t n_tokens);

}  // namespace longheads
