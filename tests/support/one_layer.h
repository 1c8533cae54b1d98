// Drives one layer of attention by hand, as the model does: stores rotated keys, extends the policy's state,
// plans and runs; and remembers what every query attended to, read off the plans.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attention/runner.h"
#include "attention/state_archive.h"
#include "base/thread_pool.h"
#include "rope/frequencies.h"

namespace longheads {

// Projections of a text, unrotated.
struct LayerInputs {
  HeadShape shape;
  int64_t n = 0;
  std::vector<float> q;  // [n, n_heads, head_dim]
  std::vector<float> k;  // [n, n_kv_heads, head_dim]
  std::vector<float> v;  // [n, n_kv_heads, head_dim]
};

// q and k of half-split pairs brought to interleaved ones; v stays.
LayerInputs Interleaved(const LayerInputs& half_split);

struct LayerSetup {
  const Policy& policy;
  const AttentionKernels& kernels;
  HeadShape shape;
  PairLayout layout = PairLayout::kHalfSplit;
  double base = 10000;
  std::optional<Frequencies> frequencies = {};  // a schedule's, in the place of the base's
  int64_t max_tokens = 0;
  KvType kv = KvType::kF32;
  int n_threads = 1;
  int64_t layer = 0;                         // which one of the model it is
  const LayerInputs* first_layer = nullptr;  // of layer 0, where another layer's policy looks there
  bool on_disk = false;                      // pages may leave memory
  bool near_keys = true;                     // else keys are turned as they are read
};

// What a query row saw.
struct SeenRow {
  std::vector<std::pair<int32_t, int32_t>> keys;  // (key, distance in the plane's units), as planned
  std::vector<int64_t> segments;                  // where the segments begin that list the row
  std::vector<int32_t> rotations;                 // x, per segment
};

// One sequence in one layer.
class OneLayer {
 public:
  explicit OneLayer(const LayerSetup& setup);

  OneLayer Fork() const;
  int64_t RewindPoint(int64_t n) const { return state_->RewindPoint(n); }
  void Truncate(int64_t m);

  // The policy's state as bytes, and a sequence that goes on from the bytes of its saves; the store is a
  // fork's.
  SavedState Save(int64_t from) const { return SaveState(*state_, from, size()); }
  Result<OneLayer> Restored(std::span<const SavedState> saves) const;

  // The next n tokens of the inputs in one block; queries attend in groups of query_block.
  void Prefill(const LayerInputs& inputs, int64_t n, int64_t query_block = 1 << 20);
  void Decode(const LayerInputs& inputs);
  // The next token of each sequence in one batch. All have the same setup.
  static void DecodeTogether(std::span<OneLayer* const> sequences,
                             std::span<const LayerInputs* const> inputs);

  int64_t size() const { return kv_.size(); }
  const PolicyState& state() const { return *state_; }
  AttentionCounts counts() const { return environment_->runner->counts(); }
  const std::vector<float>& out() const { return out_; }  // [size, n_heads, head_dim]
  const SeenRow& seen(int64_t token, int64_t head) const {
    return seen_[static_cast<std::size_t>(token * environment_->shape.n_heads + head)];
  }

  // A change to every plan before it runs: to show that a comparison would notice.
  std::function<void(const QueryBlock&, Plan&)> mutation;
  // Hears what the runner tells, of plans what is left of them after the mutation.
  SelectionObserver* observer = nullptr;

 private:
  // What sequences share.
  struct Environment {
    const Policy& policy;
    HeadShape shape;
    RotationTable rotations;
    float scale;
    float amplitude;
    int64_t layer;
    const LayerInputs* first_inputs;
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<AttentionRunner> runner;
  };

  OneLayer(std::shared_ptr<Environment> environment, KvSequence kv, std::unique_ptr<PolicyState> state,
           std::unique_ptr<NearKeys> near);
  AttendingSequence Attending();
  // Room for the outputs of tokens up to n.
  void Reserve(int64_t n);
  // What the rows of one sequence of a block see.
  void Remember(const QueryBlock& block, int32_t sequence, const Plan& plan);

  std::shared_ptr<Environment> environment_;
  KvSequence kv_;
  std::unique_ptr<PolicyState> state_;
  std::unique_ptr<NearKeys> near_;
  std::unique_ptr<OneLayer> first_;  // layer 0, which goes ahead by the same steps
  std::vector<float> out_;
  std::vector<SeenRow> seen_;  // [size, n_heads]
};

}  // namespace longheads
