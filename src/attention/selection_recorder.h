// Keeps what every head of single tokens saw and chose, token by token, from what a SelectionObserver hears;
// whether that is written to a file or counted is for whoever gets the tokens.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "attention/executor.h"
#include "attention/selection.h"

namespace longheads {

struct KeyRange {  // keys [begin, end)
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const KeyRange&) const = default;
};

struct TakenBlock {
  int32_t block = 0;
  float score = BlockChoice::kNoScore;
};

// Of one query head of one token, in one layer.
struct HeadSelection {
  std::vector<KeyRange> seen;     // read off the plan that ran: ascending, with keys between them
  std::vector<TakenBlock> taken;  // by choice, of the policy's Blocks(), ascending
};

struct TokenSelection {
  int64_t position = 0;  // of the token, as the model counts (Insertion)
  Phase phase = Phase::kPrefill;
  std::vector<HeadSelection> heads;  // [n_layers, n_heads]
};

// What the rows of a block's token see: heads [group], the query heads of block.kv_head.
void ReadSeen(const QueryBlock& block, const Plan& plan, std::size_t token, std::span<HeadSelection> heads);

class SelectionRecorder : public SelectionObserver {
 public:
  using OnToken = std::function<void(const TokenSelection&)>;

  // Tokens at positions from `from` on, of one sequence: in a batch the first. `on_token` gets each of them
  // once all layers have it, in the order of the text.
  SelectionRecorder(int64_t n_layers, const HeadShape& shape, int64_t from, OnToken on_token);

  void OnChoice(const BlockChoice& choice) override;
  void OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) override;
  void OnLayerDone(int64_t layer) override;

 private:
  struct Open {
    TokenSelection selection;
    std::vector<int64_t> layer;  // that each KV head has planned last; -1: none
  };

  // Those open tokens that go on in this layer; of others the call failed, and nothing will follow.
  void Enter(int64_t layer);
  Open& At(int64_t position, int64_t layer);

  int64_t n_layers_;
  HeadShape shape_;
  int64_t from_;
  OnToken on_token_;
  std::mutex mutex_;
  int64_t layer_ = 0;
  std::map<int64_t, Open> open_;  // by position
};

}  // namespace longheads
