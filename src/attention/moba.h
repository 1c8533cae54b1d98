// MoBA (Lu et al. 2025, "MoBA: Mixture of Block Attention for Long-Context LLMs"): a prompt token attends to
// its own block and to the earlier blocks whose mean key meets its query best, every query head choosing for
// itself, at true distances. Generated tokens see everything, or are gated like the prompt.
//
// Keys are on the absolute plane, and so are their means: both meet R(i) q.
#pragma once

#include "attention/method.h"

namespace longheads {

struct MobaOptions {
  int64_t chunk = 4096;  // tokens in a block
  int64_t top_k = 12;    // blocks that a token sees, its own included
  bool gate_decode = false;
};

class Moba : public Policy {
 public:
  Moba(const MobaOptions& options, const HeadShape& shape, int64_t window);

  int64_t RotationBound(int64_t n) const override { return n; }
  std::unique_ptr<PolicyState> NewState() const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  std::optional<BlockGrid> Blocks() const override { return BlockGrid{.tokens = options_.chunk}; }
  int64_t PlanTokens(int64_t n) const override;
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

  void PlanGated(const QueryBlock& block, int64_t begin, int64_t end, const AttentionKernels& kernels,
                 Scratch& scratch, Plan& plan) const;

  MobaOptions options_;
  HeadShape shape_;
  int64_t window_;
};

Method MobaMethod();

}  // namespace longheads
