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
  // Puts those that top-k, top-p and min-p leave into order_: the likeliest first where they are told apart.
  void Shortlist(std::span<const float> logits, float most);

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<TokenId> order_;
  std::vector<float> weights_;
};

// The id of the largest logit, the lowest where several are.
TokenId ArgMax(std::span<const float> logits);

}  // namespace longheads
