#include "attention/selection_recorder.h"

#include <algorithm>

namespace longheads {
namespace {

// Ascending, joined where they overlap or touch.
void Join(std::vector<KeyRange>& runs) {
  std::sort(runs.begin(), runs.end(), [](const KeyRange& a, const KeyRange& b) { return a.begin < b.begin; });
  std::size_t n = 0;
  for (const KeyRange& run : runs) {
    if (n > 0 && run.begin <= runs[n - 1].end) {
      runs[n - 1].end = std::max(runs[n - 1].end, run.end);
    } else {
      runs[n++] = run;
    }
  }
  runs.resize(n);
}

}  // namespace

void ReadSeen(const QueryBlock& block, const Plan& plan, std::size_t token, std::span<HeadSelection> heads) {
  const int64_t group = static_cast<int64_t>(heads.size());
  const int64_t position = block.tokens[token].position;
  for (HeadSelection& head : heads) head.seen.clear();
  for (const PlanSegment& segment : plan.segments) {
    for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
      const int64_t row = plan.rows[static_cast<std::size_t>(r)].row;
      if (static_cast<std::size_t>(row / group) != token) continue;
      std::vector<KeyRange>& seen = heads[static_cast<std::size_t>(row % group)].seen;
      if (segment.as_key != PlanSegment::kNoKey) seen.push_back({segment.as_key, segment.as_key + 1});
      if (segment.listed) {
        for (int64_t at = segment.key_begin; at < segment.key_end; ++at) {
          const int64_t key = plan.keys[static_cast<std::size_t>(at)];
          if (!seen.empty() && seen.back().end == key) {
            ++seen.back().end;
          } else {
            seen.push_back({key, key + 1});
          }
        }
        continue;
      }
      const int64_t begin = std::max(segment.key_begin, position - segment.max_distance + 1);
      const int64_t end = std::min(segment.key_end, position - segment.min_distance + 1);
      if (begin < end) seen.push_back({begin, end});
    }
  }
  for (HeadSelection& head : heads) Join(head.seen);
}

SelectionRecorder::SelectionRecorder(int64_t n_layers, const HeadShape& shape, int64_t from, OnToken on_token)
    : n_layers_(n_layers), shape_(shape), from_(from), on_token_(std::move(on_token)) {}

void SelectionRecorder::Enter(int64_t layer) {
  if (layer == layer_) return;
  layer_ = layer;
  std::erase_if(open_, [&](const auto& entry) {
    return std::ranges::any_of(entry.second.layer, [&](int64_t planned) { return planned != layer - 1; });
  });
}

// Only this is locked: heads' entries are their threads' own, and none is dropped before its layer is done. A
// lock held for longer has threads sleep, which takes more time than recording.
SelectionRecorder::Open& SelectionRecorder::At(int64_t position, int64_t layer) {
  const std::scoped_lock lock(mutex_);
  Enter(layer);
  Open& open = open_[position];
  if (open.selection.heads.empty()) {
    open.layer.assign(static_cast<std::size_t>(shape_.n_kv_heads), -1);
    open.selection.position = position;
    open.selection.heads.resize(static_cast<std::size_t>(n_layers_ * shape_.n_heads));
  }
  return open;
}

void SelectionRecorder::OnChoice(const BlockChoice& choice) {
  if (choice.sequence != 0 || choice.token_end <= from_) return;
  for (int64_t position = std::max(choice.token_begin, from_); position < choice.token_end; ++position) {
    TokenSelection& selection = At(position, choice.layer).selection;
    for (int64_t head = choice.head_begin; head < choice.head_end; ++head) {
      HeadSelection& to = selection.heads[static_cast<std::size_t>(choice.layer * shape_.n_heads + head)];
      to.taken.clear();
      for (std::size_t i = 0; i < choice.taken.size(); ++i) {
        to.taken.push_back({choice.taken[i], choice.score(i)});
      }
    }
  }
}

void SelectionRecorder::OnPlan(const Policy&, const QueryBlock& block, Phase phase, Plan& plan) {
  const auto wanted = [&](const QueryToken& token) { return token.sequence == 0 && token.position >= from_; };
  if (std::ranges::none_of(block.tokens, wanted)) return;
  for (std::size_t t = 0; t < block.tokens.size(); ++t) {
    if (!wanted(block.tokens[t])) continue;
    Open& open = At(block.tokens[t].position, block.layer);
    if (block.kv_head == 0) open.selection.phase = phase;
    const std::size_t first =
        static_cast<std::size_t>(block.layer * shape_.n_heads + block.kv_head * shape_.group());
    ReadSeen(block, plan, t,
             std::span(open.selection.heads).subspan(first, static_cast<std::size_t>(shape_.group())));
    open.layer[static_cast<std::size_t>(block.kv_head)] = block.layer;
  }
}

void SelectionRecorder::OnLayerDone(int64_t layer) {
  if (layer + 1 < n_layers_) return;
  std::erase_if(open_, [&](const auto& entry) {
    const Open& open = entry.second;
    if (std::ranges::any_of(open.layer, [&](int64_t planned) { return planned != layer; })) return false;
    on_token_(open.selection);
    return true;
  });
}

}  // namespace longheads
