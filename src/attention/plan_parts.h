// What the plans of most methods are made of: runs of a block's tokens of one sequence, a segment for all
// rows of a run that see some of its keys, and the log-n factor of logits. Which keys, and at which distance,
// is for each method to say.
#pragma once

#include <algorithm>
#include <cmath>

#include "attention/plan.h"

namespace longheads {

// Tokens [begin, end) of a block, all of one sequence.
struct TokenRun {
  int32_t sequence;
  std::size_t begin;
  std::size_t end;
};

// Calls visit(run) for a block's runs, in order.
template <typename Visit>
void ForEachRun(const QueryBlock& block, const Visit& visit) {
  const std::size_t n = block.tokens.size();
  for (std::size_t begin = 0, end = 0; begin < n; begin = end) {
    const int32_t sequence = block.tokens[begin].sequence;
    while (end < n && block.tokens[end].sequence == sequence) ++end;
    visit(TokenRun{.sequence = sequence, .begin = begin, .end = end});
  }
}

// The end of a segment's keys where causality alone ends them.
inline constexpr int64_t kNewestKey = PlanSegment::kAnyDistance;

// Adds a segment of the run's sequence, whose key range and distances say what may be seen: cut to the keys
// and the rows that do see something. A token at position i is rotated by x_of(i).
template <typename Rotation>
void AddSegment(const QueryBlock& block, const TokenRun& run, int64_t group, PlanSegment segment,
                const Rotation& x_of, Plan& plan) {
  const int64_t key_begin = segment.key_begin;
  const int64_t key_end = segment.key_end;
  segment.sequence = run.sequence;
  segment.row_begin = static_cast<int64_t>(plan.rows.size());
  segment.key_begin = key_end;
  segment.key_end = key_begin;
  for (std::size_t t = run.begin; t < run.end; ++t) {
    const int64_t position = block.tokens[t].position;
    const int64_t first = std::max(key_begin, position - segment.max_distance + 1);
    const int64_t last = std::min(key_end, position - segment.min_distance + 1);
    if (first >= last) continue;
    segment.key_begin = std::min(segment.key_begin, first);
    segment.key_end = std::max(segment.key_end, last);
    const auto x = static_cast<int32_t>(x_of(position));
    for (int64_t g = 0; g < group; ++g) {
      plan.rows.push_back({static_cast<int32_t>(static_cast<int64_t>(t) * group + g), x});
    }
  }
  segment.row_end = static_cast<int64_t>(plan.rows.size());
  if (segment.row_begin < segment.row_end) plan.segments.push_back(segment);
}

// Multiplies the logits of the token at position i by max(1, ln(i + 1) / ln(base)), base >= 2: attention over
// more keys than the model was trained with stays as sharp as it was (Su Jianlin's log-n scale).
inline void AddLogNScales(const QueryBlock& block, int64_t base, Plan& plan) {
  for (const QueryToken& token : block.tokens) {
    const double factor =
        std::log(static_cast<double>(token.position + 1)) / std::log(static_cast<double>(base));
    plan.token_scales.push_back(static_cast<float>(std::max(1.0, factor)));
  }
}

}  // namespace longheads
