// From logits to the next token: greedy, or drawn under temperature, top-k, top-p, min-p and a repetition
// penalty.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

struct SamplerOptions {
  float temperature = 0;  // 0: greedy
  int64_t top_k = 0;      // keep the k likeliest; 0: all
  float top_p = 1;        // keep the likeliest that together reach this probability (Holtzman et al. 2020)
  float min_p = 0;        // keep those at least this likely, as a share of the likeliest (Nguyen et al. 2024)
  float repeat_penalty = 1;    // > 1 lowers the logits of tokens seen lately (Keskar et al. 2019, eq. 8)
  int64_t repeat_window = 64;  // how many tokens back "lately" reaches
  uint64_t seed = 0;
};

class Sampler {
 public:
  static Result<Sampler> Create(const SamplerOptions& options);

  // The next token. `recent` are the tokens so far, the newest last. Ties go to the lower id. Logits may be
  // changed.
  TokenId Sample(std::span<float> logits, std::span<const TokenId> recent);

 private:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
  // Evenly from [0, 1), 53 random bits: the same on every machine, which std's distributions do not promise.
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  // Those whose logit is at least this, by id; until the next call.
  std::span<TokenId> AtLeast(std::span<const float> logits, float least);
  // Fills keys_, which sort tokens by their logits: the likeliest first, of equals the lowest id.
  void MakeKeys(std::span<const TokenId> tokens, std::span<const float> logits);
  // Those that top-k, top-p and min-p leave, the likeliest first. The sum that top-p is a share of is the
  // kernels', which round it in orders of their own.
  std::span<const TokenId> Shortlist(std::span<const float> logits, float most);
  // exp((logit - most) / temperature).
  float Weight(float logit, float most) const;
  // Fills weights_; gives their sum.
  double Weigh(std::span<const TokenId> tokens, std::span<const float> logits, float most);
  // The token that covers `at` where each of them, with its weight, lies behind the one before.
  TokenId Pick(std::span<const TokenId> tokens, double at) const;
  TokenId DrawFromAll(std::span<const float> logits, float most);

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<TokenId> found_;  // AtLeast
  std::vector<uint64_t> keys_;
  std::vector<float> weights_;
};

// The id of the largest logit, the lowest where several are; what is no number never is.
TokenId ArgMax(std::span<const float> logits);

}  // namespace longheads
