// Counts, over blocks of a prompt's tokens, how many of them saw and chose each stretch of the text, for
// every layer and head: what a prompt's selections come to where they are too many to be kept one by one.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "attention/executor.h"
#include "attention/selection.h"

namespace longheads {

// Of one query head, in one layer; columns ascending.
struct HeadCounts {
  struct Seen {
    int32_t column = 0;
    int32_t tokens = 0;  // that saw some key of the column
    bool operator==(const Seen&) const = default;
  };
  struct Taken {
    int32_t column = 0;
    int32_t times = 0;                         // that a token took a block which begins in the column
    float mean_score = BlockChoice::kNoScore;  // over those that came with one
  };
  std::vector<Seen> seen;
  std::vector<Taken> taken;
};

struct PromptCounts {
  int64_t token_begin = 0;  // tokens at positions [token_begin, token_end)
  int64_t token_end = 0;
  std::vector<HeadCounts> heads;  // [n_layers, n_heads]
};

// Columns of at least this many tokens, made of whole blocks.
BlockGrid CountColumns(const std::optional<BlockGrid>& blocks, int64_t least_tokens = 128);
// The column of a key: what lies before the first block, if anything does, is column 0.
inline int64_t CountColumn(const BlockGrid& columns, int64_t key) {
  if (key < columns.first) return 0;
  return (key - columns.first) / columns.tokens + (columns.first > 0 ? 1 : 0);
}

class SelectionCounter : public SelectionObserver {
 public:
  using OnCounts = std::function<void(const PromptCounts&)>;

  struct Options {
    int64_t n_layers = 0;
    HeadShape shape;
    int64_t end = 0;      // tokens before this position are counted
    int64_t block = 256;  // tokens that are counted together
    BlockGrid blocks;     // that choices are about
    BlockGrid columns;
  };
  // Of one sequence, in a batch the first. `on_counts` gets each block of tokens once all layers have it, in
  // the order of the text.
  SelectionCounter(const Options& options, OnCounts on_counts);
  ~SelectionCounter() override;

  void OnChoice(const BlockChoice& choice) override;
  void OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) override;
  void OnLayerDone(int64_t layer) override;

 private:
  struct Open;

  Open& At(int64_t token_block);
  PromptCounts CountsOf(const Open& open) const;

  Options options_;
  OnCounts on_counts_;
  std::mutex mutex_;
  std::map<int64_t, Open> open_;  // by number
};

}  // namespace longheads
