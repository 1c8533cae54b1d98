// Full causal attention: every key at its true distance. Keys on the absolute plane R(j).
#pragma once

#include "attention/method.h"

namespace longheads {

class FullAttention : public Policy {
 public:
  FullAttention(const HeadShape& shape, int64_t window) : shape_(shape), window_(window) {}

  bool ReadsKeys() const override { return false; }
  int64_t RotationBound(int64_t n) const override { return n; }
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;

 private:
  HeadShape shape_;
  int64_t window_;
};

// Adds to a plan that tokens [begin, end) of the block, all of one sequence, see every key before them. Keys
// are on the absolute plane.
void PlanFull(const QueryBlock& block, int64_t begin, int64_t end, int64_t group, Plan& plan);

Method FullMethod();

}  // namespace longheads
