// LongHeads (Lu et al. 2024, "LongHeads: Multi-Head Attention is Secretly a Long Context Processor"): the
// text is cut into chunks of l tokens; beyond the first `begin` tokens every query head attends to the first
// chunk, the previous one, its own, and the K - 3 whose representations match it best, placed side by side in
// K slots of l positions.
//
// Keys are stored once, on the chunk-local plane R(j mod l): slot s of a query at offset o in its chunk is
// the query rotation x = (K - 1 - s) l + o, and before `begin` chunk C is x = i - C l. The canonical form
// includes the query's own key, in prefill and decode alike; `compat` brings the published code's oddities
// back one by one.
#pragma once

#include <span>
#include <vector>

#include "attention/method.h"
#include "attention/scored_vectors.h"

namespace longheads {

struct LongHeadsOptions {
  int64_t chunk = 256;    // l
  int64_t window = 4096;  // A = K l: the tokens a query attends to at most
  int64_t begin = 4096;   // B: full attention before it; >= window, a multiple of chunk
  enum class Grouping { kHead, kKv };
  Grouping reps =
      Grouping::kHead;  // one representation per query head, or per KV head (O averaged over its group)
  Grouping select = Grouping::kHead;  // each query head chooses, or the group by the sum of its heads' scores
  // The ablations of the paper's Table 4. Which of them the paper defines, and how far:
  // docs/methods/longheads.md.
  enum class Represent { kPaper, kMean, kLast };  // the mean, or the last, of the chunk's stored keys
  Represent represent = Represent::kPaper;
  enum class Choose { kTop, kRandom, kRandomKeep, kLastK };
  Choose choose = Choose::kTop;
  bool first = true;  // whether chunk 0 is always seen; else it never is
  enum class Fix { kNone, kHead, kLayer, kBoth };
  Fix fix =
      Fix::kNone;  // one choice for all heads; each head's choice of the first layer in all layers; both
  struct Compat {
    bool own_key = false;    // prefill past `begin` leaves the query's own key out
    bool chunk_end = false;  // decoding a chunk's last token uses K - 1 slots
    bool begin = false;      // decode selects from token begin - 1 on
  } compat;
};

class LongHeads : public Policy {
 public:
  // window / chunk >= 3; the registry has checked the options.
  LongHeads(const LongHeadsOptions& options, const HeadShape& shape, PairLayout layout, int64_t window);

  KeyPlane Plane() const override { return KeyPlane::ChunkLocal(options_.chunk); }
  int64_t RotationBound(int64_t n) const override;
  std::unique_ptr<PolicyState> NewState() const override;
  std::unique_ptr<PolicyScratch> NewScratch() const override;
  int64_t PlanTokens(int64_t n) const override;
  int64_t FullPlanTokens(int64_t n) const override;
  std::optional<BlockGrid> Blocks() const override { return BlockGrid{.tokens = options_.chunk}; }
  void Extend(const StepInput& input, PolicyState& state) const override;
  void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                 PolicyScratch& scratch, Plan& plan) const override;
  AttentionWork Work(int64_t n, Phase phase, const HeadShape& shape) const override;
  std::string Warning(int64_t n_tokens) const override;
  std::string Explain() const override;
  uint64_t StateBytes(int64_t n) const override;
  uint64_t RewrittenBytes(int64_t n) const override;
  uint64_t LastBlockBytes(int64_t n) const override;

 private:
  class State;
  struct Scratch;

  int64_t n_slots() const { return options_.window / options_.chunk; }
  int64_t n_rep_heads() const {
    return options_.reps == LongHeadsOptions::Grouping::kHead ? shape_.n_heads : shape_.n_kv_heads;
  }
  int64_t heads_per_choice() const {
    return options_.select == LongHeadsOptions::Grouping::kHead ? 1 : shape_.group();
  }
  // Whether the token chooses chunks rather than seeing everything.
  bool Selects(int64_t position, Phase phase) const;
  bool fixes_heads() const {
    return options_.fix == LongHeadsOptions::Fix::kHead || options_.fix == LongHeadsOptions::Fix::kBoth;
  }
  bool fixes_layers() const {
    return options_.fix == LongHeadsOptions::Fix::kLayer || options_.fix == LongHeadsOptions::Fix::kBoth;
  }
  bool chooses_by_score() const {
    return options_.choose == LongHeadsOptions::Choose::kTop ||
           options_.choose == LongHeadsOptions::Choose::kLastK;
  }
  // Whether choices are made in Extend, once for those who share them. Random ones need no sharing: they are
  // a function of numbers that can be equal.
  bool shares_choices() const { return options_.fix != LongHeadsOptions::Fix::kNone && chooses_by_score(); }
  // Who a choice is made for, beside the token: what a random choice depends on.
  struct Chooser {
    int64_t layer;
    int64_t head;
  };
  // Tokens [begin, end) of a block, of one sequence; those from `selecting` on choose.
  struct TokenRun {
    int32_t sequence;
    int64_t begin, selecting, end;
    int64_t n_chunks = 0;  // up to that of the newest
  };
  // Tokens whose scores for so many chunks are there at a time.
  int64_t ScoredTokens(int64_t n_chunks) const;
  void ScoreChunks(const QueryBlock& block, int64_t first, int64_t last, int64_t n_chunks, const State& state,
                   const AttentionKernels& kernels, Scratch& scratch) const;
  void ScoreOwnVectors(std::span<const QueryToken> tokens, int64_t kv_head, int64_t n_chunks,
                       const State& state, const AttentionKernels& kernels, Scratch& scratch) const;
  void ScoreSharedVectors(std::span<const QueryToken> tokens, int64_t kv_head, int64_t n_chunks,
                          const State& state, const AttentionKernels& kernels, Scratch& scratch) const;
  void ChooseChunks(int64_t position, Phase phase, Chooser chooser, const float* scores,
                    Scratch& scratch) const;
  void ListEntries(const QueryBlock& block, Phase phase, const TokenRun& run, const AttentionKernels& kernels,
                   Scratch& scratch) const;
  void GroupByChunk(const QueryBlock& block, const TokenRun& run, bool drop_own_key, Scratch& scratch,
                    Plan& plan) const;
  Chooser ChooserOf(int64_t layer, int64_t head) const;
  // Tells of what ChooseChunks has just left in the scratch, for one token and these heads.
  void TellChoice(SelectionObserver* observer, int64_t layer, int32_t sequence, int64_t position,
                  int64_t head_begin, int64_t head_end, const float* scores, const Scratch& scratch) const;
  void FixChoices(const StepInput& input, State& state) const;
  // Of chunks [begin, end), which are complete.
  void Represent(const StepInput& input, int64_t begin, int64_t end, State& state) const;
  void AttendWithin(const StepInput& input, int64_t chunk, int64_t kv_head, int thread, const State& state,
                    Scratch& scratch) const;
  void RepresentByOutputs(const StepInput& input, int64_t chunk, int64_t kv_head, int thread,
                          const State& state, ScoredVectors::Place place) const;
  void RepresentByKeys(const StepInput& input, int64_t chunk, State& state) const;

  LongHeadsOptions options_;
  HeadShape shape_;
  PairLayout layout_;
  int64_t window_;
};

Method LongHeadsMethod();
Method AutoMethod();  // LongHeads, as the program's default

}  // namespace longheads
