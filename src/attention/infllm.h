// InfLLM (Xiao et al. 2024, "InfLLM: Training-Free Long-Context Extrapolation for LLMs with an Efficient
// Context Memory"): every token sees the newest tokens at their true distance and, at one constant distance,
// the text's first tokens and a few blocks of what lies between, chosen for all heads together and for a
// whole exec block of queries at a time. A block stands for itself by those of its tokens that attention went
// to while they were near.
//
// Keys are stored unrotated: the near ones are met on the absolute plane (near_keys.h), the far ones are
// met by the query at x = n_local - 1.
#pragma once

#include "attention/method.h"
#include "attention/plan_parts.h"
#include "attention/scored_vectors.h"

namespace longheads {

struct InfLlmOptions {
  int64_t n_init = 128;           // the text's first tokens, always seen
  int64_t n_local = 4096;         // the newest tokens, the query's own among them
  int64_t block = 128;            // tokens of a block
  int64_t top_k = 16;             // blocks that are chosen
  int64_t representatives = 4;    // tokens of a block that make its vector
  int64_t exec_block = 512;       // queries that choose together; at most n_local
  int64_t max_cached_block = 32;  // of the cache that the statistics are about; at least top_k
  bool per_head = false;          // every query head chooses for itself
  bool double_remainder = false;  // compat: near keys of the remainder count a second time, as far ones
};

class InfLlm : public Policy {
 public:
  InfLlm(const InfLlmOptions& options, const HeadShape& shape, int64_t window);

  KeyPlane Plane() const override { return KeyPlane::Unrotated(); }
  int64_t NearTokens() const override { return options_.n_local; }
  int64_t RotationBound(int64_t n) const override;
  std::unique_ptr<PolicyState> NewState() const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  std::optional<BlockGrid> Blocks() const override {
    return BlockGrid{.first = options_.n_init, .tokens = options_.block};
  }
  int64_t StepTokens() const override { return options_.exec_block; }
  int64_t PlanTokens(int64_t n) const override;
  void Extend(const StepInput& input, PolicyState& state) const override;
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  bool Observes() const override { return true; }
  void Observe(const StepInput& input, PolicyState& state) const override;
  AttentionWork Work(int64_t n, Phase phase, const HeadShape& shape) const override;
  std::string Warning(int64_t) const override { return ""; }
  std::string Explain() const override;
  uint64_t StateBytes(int64_t n) const override;
  uint64_t RewrittenBytes(int64_t n) const override;
  uint64_t LastBlockBytes(int64_t n) const override;

  // What a device that holds max_cached_block blocks, and drops those unused for longest, would have found
  // there; with per_head a device of that size for each head. Nothing here depends on it: blocks lie in the
  // key/value store.
  struct CacheStatistics {
    int64_t hits = 0;
    int64_t misses = 0;  // transfers of a block
  };
  static CacheStatistics StatisticsOf(const PolicyState& state);

 private:
  class State;
  struct Scratch;

  int64_t n_choices() const { return options_.per_head ? shape_.n_heads : 1; }
  // Of a text of n tokens: the oldest, which are first tokens or in blocks. The rest is the remainder.
  int64_t Absorbed(int64_t n) const;
  // Blocks of a text of n tokens.
  int64_t BlocksOf(int64_t n) const;
  // The first key whose mass a step that begins there may sum up.
  int64_t MassBegin(int64_t step_begin) const;
  void ChooseBlocks(const StepInput& input, State& state) const;
  // Tells of a choice of the step that begins; no ranks where it took all that there are.
  void TellChoice(const StepInput& input, int64_t choice, int64_t n_blocks, std::span<const int32_t> taken,
                  std::span<const double> ranks) const;
  void AddChosen(const QueryBlock& block, const TokenRun& run, const State& state, Scratch& scratch,
                 Plan& plan) const;
  void AddMass(const StepInput& input, State& state) const;
  void Represent(const StepInput& input, int64_t block, int64_t kv_head, const State& state, Scratch& scratch,
                 ScoredVectors::Place place) const;

  InfLlmOptions options_;
  HeadShape shape_;
  int64_t window_;
};

Method InfLlmMethod();

}  // namespace longheads
