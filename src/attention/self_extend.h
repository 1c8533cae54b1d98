// Self-Extend (Jin et al. 2024, "LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning"): every
// query sees every key before it, the W nearest at their true distance, the others at that of groups of G
// tokens which share a position: floor(i/G) - floor(j/G) + W - floor(W/G).
//
// Keys lie on the grouped plane, R(floor(j/G)), where one rotation of a query serves all far keys; near keys
// are met on the absolute plane (near_keys.h). With fraction=exact the shift W - W/G is no whole
// number where G does not divide W: rotations are then in units of 1/G.
#pragma once

#include "attention/method.h"

namespace longheads {

struct SelfExtendOptions {
  int64_t group = 8;       // G
  int64_t window = 1024;   // W
  bool log_n = false;      // logits times max(1, ln(i + 1) / ln(log_n_base))
  int64_t log_n_base = 0;  // the trained window
  bool exact = false;      // the published eager code's true division, W - W/G
};

class SelfExtend : public Policy {
 public:
  SelfExtend(const SelfExtendOptions& options, const HeadShape& shape, int64_t window);

  KeyPlane Plane() const override { return {.factor = unit_, .group = options_.group, .unit = unit_}; }
  bool ReadsKeys() const override { return false; }
  int64_t NearTokens() const override { return options_.window; }
  int64_t RotationBound(int64_t n) const override { return unit_ * n; }  // far rotations are below near ones
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;

 private:
  // The longest text whose distances all stay inside the model's window.
  int64_t Capacity() const;

  SelfExtendOptions options_;
  HeadShape shape_;
  int64_t window_;
  int64_t unit_;
};

Method SelfExtendMethod();

}  // namespace longheads
