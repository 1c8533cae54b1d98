// Landmark attention (Mohtashami and Jaggi 2023, "Landmark Attention: Random-Access Infinite Context Length
// for Transformers"): every block of a text ends with a landmark token, whose key speaks for the block. A
// token sees its own block, the earlier ones of its window, and the blocks before the window whose landmarks
// meet its query best, every query head choosing for itself. For models trained with landmarks; the engine
// inserts them.
//
// Blocks before the window lie in the k + 1 slots that end where the window begins, so that no distance is
// longer than the trained window, whatever the text. On the chunk-local plane of blocks a key is the same in
// every slot: only the query's rotation tells where a block lies.
#pragma once

#include "attention/method.h"

namespace longheads {

struct LandmarkOptions {
  int64_t block = 51;   // tokens in a block, its landmark included
  int64_t top_k = 5;    // blocks before the window that a token sees
  int64_t window = 51;  // tokens that are read together: whole blocks, at least one
  int32_t token = 0;    // the landmark
};

class Landmark : public Policy {
 public:
  Landmark(const LandmarkOptions& options, const HeadShape& shape);

  KeyPlane Plane() const override { return KeyPlane::ChunkLocal(options_.block); }
  int64_t CallUnit() const override { return 0; }  // windows are cut in each call
  int64_t RotationBound(int64_t n) const override;
  std::optional<InsertedToken> Inserts() const override;
  std::unique_ptr<PolicyState> NewState() const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  std::optional<BlockGrid> Blocks() const override { return BlockGrid{.tokens = options_.block}; }
  int64_t PlanTokens(int64_t n) const override;
  void Extend(const StepInput& input, PolicyState& state) const override;
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  AttentionWork Work(int64_t n, Phase phase, const HeadShape& shape) const override;
  std::string Warning(int64_t) const override { return ""; }
  std::string Explain() const override;
  uint64_t StateBytes(int64_t n) const override;
  uint64_t LastBlockBytes(int64_t n) const override;

 private:
  struct Scratch;
  struct Window;

  int64_t WindowBegin(int64_t call_begin, int64_t position) const;
  void Score(const QueryBlock& block, const Window& window, const AttentionKernels& kernels,
             Scratch& scratch) const;
  void AddWindow(const QueryBlock& block, const Window& window, const AttentionKernels& kernels,
                 Scratch& scratch) const;

  LandmarkOptions options_;
  HeadShape shape_;
};

Method LandmarkMethod();

}  // namespace longheads
