// Full causal attention: every key at its true distance. Keys on the absolute plane R(j).
#pragma once

#include "attention/policy.h"

namespace longheads {

class FullAttention : public Policy {
 public:
  FullAttention(const HeadShape& shape, int64_t trained_window)
      : shape_(shape), trained_window_(trained_window) {}

  int64_t KeyPosition(int64_t j) const override { return j; }
  int64_t RotationBound(int64_t n) const override { return n; }
  std::unique_ptr<PolicyState> NewState() const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  void Extend(const ExtendInput&, PolicyState&) const override {}
  void BuildPlan(const QueryBlock& block, Phase phase, std::span<const PolicyState* const> states,
                 const AttentionKernels& kernels, PolicyScratch& scratch, Plan& plan) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;
  uint64_t StateBytes(int64_t) const override { return 0; }

 private:
  HeadShape shape_;
  int64_t trained_window_;
};

}  // namespace longheads
