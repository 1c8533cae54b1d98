#include "attention/executor.h"

#include <algorithm>

namespace longheads {

struct AttentionExecutor::Scratch {
  std::vector<float> states;  // [rows, StateFloats]
  std::vector<RotatedRow> rows;
  Buffer<float> page;       // a page expanded to float32
  Buffer<float> workspace;  // the kernel's own
};

// A part of a segment inside one page, with its rows' partial states.
struct AttentionExecutor::FewItem {
  const QueryBlock* block;
  const PlanSegment* segment;
  const Plan* plan;
  int64_t key_begin;
  int64_t key_end;
  int64_t state;  // offset into states_
};

namespace {

// Collects the rows of `segment` that see a key of [key_begin, key_end), with state(k) for the segment's k-th
// row.
template <typename StateOf>
void CollectRows(const QueryBlock& block, const HeadShape& shape, const Plan& plan,
                 const PlanSegment& segment, int64_t key_begin, int64_t key_end, const StateOf& state_of,
                 std::vector<RotatedRow>& rows) {
  const int64_t group = shape.group();
  const int64_t page_begin = key_begin / kPageTokens * kPageTokens;
  rows.clear();
  for (int64_t k = segment.row_begin; k < segment.row_end; ++k) {
    const PlanRow& entry = plan.rows[static_cast<std::size_t>(k)];
    const QueryToken& token = block.tokens[static_cast<std::size_t>(entry.row / group)];
    const int64_t begin = std::max(key_begin, token.position - segment.max_distance + 1);
    const int64_t end = std::min(key_end, token.position - segment.min_distance + 1);
    if (begin >= end) continue;
    const int64_t head = block.kv_head * group + entry.row % group;
    rows.push_back({.q = token.q + head * shape.head_dim,
                    .x = entry.x,
                    .key_begin = static_cast<int32_t>(begin - page_begin),
                    .key_end = static_cast<int32_t>(end - page_begin),
                    .state = state_of(k)});
  }
}

KeyRun RunOf(const KvSequence::Floats& page, int64_t key_end, int64_t head_dim) {
  return {.k = page.k,
          .v = page.v,
          .v_stride = kPageTokens,
          .n_keys = (key_end - 1) % kPageTokens + 1,
          .head_dim = head_dim};
}

}  // namespace

AttentionExecutor::AttentionExecutor(const AttentionKernels& kernels, const HeadShape& shape, int n_threads)
    : shape_(shape), kernels_(kernels) {
  for (int thread = 0; thread < n_threads; ++thread) {
    auto scratch = std::make_unique<Scratch>();
    scratch->page.Reset(2 * kPageTokens * shape.head_dim);
    scratch->workspace.Reset(AttendWorkspace(kernels.row_tile, shape.head_dim));
    scratch_.push_back(std::move(scratch));
  }
}

AttentionExecutor::~AttentionExecutor() = default;

void AttentionExecutor::RunBlock(const QueryBlock& block, const Plan& plan, const RotationTable& rotations,
                                 float scale, int thread, const CancelToken* cancel) {
  Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const int64_t n_rows = static_cast<int64_t>(block.tokens.size()) * group;
  scratch.states.resize(static_cast<std::size_t>(n_rows * StateFloats(d)));
  float* const states = scratch.states.data();
  for (int64_t row = 0; row < n_rows; ++row) ClearState(states + row * StateFloats(d), d);

  for (const PlanSegment& segment : plan.segments) {
    const KvSequence& sequence = *block.sequences[static_cast<std::size_t>(segment.sequence)];
    for (int64_t begin = segment.key_begin; begin < segment.key_end;) {
      if (cancel != nullptr && cancel->cancelled()) return;
      const int64_t page = begin / kPageTokens;
      const int64_t end = std::min(segment.key_end, (page + 1) * kPageTokens);
      const auto state_of = [&](int64_t k) {
        return states + plan.rows[static_cast<std::size_t>(k)].row * StateFloats(d);
      };
      CollectRows(block, shape_, plan, segment, begin, end, state_of, scratch.rows);
      if (!scratch.rows.empty()) {
        const KeyRun run =
            RunOf(sequence.Read(block.layer, block.kv_head, page, scratch.page.data()), end, d);
        kernels_.attend(scratch.rows, run, rotations, scale, scratch.workspace.data());
      }
      begin = end;
    }
  }
  for (int64_t row = 0; row < n_rows; ++row) {
    const QueryToken& token = block.tokens[static_cast<std::size_t>(row / group)];
    FinishState(states + row * StateFloats(d), d, token.out + (block.kv_head * group + row % group) * d);
  }
}

void AttentionExecutor::RunFew(std::span<const QueryBlock> blocks, std::span<const Plan> plans,
                               const RotationTable& rotations, float scale, ThreadPool& pool) {
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const int64_t state_floats = StateFloats(d);
  items_.clear();
  int64_t n_states = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (const PlanSegment& segment : plans[b].segments) {
      for (int64_t begin = segment.key_begin; begin < segment.key_end;) {
        const int64_t end = std::min(segment.key_end, (begin / kPageTokens + 1) * kPageTokens);
        items_.push_back({&blocks[b], &segment, &plans[b], begin, end, n_states * state_floats});
        n_states += segment.row_end - segment.row_begin;
        begin = end;
      }
    }
  }
  states_.resize(static_cast<std::size_t>(n_states * state_floats));

  pool.Run(static_cast<int64_t>(items_.size()), [&](int64_t index, int thread) {
    const FewItem& item = items_[static_cast<std::size_t>(index)];
    const PlanSegment& segment = *item.segment;
    Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
    const auto state_of = [&](int64_t k) {
      return states_.data() + item.state + (k - segment.row_begin) * state_floats;
    };
    for (int64_t k = segment.row_begin; k < segment.row_end; ++k) ClearState(state_of(k), d);
    CollectRows(*item.block, shape_, *item.plan, segment, item.key_begin, item.key_end, state_of,
                scratch.rows);
    if (scratch.rows.empty()) return;
    const KvSequence& sequence = *item.block->sequences[static_cast<std::size_t>(segment.sequence)];
    const int64_t page = item.key_begin / kPageTokens;
    const KeyRun run = RunOf(sequence.Read(item.block->layer, item.block->kv_head, page, scratch.page.data()),
                             item.key_end, d);
    kernels_.attend_few(scratch.rows, run, rotations, scale, scratch.workspace.data());
  });

  // Few rows: one after the other, in the order of the items, which is that of the keys.
  Scratch& scratch = *scratch_[0];
  std::size_t next = 0;
  for (const QueryBlock& block : blocks) {
    const int64_t n_rows = static_cast<int64_t>(block.tokens.size()) * group;
    scratch.states.resize(static_cast<std::size_t>(n_rows * state_floats));
    for (int64_t row = 0; row < n_rows; ++row) ClearState(scratch.states.data() + row * state_floats, d);
    for (; next < items_.size() && items_[next].block == &block; ++next) {
      const FewItem& item = items_[next];
      for (int64_t k = item.segment->row_begin; k < item.segment->row_end; ++k) {
        const int32_t row = item.plan->rows[static_cast<std::size_t>(k)].row;
        kernels_.merge(scratch.states.data() + row * state_floats,
                       states_.data() + item.state + (k - item.segment->row_begin) * state_floats, d);
      }
    }
    for (int64_t row = 0; row < n_rows; ++row) {
      const QueryToken& token = block.tokens[static_cast<std::size_t>(row / group)];
      FinishState(scratch.states.data() + row * state_floats, d,
                  token.out + (block.kv_head * group + row % group) * d);
    }
  }
}

}  // namespace longheads
