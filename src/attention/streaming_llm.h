// StreamingLLM (Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks"): every query
// sees the first S tokens, which soak up the attention that has nowhere else to go, and the most recent R.
//
// Keys lie on the absolute plane alone. Recent ones are at their true distance, x = i; the first S have a
// rotation of their own, which puts them next to the recent ones however far away they are. Nothing is
// chosen, so prefill and decode are one rule, and there is nothing to remember.
#pragma once

#include "attention/method.h"

namespace longheads {

struct StreamingLlmOptions {
  int64_t start = 4;      // S
  int64_t recent = 2000;  // R
  // kSlots, the published code's cache of S + R keys with the query on top of it: R earlier tokens are
  // recent, and sink j is at the distance from slot j to the query's. kChunkSafe, InfLLM's version: R tokens
  // with the query's own are recent, and the sinks lie immediately before them.
  enum class Form { kSlots, kChunkSafe } form = Form::kSlots;
};

class StreamingLlm : public Policy {
 public:
  StreamingLlm(const StreamingLlmOptions& options, const HeadShape& shape)
      : options_(options), shape_(shape) {}

  bool ReadsKeys() const override { return false; }
  int64_t RotationBound(int64_t n) const override;
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  AttentionWork Work(int64_t n, Phase phase, const HeadShape& shape) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;

 private:
  // Of a query's own and later tokens: the least distance that is not seen, but for the first tokens.
  int64_t recent_end() const {
    return options_.recent + (options_.form == StreamingLlmOptions::Form::kSlots ? 1 : 0);
  }

  StreamingLlmOptions options_;
  HeadShape shape_;
};

Method StreamingLlmMethod();

}  // namespace longheads
