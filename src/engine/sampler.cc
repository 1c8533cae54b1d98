#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "kernels/vector_ops.h"

namespace longheads {
namespace {

float Largest(std::span<const float> logits) {
  return FastestVectorKernels().range(logits.data(), static_cast<int64_t>(logits.size())).largest;
}

// A damaged model may give anything; what follows needs numbers that compare and subtract. Gives the largest.
float MakeNumbers(std::span<float> logits) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const float largest = Largest(logits);
  const auto n = static_cast<int64_t>(logits.size());
  if (largest <= kMost && FastestVectorKernels().count_at_least(logits.data(), n, -kMost) == n)
    return largest;
  for (float& logit : logits) {
    logit = logit >= -kMost ? logit : -kMost;  // also where it is no number
    logit = logit <= kMost ? logit : kMost;
  }
  return Largest(logits);
}

// A token and its logit in one number, the less the likelier: integers sort faster than what they stand for.
uint64_t KeyOf(float logit, TokenId id) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);  // of two zeros neither is likelier
  const uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000;
  return uint64_t{~ascending} << 32 | static_cast<uint32_t>(id);
}

TokenId TokenOf(uint64_t key) { return static_cast<TokenId>(key & 0xFFFFFFFF); }

}  // namespace

TokenId ArgMax(std::span<const float> logits) {
  const auto found = std::find(logits.begin(), logits.end(), Largest(logits));
  return found == logits.end() ? 0 : static_cast<TokenId>(found - logits.begin());
}

Result<Sampler> Sampler::Create(const SamplerOptions& o) {
  const auto refuse = [](const char* option, const char* range) {
    return InvalidInput(fmt::format("{} must be {}", option, range));
  };
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) return refuse("--temp", "0 or more");
  if (o.top_k < 0) return refuse("--top-k", "0 or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return refuse("--top-p", "above 0 and at most 1");
  if (!(o.min_p >= 0 && o.min_p < 1)) return refuse("--min-p", "0 or more and below 1");
  if (!(o.repeat_penalty > 0) || !std::isfinite(o.repeat_penalty))
    return refuse("--repeat-penalty", "above 0");
  if (o.repeat_window < 0) return refuse("the repeat window", "0 or more");
  return Sampler(o);
}

TokenId Sampler::Sample(std::span<float> logits, std::span<const TokenId> recent) {
  if (options_.repeat_penalty != 1) {
    const std::size_t n = std::min(recent.size(), static_cast<std::size_t>(options_.repeat_window));
    for (const TokenId id :
         std::unordered_set<TokenId>(recent.end() - static_cast<std::ptrdiff_t>(n), recent.end())) {
      if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;  // a row that is padding
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    }
  }
  if (options_.temperature == 0) return ArgMax(logits);
  const float most = MakeNumbers(logits);
  const bool cuts = (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < logits.size()) ||
                    options_.top_p < 1 || options_.min_p > 0;
  if (!cuts) return DrawFromAll(logits, most);
  const std::span<const TokenId> shortlist = Shortlist(logits, most);
  const double total = Weigh(shortlist, logits, most);
  return Pick(shortlist, Uniform() * total);
}

float Sampler::Weight(float logit, float most) const {
  return std::exp((logit - most) / options_.temperature);
}

double Sampler::Weigh(std::span<const TokenId> tokens, std::span<const float> logits, float most) {
  weights_.clear();
  double total = 0;
  for (const TokenId id : tokens) {
    total += static_cast<double>(weights_.emplace_back(Weight(logits[static_cast<std::size_t>(id)], most)));
  }
  return total;
}

TokenId Sampler::Pick(std::span<const TokenId> tokens, double at) const {
  TokenId last = tokens.front();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (weights_[i] == 0) continue;  // where sums are rounded it might else be what is left
    last = tokens[i];
    at -= static_cast<double>(weights_[i]);
    if (at < 0) break;
  }
  return last;
}

