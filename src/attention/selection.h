// What those hear who want to see what heads choose and attend to: choices as a policy makes them, and plans
// before they run. Nothing is copied or computed where nobody listens. What is kept of it is for the listener
// (selection_recorder.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "attention/plan.h"

namespace longheads {

class Policy;

// Prompt tokens and generated tokens: some definitions differ between them.
enum class Phase : uint8_t { kPrefill, kDecode };

// What a method chooses among: block b is keys [first + b tokens, first + (b + 1) tokens), cut to the text.
struct BlockGrid {
  int64_t first = 0;
  int64_t tokens = 1;

  int64_t Begin(int64_t block) const { return first + block * tokens; }
  bool operator==(const BlockGrid&) const = default;
};

// One choice among blocks of a text. Blocks that a method takes without asking (the first, the newest) are no
// candidates: they are in the plan alone.
struct BlockChoice {
  static constexpr float kNoScore = std::numeric_limits<float>::quiet_NaN();

  int64_t layer = 0;
  int32_t sequence = 0;  // index into the batch's sequences
  // Who sees what was taken: tokens at these positions, these query heads.
  int64_t token_begin = 0;
  int64_t token_end = 0;
  int64_t head_begin = 0;
  int64_t head_end = 0;
  // Candidates are blocks [first, first + n_candidates).
  int64_t first = 0;
  int64_t n_candidates = 0;
  std::span<const int32_t> taken;  // ascending
  // By which they were chosen: of all candidates where the method has them at hand, or of the taken alone.
  // Both empty: the choice was not by scores, or there were no more candidates than places.
  std::span<const float> scores = {};
  std::span<const float> taken_scores = {};

  float score(std::size_t i) const {  // of taken[i]
    if (!taken_scores.empty()) return taken_scores[i];
    return scores.empty() ? kNoScore : scores[static_cast<std::size_t>(taken[i] - first)];
  }
};

// Of one query head of a block's token, among the first n blocks.
inline BlockChoice ChoiceOfHead(const QueryBlock& block, std::size_t token, int64_t head,
                                int64_t n_candidates, std::span<const int32_t> taken) {
  const QueryToken& query = block.tokens[token];
  return {.layer = block.layer,
          .sequence = query.sequence,
          .token_begin = query.position,
          .token_end = query.position + 1,
          .head_begin = head,
          .head_end = head + 1,
          .n_candidates = n_candidates,
          .taken = taken};
}

class SelectionObserver {
 public:
  virtual ~SelectionObserver() = default;

  // A token's choices in a layer come before its plans, one for each KV head. Both are called from several
  // threads at once.
  virtual void OnChoice(const BlockChoice&) {}
  // It may change the plan, and with it the result: tests do.
  virtual void OnPlan(const Policy&, const QueryBlock&, Phase, Plan&) {}
  // All plans of some tokens have run in this layer; by one thread. A call that fails does not get there.
  virtual void OnLayerDone(int64_t) {}
};

}  // namespace longheads
