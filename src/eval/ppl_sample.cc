#include "eval/ppl_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "eval/experiment.h"
#include "eval/size.h"

namespace longheads {
namespace {

constexpr double kNormal95 = 1.96;  // two-sided quantile of the normal distribution

}  // namespace

void PplScore::Add(double nll) {
  ++n_tokens;
  nll_sum += nll;
  nll_squares += nll * nll;
}

void PplScore::Add(const PplScore& other) {
  n_tokens += other.n_tokens;
  nll_sum += other.nll_sum;
  nll_squares += other.nll_squares;
}

double PplScore::standard_error() const {
  const double n = static_cast<double>(n_tokens);
  // Cancellation may leave a little less than nothing where all tokens are equally likely.
  const double variance = std::max(0.0, nll_squares - nll_sum * nll_sum / n) / (n - 1);
  return std::sqrt(variance / n);
}

double PplScore::perplexity() const { return std::exp(mean()); }
double PplScore::lowest() const { return std::exp(mean() - kNormal95 * standard_error()); }
double PplScore::highest() const { return std::exp(mean() + kNormal95 * standard_error()); }

double NegativeLogLikelihood(std::span<const float> logits, TokenId token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum) - logits[Size(token)];
}

Status PplSample::ReadTo(int64_t n, const CancelToken* cancel, const Progress& progress) {
  LH_CHECK(n > n_read() && n <= static_cast<int64_t>(tokens_.size()));
  LH_ASSIGN(hidden_, engine_.Prefill(session_, tokens_.subspan(Size(n_read()), Size(n - n_read())),
                                     Outputs::kLast, {.cancel = cancel, .progress = progress}));
  return {};
}

Result<PplScore> PplSample::Score(int64_t n, const CancelToken* cancel, const Progress& progress) {
  LH_CHECK(n_read() > 0 && n_read() + n <= static_cast<int64_t>(tokens_.size()));
  const std::span<const TokenId> scored = tokens_.subspan(Size(n_read()), Size(n));
  const std::size_t n_known = engine_.tokenizer().vocabulary().tokens.size();  // the rest is padding
  Session fork = engine_.Fork(session_);
  Session* const self = &fork;
  std::vector<float> hidden = hidden_;
  PplScore score;
  for (std::size_t i = 0; i < scored.size(); ++i) {
    if (Cancelled(cancel)) return Interrupted();
    if (i > 0) LH_TRY(engine_.Decode(std::span(&self, 1), scored.subspan(i - 1, 1), hidden));
    const std::vector<float> logits = engine_.Logits(hidden);
    const double nll = NegativeLogLikelihood(std::span(logits).first(n_known), scored[i]);
    if (!std::isfinite(nll)) {
      return Unsupported(fmt::format("the model's logits for token {} are not finite", fork.size()));
    }
    score.Add(nll);
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(n));
  }
  return score;
}

}  // namespace longheads
