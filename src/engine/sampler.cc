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

  const float most = logits[static_cast<std::size_t>(ArgMax(logits))];
  Shortlist(logits, most);
  weights_.clear();
  double total = 0;
  for (const TokenId id : order_) {
    const float logit = logits[static_cast<std::size_t>(id)];
    total += weights_.emplace_back(std::exp((logit - most) / options_.temperature));
  }
  // 53 random bits as a fraction: the same on every machine, which std's distributions do not promise.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
  TokenId last = order_.front();
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (weights_[i] == 0) continue;  // where sums are rounded it might else be what is left
    last = order_[i];
    left -= static_cast<double>(weights_[i]);
    if (left < 0) break;
  }
  return last;
}

void Sampler::Shortlist(std::span<const float> logits, float most) {
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const bool few = options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < order_.size();
  if (!few && options_.top_p == 1 && options_.min_p == 0) return;
  const auto logit_of = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](TokenId a, TokenId b) {
    return logit_of(a) != logit_of(b) ? logit_of(a) > logit_of(b) : a < b;
  };
  // Sorted as far as somebody looks: to sort a vocabulary takes longer than to multiply with it.
  std::size_t n_sorted = 0;
  const auto sort_until = [&](std::size_t n) {
    const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(n_sorted);
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(n);
    if (end != order_.end()) std::nth_element(begin, end, order_.end(), likelier);
    std::sort(begin, end, likelier);
    n_sorted = n;
  };
  if (few) {
    sort_until(static_cast<std::size_t>(options_.top_k));
    order_.resize(n_sorted);
  }
  // top-p and min-p look at the model's own probabilities, before the temperature.
  const auto weight = [&](TokenId id) { return std::exp(static_cast<double>(logit_of(id) - most)); };
  double total = 0;
  if (options_.top_p < 1) {
    for (const TokenId id : order_) total += weight(id);
  }
  double reached = 0;
  std::size_t keep = 0;
  for (; keep < order_.size(); ++keep) {
    if (keep == n_sorted) sort_until(std::min(order_.size(), std::max<std::size_t>(64, 4 * n_sorted)));
    const double own = weight(order_[keep]);
    if (keep > 0 && ((options_.top_p < 1 && reached >= static_cast<double>(options_.top_p) * total) ||
                     own < static_cast<double>(options_.min_p))) {
      break;
    }
    reached += own;
  }
  order_.resize(keep);
}

}  // namespace longheads
