// LM-Infinite (Han et al. 2024, "LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language
// Models"): every token sees the `local` newest tokens at their true distance and the text's first few at one
// constant distance. Optionally the last token of each call of the model also sees, in every query head, the
// k tokens between that match it best, at a constant distance of their own.
//
// Keys are stored unrotated: the near ones are met on the absolute plane (near_keys.h), and for the others
// the query's rotation is the distance.
#pragma once

#include "attention/method.h"

namespace longheads {

struct LmInfiniteOptions {
  int64_t global = 10;         // the text's first tokens, S
  int64_t local = 4096;        // the newest tokens, the query's own among them, w
  int64_t limit = 4096;        // largest distance of the first tokens; form=official alone
  int64_t top_k = 0;           // tokens between that a head looks for; 0: none
  int64_t top_k_from = 4;      // the first layer that looks
  int64_t top_k_at = 2048;     // the distance they are seen at, p
  enum class Form : uint8_t {  // how far away the first tokens are
    kOfficial,                 // limit, or the length of the text so far where that is less
    kInfLlm                    // local - 1
  } form = Form::kOfficial;
};

class LmInfinite : public Policy {
 public:
  // looks: whether this layer is one of those from top_k_from on.
  LmInfinite(const LmInfiniteOptions& options, bool looks, const HeadShape& shape, int64_t window)
      : options_(options), looks_(looks && options.top_k > 0), shape_(shape), window_(window) {}

  KeyPlane Plane() const override { return KeyPlane::Unrotated(); }
  bool ReadsKeys() const override { return looks_; }
  // A call's last token looks for others, and its length is the distance of the first ones.
  int64_t CallUnit() const override { return looks_ || options_.limit > options_.local ? 0 : 1; }
  int64_t NearTokens() const override { return options_.local; }
  int64_t RotationBound(int64_t n) const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  std::optional<BlockGrid> Blocks() const override {
    return looks_ ? std::optional(BlockGrid{}) : std::nullopt;
  }
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  AttentionWork Work(int64_t n, Phase phase, const HeadShape& shape) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;

 private:
  struct Scratch;

  // The heads' choices for the token that ends a call: a segment of listed keys for each.
  void AddMiddle(const QueryBlock& block, std::size_t token, const AttentionKernels& kernels,
                 Scratch& scratch, Plan& plan) const;

  LmInfiniteOptions options_;
  bool looks_;
  HeadShape shape_;
  int64_t window_;
};

Method LmInfiniteMethod();

}  // namespace longheads
