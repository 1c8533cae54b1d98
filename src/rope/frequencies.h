// What a RoPE table is, and the one a model is trained with (Su et al. 2021, "RoFormer", eq. 15). Schedules
// that change it are in schedules.h; which keys are cached, and which rotation they carry, is decided
// elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace longheads {

struct Frequencies {
  std::vector<double> theta;  // [rotary_dim / 2] radians per position, fastest pair first
  double amplitude = 1.0;     // q and k are both multiplied by it: logits by its square

  int64_t rotary_dim() const { return 2 * static_cast<int64_t>(theta.size()); }
};

// Frequencies that change with the length so far.
struct FollowingFrequencies {
  // Those of a call of the model after which the sequence has n tokens; empty: they do not change. The
  // amplitude is the same for all n.
  std::function<Frequencies(int64_t n_tokens)> at = {};
  // Keys are kept unrotated and turned by the newest frequencies as they are read; else each keeps the
  // rotation of the call that brought it.
  bool turns_keys = false;
};

// theta_m = base^(-2m / rotary_dim) / divisors[m]; `divisors` is empty or has rotary_dim / 2 positive entries
// (GGUF's rope_freqs tensor: llama3 scaling as data).
Result<Frequencies> TrainedFrequencies(double base, int64_t rotary_dim, std::span<const float> divisors);

}  // namespace longheads
