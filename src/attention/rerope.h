// ReRoPE and Leaky ReRoPE (Su Jianlin 2023, github.com/bojone/rerope): every query sees every key before it,
// the w nearest at their true distance, the others all at distance w (ReRoPE), or at w and one more for every
// k tokens beyond (Leaky ReRoPE).
//
// ReRoPE stores unrotated keys, which are at distance w for a query rotated by w. Leaky ReRoPE stores key j
// at position j/k, where one rotation of the query serves all far keys; rotations are in units of 1/k. Near
// keys are met on the absolute plane (near_keys.h).
#pragma once

#include "attention/method.h"

namespace longheads {

struct ReRopeOptions {
  int64_t window = 512;       // w
  int64_t leak = 0;           // k of Leaky ReRoPE; 0: ReRoPE
  bool log_n = true;          // logits times max(1, ln(i + 1) / ln(log_n_base))
  int64_t log_n_base = 4096;  // the patches' training_length
};

class ReRope : public Policy {
 public:
  ReRope(const ReRopeOptions& options, const HeadShape& shape, int64_t window);

  KeyPlane Plane() const override {
    return options_.leak == 0 ? KeyPlane::Unrotated() : KeyPlane{.unit = options_.leak};
  }
  bool ReadsKeys() const override { return false; }
  int64_t NearTokens() const override { return options_.window; }
  // Far rotations are below near ones.
  int64_t RotationBound(int64_t n) const override { return Plane().unit * n; }
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;

 private:
  // The longest text whose distances all stay inside the model's window.
  int64_t Capacity() const;

  ReRopeOptions options_;
  HeadShape shape_;
  int64_t window_;
};

Method ReRopeMethod();
Method LeakyReRopeMethod();

}  // namespace longheads
