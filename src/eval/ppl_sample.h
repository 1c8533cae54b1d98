// Perplexity of one piece of a text at several lengths: the piece is read once, and at each length a fork
// decodes the tokens that are scored. Which pieces and lengths is ppl.h's.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"

namespace longheads {

// Negative log-likelihoods (nats) of some tokens, summed up. Sums of disjoint tokens add.
struct PplScore {
  int64_t n_tokens = 0;
  double nll_sum = 0;
  double nll_squares = 0;

  void Add(double nll);
  void Add(const PplScore& other);

  double mean() const { return nll_sum / static_cast<double>(n_tokens); }
  // Of the mean, as if the tokens were independent. At least two tokens.
  double standard_error() const;
  double perplexity() const;
  // Ends of the 95% interval: the mean less and plus 1.96 standard errors, as perplexities.
  double lowest() const;
  double highest() const;
};

// -log softmax(logits)[token], in float64.
double NegativeLogLikelihood(std::span<const float> logits, TokenId token);

class PplSample {
 public:
  // Neither is copied.
  PplSample(Engine& engine, std::span<const TokenId> tokens)
      : engine_(engine), tokens_(tokens), session_(engine.NewSession()) {}

  using Progress = std::function<void(double)>;  // hears of the share that is done; may be empty

  int64_t n_read() const { return session_.size(); }
  // Reads tokens [n_read, n) as prompt, in one call of Prefill. An interrupt is an Error.
  Status ReadTo(int64_t n, const CancelToken* cancel, const Progress& progress);
  // Scores tokens [n_read, n_read + n), each given all before it: the first by what Prefill left, the others
  // as those before them are decoded. What was read stays as it was.
  Result<PplScore> Score(int64_t n, const CancelToken* cancel, const Progress& progress);

 private:
  Engine& engine_;
  std::span<const TokenId> tokens_;
  Session session_;
  std::vector<float> hidden_;  // [embed_dim], after the last token read
};

}  // namespace longheads
