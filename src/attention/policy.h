// An attention method proper: decides, for a layer, which keys each query sees and at which distance. One
// policy serves any number of sequences and threads; what it remembers of one sequence lies in a PolicyState.
// Its hooks have neutral defaults: the least of a method is RotationBound, BuildPlan and its words.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/executor.h"
#include "attention/plan.h"
#include "attention/selection.h"

namespace longheads {

class StateReader;
class StateWriter;

// Something that a method counted, under a name in small letters and underscores ("cache_hits"), which the
// user is shown.
struct PolicyCounter {
  std::string_view name;
  int64_t count = 0;
};

// One layer's memory of one sequence beside its keys and values.
class PolicyState {
 public:
  virtual ~PolicyState() = default;
  virtual std::unique_ptr<PolicyState> Fork() const = 0;
  // The most tokens m <= n that Truncate can go back to exactly; the engine feeds tokens [m, n) again. Every
  // state can take back its newest token, so that a decode step which failed in a later layer is undone.
  virtual int64_t RewindPoint(int64_t n) const { return n; }
  // Forgets tokens from m on; m was a RewindPoint.
  virtual void Truncate(int64_t m) = 0;
  // Bytes held, for the memory plan's check.
  virtual uint64_t Bytes() const = 0;
  // What it counted over the text's tokens, for who wants to know how the method does; no result depends on
  // it. Over layers, equal names are summed.
  virtual std::vector<PolicyCounter> Counters() const { return {}; }

  // As bytes, between two calls of the model (state_archive.h): a restored state goes on, forks and goes back
  // bit by bit as the one that was saved. What only one step needs, from Extend to its plans, is not saved.
  //
  // Name and version of the layout, and every size that it depends on: only bytes of the same are restored.
  virtual std::string Layout() const = 0;
  // Of n tokens. added: what tokens [from, n) made and later ones leave alone, so that a long text is not
  // written again and again; latest: everything else, small whatever the length.
  virtual void Save(int64_t from, int64_t n, StateWriter& added, StateWriter& latest) const = 0;
  // Bytes may be anything: sizes are checked before memory is taken, numbers before they are used. The state
  // is of at least `from` tokens and comes to be of n, both within bounds; it is dropped where the reader
  // failed.
  virtual void RestoreAdded(int64_t from, int64_t n, StateReader& added) = 0;
  // Once, after all that was added up to token n.
  virtual void RestoreLatest(int64_t n, StateReader& latest) = 0;
};

// Of methods that remember nothing. Final: what remembers something must say how it is saved.
class NoState final : public PolicyState {
 public:
  std::unique_ptr<PolicyState> Fork() const override { return std::make_unique<NoState>(); }
  void Truncate(int64_t) override {}
  uint64_t Bytes() const override { return 0; }
  std::string Layout() const override { return "none"; }
  void Save(int64_t, int64_t, StateWriter&, StateWriter&) const override {}
  void RestoreAdded(int64_t, int64_t, StateReader&) override {}
  void RestoreLatest(int64_t, StateReader&) override {}
};

// Reused between calls, so that a decode step allocates nothing.
struct PolicyScratch {
  virtual ~PolicyScratch() = default;
};

// New tokens of one sequence, whose keys and values are in the store already.
struct StepInput {
  int64_t layer = 0;
  Phase phase = Phase::kPrefill;
  const AttentionSequence* sequence = nullptr;  // its state is the one that is passed beside it
  int32_t sequence_index = 0;                   // into the batch's sequences
  int64_t token_begin = 0;
  int64_t n_tokens = 0;
  const float* q = nullptr;  // [n_tokens, n_heads, head_dim], unrotated
  float* softmax = nullptr;  // [n_tokens, n_heads, 2] as in QueryToken; Observe alone has them
  AttentionExecutor* executor = nullptr;
  ThreadPool* pool = nullptr;
  std::span<const std::unique_ptr<PolicyScratch>> scratch =
      {};  // one for each thread of the pool; no plan is built meanwhile
  const CancelToken* cancel = nullptr;
  SelectionObserver* observer = nullptr;  // hears of choices made in Extend; null: nobody does
};

// A token that stands in every text at fixed places, because the model was trained so.
struct InsertedToken {
  int32_t id = 0;
  int64_t period = 1;  // it follows every `period` tokens of the text
};

// What one layer does for one token, beside the products of its weights; all query heads together.
struct AttentionWork {
  double attended = 0;   // (query head, key) pairs: 4 head_dim floating-point operations each
  double for_later = 0;  // those of them that only prepare later choices, and read no key but once for many
  double chosen_by = 0;  // multiply-adds made to choose, or to be able to choose later: 2 operations each
};

class Policy {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  virtual ~Policy() = default;

