// The worked example of docs/adding-a-method.md: the "fixed" pattern of Sparse Transformers (Child et al.
// 2019, "Generating Long Sequences with Sparse Transformers", section 4.3). A query sees its own block of l
// tokens, and the last c tokens of every block before it, all at their true distances.
#pragma once

#include "attention/method.h"

namespace longheads {

struct FixedSparseOptions {
  int64_t block = 128;  // l
  int64_t summary = 8;  // c
};

class FixedSparse : public Policy {
 public:
  FixedSparse(const FixedSparseOptions& options, const HeadShape& shape, int64_t trained_window)
      : options_(options), shape_(shape), trained_window_(trained_window) {}

  // Keys lie on the absolute plane (the default), where a query at its true distance from all of them is
  // rotated by its position.
  int64_t RotationBound(int64_t n) const override { return n; }
  bool ReadsKeys() const override { return false; }
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;

 private:
  FixedSparseOptions options_;
  HeadShape shape_;
  int64_t trained_window_;
};

Method FixedSparseMethod();

}  // namespace longheads
