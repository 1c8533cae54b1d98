#include "attention/selection_counter.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace longheads {
namespace {

// Which columns each row of a plan sees something of: a bit for each, since it may be in several segments.
class SeenColumns {
 public:
  SeenColumns(const QueryBlock& block, const Plan& plan, int64_t group, const BlockGrid& columns) {
    int64_t last = 0;
    for (const QueryToken& token : block.tokens) last = std::max(last, token.position);
    n_words_ = CountColumn(columns, last) / 64 + 1;
    bits_.resize(block.tokens.size() * static_cast<std::size_t>(group * n_words_));
    std::vector<int64_t> listed;
    for (const PlanSegment& segment : plan.segments) {
      listed.clear();
      for (int64_t at = segment.key_begin; segment.listed && at < segment.key_end; ++at) {
        const int64_t column = CountColumn(columns, plan.keys[static_cast<std::size_t>(at)]);
        if (listed.empty() || listed.back() != column) listed.push_back(column);
      }
      for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
        const int64_t row = plan.rows[static_cast<std::size_t>(r)].row;
        const int64_t position = block.tokens[static_cast<std::size_t>(row / group)].position;
        if (segment.as_key != PlanSegment::kNoKey) Set(row, CountColumn(columns, segment.as_key));
        for (const int64_t column : listed) Set(row, column);
        if (segment.listed) continue;
        const int64_t begin = std::max(segment.key_begin, position - segment.max_distance + 1);
        const int64_t end = std::min(segment.key_end, position - segment.min_distance + 1);
        if (begin >= end) continue;
        const int64_t last_column = CountColumn(columns, end - 1);
        for (int64_t column = CountColumn(columns, begin); column <= last_column; ++column) Set(row, column);
      }
    }
  }

  // Adds 1 to counts[column] for each column that the row sees something of, of the first n.
  void AddTo(int64_t row, int64_t n, int32_t* counts) const {
    for (int64_t word = 0; word < n_words_; ++word) {
      uint64_t bits = bits_[static_cast<std::size_t>(row * n_words_ + word)];
      for (; bits != 0; bits &= bits - 1) {
        const int64_t column = word * 64 + std::countr_zero(bits);
        if (column >= n) return;
        ++counts[column];
      }
    }
  }

 private:
  void Set(int64_t row, int64_t column) {
    bits_[static_cast<std::size_t>(row * n_words_ + column / 64)] |= uint64_t{1} << (column % 64);
  }

  int64_t n_words_ = 0;
  std::vector<uint64_t> bits_;  // [rows, n_words]
};

}  // namespace

BlockGrid CountColumns(const std::optional<BlockGrid>& blocks, int64_t least_tokens) {
  if (!blocks) return {.first = 0, .tokens = 2 * least_tokens};
  const int64_t together = (least_tokens + blocks->tokens - 1) / blocks->tokens;
  return {.first = blocks->first, .tokens = together * blocks->tokens};
}

// A block of tokens whose layers are not all done; dense while it is open.
struct SelectionCounter::Open {
  struct Taken {
    int32_t times = 0;
    int32_t scored = 0;
    double sum = 0;
  };
  int64_t token_begin = 0;
  int64_t token_end = 0;
  int64_t n_columns = 0;
  int64_t to_come = 0;        // (token, KV head, layer)s
  std::vector<int32_t> seen;  // [n_layers, n_heads, n_columns]
  std::vector<Taken> taken;   // the same
};

SelectionCounter::SelectionCounter(const Options& options, OnCounts on_counts)
    : options_(options), on_counts_(std::move(on_counts)) {
  LH_CHECK(options.block > 0 && options.columns.tokens > 0);
}

SelectionCounter::~SelectionCounter() = default;

SelectionCounter::Open& SelectionCounter::At(int64_t token_block) {
  Open& open = open_[token_block];
  if (open.n_columns > 0) return open;
  open.token_begin = token_block * options_.block;
  open.token_end = std::min(options_.end, open.token_begin + options_.block);
  open.n_columns = CountColumn(options_.columns, open.token_end - 1) + 1;
  open.to_come = (open.token_end - open.token_begin) * options_.n_layers * options_.shape.n_kv_heads;
  const std::size_t n = static_cast<std::size_t>(options_.n_layers * options_.shape.n_heads * open.n_columns);
  open.seen.resize(n);
  open.taken.resize(n);
  return open;
}

void SelectionCounter::OnChoice(const BlockChoice& choice) {
  if (choice.sequence != 0) return;
  const std::scoped_lock lock(mutex_);
  const int64_t end = std::min(choice.token_end, options_.end);
  for (int64_t begin = choice.token_begin, next; begin < end; begin = next) {
    Open& open = At(begin / options_.block);
    next = std::min(end, open.token_end);
    const int32_t n_tokens = static_cast<int32_t>(next - begin);
    for (std::size_t i = 0; i < choice.taken.size(); ++i) {
      const int64_t column = CountColumn(options_.columns, options_.blocks.Begin(choice.taken[i]));
      const float score = choice.score(i);
      for (int64_t head = choice.head_begin; head < choice.head_end; ++head) {
        const int64_t row = choice.layer * options_.shape.n_heads + head;
        Open::Taken& taken = open.taken[static_cast<std::size_t>(row * open.n_columns + column)];
        taken.times += n_tokens;
        if (std::isnan(score)) continue;
        taken.scored += n_tokens;
        taken.sum += static_cast<double>(n_tokens) * static_cast<double>(score);
      }
    }
  }
}

void SelectionCounter::OnPlan(const Policy&, const QueryBlock& block, Phase, Plan& plan) {
  const auto counted = [&](const QueryToken& token) {
    return token.sequence == 0 && token.position < options_.end;
  };
  if (std::ranges::none_of(block.tokens, counted)) return;

  const int64_t group = options_.shape.group();
  const SeenColumns rows(block, plan, group, options_.columns);
  const std::scoped_lock lock(mutex_);
  for (std::size_t t = 0; t < block.tokens.size(); ++t) {
    if (!counted(block.tokens[t])) continue;
    Open& open = At(block.tokens[t].position / options_.block);
    --open.to_come;
    for (int64_t g = 0; g < group; ++g) {
      const int64_t row = static_cast<int64_t>(t) * group + g;
      const int64_t head = block.layer * options_.shape.n_heads + block.kv_head * group + g;
      rows.AddTo(row, open.n_columns, open.seen.data() + head * open.n_columns);
    }
  }
}

void SelectionCounter::OnLayerDone(int64_t layer) {
  if (layer + 1 < options_.n_layers) return;
  while (!open_.empty() && open_.begin()->second.to_come == 0) {
    on_counts_(CountsOf(open_.begin()->second));
    open_.erase(open_.begin());
  }
}

PromptCounts SelectionCounter::CountsOf(const Open& open) const {
  PromptCounts counts{.token_begin = open.token_begin, .token_end = open.token_end, .heads = {}};
  counts.heads.resize(static_cast<std::size_t>(options_.n_layers * options_.shape.n_heads));
  std::size_t at = 0;
  for (HeadCounts& head : counts.heads) {
    for (int32_t column = 0; column < open.n_columns; ++column, ++at) {
      if (open.seen[at] > 0) head.seen.push_back({column, open.seen[at]});
      const Open::Taken& taken = open.taken[at];
      if (taken.times == 0) continue;
      const float mean = taken.scored == 0
                             ? BlockChoice::kNoScore
                             : static_cast<float>(taken.sum / static_cast<double>(taken.scored));
      head.taken.push_back({column, taken.times, mean});
    }
  }
  return counts;
}

}  // namespace longheads
