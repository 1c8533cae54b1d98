// What heads choose, counted (LongHeads, Table 3; methods with blocks that heads choose among). While a model
// answers, every choice of every layer and head is counted by block:
// - cover: the share of the text's blocks that some head of some layer sees;
// - gini: how unevenly they are seen, 0 (all alike) to 1;
// - top-1 and top-5 hits: whether a block with the pass key is among those that come first, by the sum of
// their
//   scores over layers, heads and tokens, or by how often they are chosen. Blocks that are seen without being
//   chosen (the first, the newest) have no rank.
// The text is a pass key's prompt, or a haystack with the request to sum it up (then there is nothing to
// hit).
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/selection_recorder.h"
#include "eval/haystack.h"
#include "eval/passkey_prompt.h"
#include "eval/task.h"
#include "eval/task_registry.h"

namespace longheads {

// sum over a, b of |x_a - x_b| / (2 M sum x) of M counts; 0 where all are 0.
double GiniCoefficient(std::span<const int64_t> counts);

// Counts and scores by block, from what an observer hears. The sums do not depend on threads.
class BlockTally : public SelectionObserver {
 public:
  BlockTally(int64_t n_layers, const HeadShape& shape, const BlockGrid& blocks, int64_t n_blocks);

  void OnChoice(const BlockChoice& choice) override;
  void OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) override;

  // [n_blocks]: times a head of a layer saw some key of the block; took it by choice; and the sums of its
  // scores where it was a candidate, -infinity where it never was.
  std::vector<int64_t> seen() const;
  std::vector<int64_t> taken() const;
  std::vector<double> scores() const;
  // Whether every choice came with scores of all candidates.
  bool has_scores() const { return has_scores_; }

 private:
  struct Cell {
    int64_t seen = 0, taken = 0;
    int64_t candidate = 0;
    double score = 0;
  };
  // Of one layer and query head [n_blocks].
  std::span<Cell> Of(int64_t layer, int64_t head);

  HeadShape shape_;
  BlockGrid blocks_;
  std::size_t n_blocks_;
  std::mutex mutex_;
  std::vector<Cell> cells_;  // [n_layers, n_heads, n_blocks]
  bool has_scores_ = true;
};

// The rank of the best of `wanted` by value, larger first and then the lower index: 1 for the first; 0 where
// none of them has a rank. Blocks whose `ranked` is 0 have none.
int64_t BestRank(std::span<const double> values, std::span<const int64_t> ranked,
                 std::span<const int64_t> wanted);

// The blocks that hold tokens in which `text` stands, ascending; `tokens` are a prompt's as the model reads
// them.
std::vector<int64_t> BlocksOf(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                              const std::string& text, const BlockGrid& blocks);

struct SelectionOptions {
  std::vector<int64_t> lengths;
  int64_t n_samples = 5;
  bool summary = false;
  int64_t n_decode = 0;  // 0: a pass key's answer, or 100 of a summary
  uint64_t seed = 0;
};

class SelectionTask : public Task {
 public:
  // The haystack is there for summaries.
  SelectionTask(std::optional<Haystack> haystack, SelectionOptions options);

  std::string name() const override { return "selection"; }
  MeasureName measure() const override { return {.name = "cover"}; }
  std::vector<std::string> shown() const override;
  Json Setup() const override;
  const std::vector<Sample>& samples() const override { return samples_; }
  Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const override;
  Result<SampleOutcome> Measure(const TaskContext& context, const Sample& sample) override;

 private:
  struct Asked {
    Prompt prompt = {};
    std::string key = {};  // empty: nothing to hit
    int64_t max_new = 0;
  };
  Result<Asked> Ask(const Engine& engine, PromptForm form, const Sample& sample,
                    const CancelToken* cancel) const;

  std::optional<Haystack> haystack_;
  SelectionOptions options_;
  std::vector<Sample> samples_;
};

TaskKind SelectionKind();

}  // namespace longheads
