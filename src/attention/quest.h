// Quest (Tang et al. 2024, "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference"): prompts
// are read with full attention; a generated token attends to the pages of the text that could match its query
// best, every query head choosing for itself, at true distances. The first layers see everything.
//
// Keys are on the absolute plane. What a page could match at best is the sum over channels of
// max(q min, q max), with the channel's least and greatest key: the product of [q+, q-] and [max, min].
#pragma once

#include "attention/method.h"

namespace longheads {

struct QuestOptions {
  int64_t page = 16;      // tokens
  int64_t budget = 1024;  // tokens that a generated token sees; >= page
  int64_t dense_layers = 2;
  // Of the published kernels, which always see the newest page and choose the others; or of the published
  // evaluation, where the newest page competes too.
  enum class Rule { kKernel, kEvaluation };
  Rule rule = Rule::kKernel;
};

class Quest : public Policy {
 public:
  // The policy of a dense layer, or of one that chooses.
  Quest(const QuestOptions& options, bool dense, const HeadShape& shape, int64_t window);

  int64_t RotationBound(int64_t n) const override { return n; }
  std::unique_ptr<PolicyState> NewState() const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  std::optional<BlockGrid> Blocks() const override { return BlockGrid{.tokens = options_.page}; }
  void Extend(const StepInput& input, PolicyState& state) const override;
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  AttentionWork Work(int64_t n, Phase phase, const HeadShape& shape) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;
  uint64_t StateBytes(int64_t n) const override;
  uint64_t LastBlockBytes(int64_t n) const override;

 private:
  struct Scratch;

  // Pages that a token sees where there are so many tokens.
  int64_t PagesToSee(int64_t n_tokens) const;
  void PlanChosen(const QueryBlock& block, int64_t token, const AttentionKernels& kernels, Scratch& scratch,
                  Plan& plan) const;

  QuestOptions options_;
  bool dense_;
  HeadShape shape_;
  int64_t window_;
};

Method QuestMethod();

}  // namespace longheads
