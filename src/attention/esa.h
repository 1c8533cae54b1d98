// ESA (Wang et al. 2025, "Unshackling Context Length: An Efficient Selective Attention Approach through
// Query-Key Compression"): tokens are processed in chunks. Of what precedes a chunk, the last n_local tokens
// stay local, at their true distance; of the others the first n_init are always seen, and k tokens of the
// middle, chosen once for all heads and queries of the chunk (esa_choice.h); all of them at the distance
// n_local.
//
// Keys are stored once, unrotated: far keys meet the query rotation x = n_local, local ones are met on the
// absolute plane (near_keys.h).
#pragma once

#include <memory>
#include <span>

#include "attention/esa_projections.h"
#include "attention/method.h"

namespace longheads {

struct EsaOptions {
  int64_t n_init = 128;
  int64_t k = 2048;
  int64_t n_local = 4096;
  int64_t chunk = 512;
  int64_t dim = 128;  // rows of the projections; with score=compressed alone
  int64_t eps = 3;
  // What a token's importance is made of: products of projections, or of the vectors themselves.
  enum class Score { kCompressed, kExact };
  Score score = Score::kCompressed;
  // The sum of the heads' products, or the largest of them.
  enum class Share { kSum, kIndividual };
  Share share = Share::kSum;
};

class Esa : public Policy {
 public:
  // The registry has checked the options; projections are of at least options.dim rows, or null with
  // score=exact.
  Esa(const EsaOptions& options, const HeadShape& shape, std::shared_ptr<const EsaProjections> projections);

  KeyPlane Plane() const override { return KeyPlane::Unrotated(); }
  int64_t NearTokens() const override { return options_.n_local; }
  int64_t RotationBound(int64_t n) const override;
  std::unique_ptr<PolicyState> NewState() const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  std::optional<BlockGrid> Blocks() const override { return BlockGrid{}; }  // single tokens
  int64_t StepTokens() const override { return options_.chunk; }
  void Extend(const StepInput& input, PolicyState& state) const override;
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  AttentionWork Work(int64_t n, Phase phase, const HeadShape& shape) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;
  uint64_t StateBytes(int64_t n) const override;
  uint64_t LastBlockBytes(int64_t n) const override;

  // The tokens of the middle that the newest step chose, ascending; none where it sees all of them.
  std::span<const int32_t> Chosen(const PolicyState& state) const;

 private:
  class State;
  struct Scratch;

  bool compressed() const { return options_.score == EsaOptions::Score::kCompressed; }
  int64_t columns() const { return shape_.n_kv_heads * shape_.head_dim; }
  // The new tokens' keys through W_k, into the state.
  void CompressKeys(const StepInput& input, State& state, Scratch& scratch) const;
  void CompressQueries(const StepInput& input, Scratch& scratch) const;

  EsaOptions options_;
  HeadShape shape_;
  std::shared_ptr<const EsaProjections> projections_;
  uint64_t compression_ = 0;  // their checksum
};

Method EsaMethod();
// The defaults for a model.
EsaOptions DefaultEsaOptions(const AttentionModel& model);
// That of n_local: what a compression is fitted for.
int64_t DefaultEsaDistance(int64_t trained_window);

}  // namespace longheads
