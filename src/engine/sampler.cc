#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>

namespace longheads {

TokenId ArgMax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
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
  // A damaged model may give anything; what follows needs numbers that compare and subtract.
  for (float& logit : logits) {
    constexpr float kMost = std::numeric_limits<float>::max();
    logit = std::isnan(logit) ? -kMost : std::clamp(logit, -kMost, kMost);
  }
  if (options_.temperature == 0) return ArgMax(logits);

  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto likelier = [&](TokenId a, TokenId b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < order_.size()) {
    std::nth_element(order_.begin(), order_.begin() + options_.top_k, order_.end(), likelier);
    order_.resize(static_cast<std::size_t>(options_.top_k));
  }
  std::sort(order_.begin(), order_.end(), likelier);
  const double most = static_cast<double>(logits[static_cast<std::size_t>(order_[0])]);
  const auto weight = [&](TokenId id, double temperature) {
    return std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - most) / temperature);
  };
  // top-p and min-p look at the model's own probabilities, before the temperature.
  double total = 0;
  for (const TokenId id : order_) total += weight(id, 1);
  double reached = 0;
  std::size_t keep = 0;
  for (; keep < order_.size(); ++keep) {
    const double own = weight(order_[keep], 1);
    if (keep > 0 && (reached >= static_cast<double>(options_.top_p) * total ||
                     own < static_cast<double>(options_.min_p))) {
      break;
    }
    reached += own;
  }
  order_.resize(keep);
  weights_.clear();
  total = 0;
  for (const TokenId id : order_)
    total += weights_.emplace_back(weight(id, static_cast<double>(options_.temperature)));
  // 53 random bits as a fraction: the same on every machine, which std's distributions do not promise.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) return order_[i];
  }
  return order_.back();
}

}  // namespace longheads