  // The plane on which keys are stored.
  virtual KeyPlane Plane() const { return KeyPlane::Absolute(); }
  // Of a method whose plans have segments on the absolute plane beside the stored one: they hold no key that
  // is more than so many tokens before the first of a step. 0: it has none.
  virtual int64_t NearTokens() const { return 0; }
  // Whether it looks at stored keys itself, to choose or to remember: then they must lie on its plane, and
  // keep the frequencies that they came with.
  virtual bool ReadsKeys() const { return true; }
  // Rotations in a plan over n tokens are below this, in units of the plane.
  virtual int64_t RotationBound(int64_t n) const = 0;

  // The blocks that choices are about (BlockChoice); of a method that makes none, nothing.
  virtual std::optional<BlockGrid> Blocks() const { return std::nullopt; }

  // What the engine puts into the texts that the model reads. A policy that has some says so for every layer,
  // and its states go back to any token.
  virtual std::optional<InsertedToken> Inserts() const { return std::nullopt; }

  virtual std::unique_ptr<PolicyState> NewState() const { return std::make_unique<NoState>(); }
  virtual std::unique_ptr<PolicyScratch> NewScratch() const { return std::make_unique<PolicyScratch>(); }

  // A prompt goes through Extend, BuildPlan and Observe in steps of so many tokens, counted from where the
  // call that fed it began: methods that choose once for a block of queries say its size.
  virtual int64_t StepTokens() const { return kNoLimit; }
  // Where a prompt may be fed in two calls instead of one without a change of any bit: behind multiples of so
  // many of the text's tokens; 0: nowhere.
  virtual int64_t CallUnit() const { return StepTokens() == kNoLimit ? 1 : StepTokens(); }
  // The tokens that one plan may cover where the sequence has n: what bounds a plan's memory. At least 1.
  virtual int64_t PlanTokens(int64_t) const { return kNoLimit; }
  // Fewer than these in a plan, and keys are shared by so few of its rows that the kernels' tiles stay half
  // empty.
  virtual int64_t FullPlanTokens(int64_t) const { return 0; }

  // Takes new tokens into the state, before their plans. Called from one thread, which may run loops on the
  // pool. Where input.cancel is raised before it is done the state may still be that of the tokens before.
  virtual void Extend(const StepInput&, PolicyState&) const {}

  // The plan of one KV head's block of queries; the sequences' states know every token up to the block's
  // last. Called from several threads at once, each with a scratch of its own, while plans of other heads
  // run.
  virtual void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                         PolicyScratch& scratch, Plan& plan) const = 0;

  // Where Observes: after the plans of a step ran, with the softmax's maxima and sums.
  virtual bool Observes() const { return false; }
  virtual void Observe(const StepInput&, PolicyState&) const {}

  // One line for the user where n tokens are more than the method, or the model, does well; empty else.
  virtual std::string Warning(int64_t n_tokens) const = 0;
  // One line that says what happens at which length ("LongHeads selects from token 8192 on ...").
  virtual std::string Explain() const = 0;

  // Of a sequence's n-th token, of a long prompt or generated, on average over the place of n in its chunk,
  // block or step. The cost that `longheads info` tells; full attention's where a method does not say. A
  // prompt's tokens come after half a step of others, on average.
  virtual AttentionWork Work(int64_t n, Phase, const HeadShape& shape) const {
    return {.attended = static_cast<double>(shape.n_heads * n)};
  }

  // Bytes of state for n tokens of one layer, for the memory plan; those of them that calls write anew
  // instead of adding to them: forks do not share these for long; and of what calls only add to the last
  // block, of which a fork has one of its own as soon as it goes on.
  virtual uint64_t StateBytes(int64_t) const { return 0; }
  virtual uint64_t RewrittenBytes(int64_t) const { return 0; }
  virtual uint64_t LastBlockBytes(int64_t) const { return 0; }
};

}  // namespace longheads