// Rejection sampling (von Neumann 1951), exact without the exponentials of a whole vocabulary. Those near the
// likeliest are offered with their weights; any other with the bound of what is far, whatever its weight, and
// is taken with the share of the bound that its weight is. All bounds together are the likeliest's weight, so
// that two offers are enough on average.
TokenId Sampler::DrawFromAll(std::span<const float> logits, float most) {
  const auto n = static_cast<double>(logits.size());
  // Below the likeliest, also where the difference is too small to be one.
  const float least = std::min(most - options_.temperature * static_cast<float>(std::log(n)),
                               std::nextafter(most, -std::numeric_limits<float>::infinity()));
  const std::span<const TokenId> near = AtLeast(logits, least);
  const double total = Weigh(near, logits, most);
  const double bound = near.size() < logits.size() ? static_cast<double>(Weight(least, most)) : 0;
  for (;;) {
    const double at = Uniform() * (total + n * bound);
    if (at < total || bound == 0) return Pick(near, at);
    const std::size_t id = std::min(static_cast<std::size_t>((at - total) / bound), logits.size() - 1);
    if (logits[id] < least && Uniform() * bound < static_cast<double>(Weight(logits[id], most))) {
      return static_cast<TokenId>(id);
    }
  }
}

std::span<TokenId> Sampler::AtLeast(std::span<const float> logits, float least) {
  found_.resize(logits.size() + static_cast<std::size_t>(kIndexRoom));
  const int64_t n = FastestVectorKernels().indices_at_least(
      logits.data(), static_cast<int64_t>(logits.size()), least, found_.data());
  return std::span(found_).first(static_cast<std::size_t>(n));
}

void Sampler::MakeKeys(std::span<const TokenId> tokens, std::span<const float> logits) {
  keys_.clear();
  for (const TokenId id : tokens) keys_.push_back(KeyOf(logits[static_cast<std::size_t>(id)], id));
}

std::span<const TokenId> Sampler::Shortlist(std::span<const float> logits, float most) {
  const std::size_t n_most =
      options_.top_k > 0 ? std::min(static_cast<std::size_t>(options_.top_k), logits.size()) : logits.size();
  const bool few = n_most < logits.size();
  // What is kept seldom reaches far below the likeliest: more are looked at only where it does. To find those
  // of a step takes less time than to sort what a larger one brings.
  constexpr float kBelow[] = {1, 2, 3, 4, 6, 8, 12, std::numeric_limits<float>::infinity()};
  const float* below = kBelow;
  const auto look = [&] { MakeKeys(AtLeast(logits, most - *below), logits); };
  look();
  while (few && keys_.size() < n_most) {
    ++below;
    look();
  }
  // Sorted as far as somebody looks: to sort a vocabulary takes longer than to multiply with it.
  std::size_t n_sorted = 0;
  const auto sort_until = [&](std::size_t n) {
    const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(n_sorted);
    const auto end = keys_.begin() + static_cast<std::ptrdiff_t>(n);
    if (end != keys_.end()) std::nth_element(begin, end, keys_.end());
    std::sort(begin, end);
    n_sorted = n;
  };
  if (few) {
    sort_until(n_most);
    keys_.resize(n_most);
  }
  // top-p and min-p look at the model's own probabilities, before the temperature.
  const auto weight = [&](uint64_t key) {
    return std::exp(static_cast<double>(logits[static_cast<std::size_t>(TokenOf(key))] - most));
  };
  double total = 0;
  if (options_.top_p < 1) {
    if (few) {
      for (const uint64_t key : keys_) total += weight(key);
    } else {
      total = FastestVectorKernels().exp_sum(logits.data(), static_cast<int64_t>(logits.size()), most);
    }
  }
  double reached = 0;
  const auto keep = [&] {
    std::size_t i = 0;
    for (; i < keys_.size(); ++i) {
      if (i == n_sorted) sort_until(std::min(keys_.size(), std::max<std::size_t>(64, 4 * n_sorted)));
      const double own = weight(keys_[i]);
      if (i > 0 && ((options_.top_p < 1 && reached >= static_cast<double>(options_.top_p) * total) ||
                    own < static_cast<double>(options_.min_p))) {
        break;
      }
      reached += own;
    }
    return i;
  };
  std::size_t n_kept = keep();
  while (n_kept == keys_.size() && n_kept < n_most) {
    ++below;
    look();
    n_sorted = 0;
    reached = 0;
    n_kept = keep();
  }
  std::transform(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(n_kept), found_.begin(), TokenOf);
  return std::span(found_).first(n_kept);
}

}  // namespace longheads
