#include "attention/runner.h"

#include <algorithm>
#include <functional>

namespace longheads {
namespace {

// Whose queries of a KV head keep their partial states in a thread's L2 cache: 512 tokens x 3 heads x 66
// floats are 400 KiB.
constexpr int64_t kCachedTokens = 512;

// With n new tokens.
AttentionSequence ViewOf(const AttendingSequence& sequence, int64_t n) {
  return {.kv = sequence.kv,
          .state = sequence.state,
          .first_state = sequence.first_state,
          .rotations = sequence.rotations,
          .scale = sequence.scale,
          .amplitude = sequence.amplitude,
          .keys_unrotated = sequence.keys_unrotated,
          .near = sequence.near,
          .call_begin = sequence.kv->size() - sequence.n_preceding,
          .call_end = sequence.kv->size() + n + sequence.n_following};
}

}  // namespace

AttentionRunner::AttentionRunner(const AttentionKernels& attention, const VectorKernels& vector,
                                 const HeadShape& shape, ThreadPool& pool)
    : vector_(vector), shape_(shape), pool_(pool), executor_(attention, shape, pool.n_threads()) {
  plans_.resize(static_cast<std::size_t>(std::max<int64_t>(pool.n_threads(), shape.n_kv_heads)));
}

AttentionRunner::~AttentionRunner() = default;

AttentionRunner::PolicyWork& AttentionRunner::WorkOf(const Policy& policy) {
  for (PolicyWork& work : work_) {
    if (work.policy == &policy) return work;
  }
  PolicyWork work{.policy = &policy, .scratch = {}};
  for (int thread = 0; thread < pool_.n_threads(); ++thread) work.scratch.push_back(policy.NewScratch());
  work_.push_back(std::move(work));
  return work_.back();
}

// Rows [row_begin, row_begin + n) become the tokens from kv->size() + row_begin on.
void AttentionRunner::Store(const Policy& policy, const AttendingSequence& sequence,
                            const AttentionRows& rows, int64_t row_begin, int64_t n) {
  const int64_t d = shape_.head_dim;
  const int64_t kv_floats = shape_.n_kv_heads * d;
  const int64_t first = sequence.kv->size() + row_begin;
  const KeyPlane plane = sequence.keys_unrotated ? KeyPlane::Unrotated() : policy.Plane();
  const int64_t first_page = first / kPageTokens;
  const int64_t n_pages = (first + n - 1) / kPageTokens + 1 - first_page;
  pool_.Run(n_pages * shape_.n_kv_heads, [&](int64_t task, int) {
    const int64_t page = first_page + task / shape_.n_kv_heads, head = task % shape_.n_kv_heads;
    const int64_t begin = std::max(page * kPageTokens - first, int64_t{0});
    const int64_t end = std::min((page + 1) * kPageTokens - first, n);
    const auto at = [&](int64_t i) { return (row_begin + i) * kv_floats + head * d; };
    for (int64_t i = begin; i < end; ++i) {
      float* const key = rows.k + at(i);
      vector_.rotate(key, plane.Position(first + i), *sequence.rotations, key);
    }
    sequence.kv->Write(rows.layer, head, first + begin, end - begin, rows.k + at(begin), kv_floats,
                       rows.v + at(begin), kv_floats);
  });
}

void AttentionRunner::BringNear(const Policy& policy, const AttendingSequence& sequence, int64_t layer,
                                int64_t row_begin, int64_t n) {
  if (sequence.near == nullptr) return;
  const int64_t first = sequence.kv->size() + row_begin;
  sequence.near->Bring(*sequence.kv, layer, first, first + n, policy.Plane(), *sequence.rotations,
                       executor_.kernels(), pool_);
}

StepInput AttentionRunner::Step(const Policy& policy, Phase phase, const AttentionSequence& view,
                                int64_t index, const AttentionRows& rows, int64_t row, int64_t position,
                                int64_t n) {
  return {.layer = rows.layer,
          .phase = phase,
          .sequence = &view,
          .sequence_index = static_cast<int32_t>(index),
          .token_begin = position,
          .n_tokens = n,
          .q = rows.q + row * shape_.n_heads * shape_.head_dim,
          .softmax = nullptr,
          .executor = &executor_,
          .pool = &pool_,
          .scratch = WorkOf(policy).scratch,
          .observer = observer};
}

bool AttentionRunner::Prefill(const Policy& policy, const AttendingSequence& sequence,
                              const AttentionRows& rows, int64_t n, const CancelToken* cancel) {
  const auto cancelled = [cancel] { return Cancelled(cancel); };
  const AttentionSequence view = ViewOf(sequence, n);
  const int64_t step =
      std::min({n, policy.StepTokens(), sequence.near != nullptr ? sequence.near->step() : n});
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t n_here = std::min(step, n - begin);
    Store(policy, sequence, rows, begin, n_here);
    BringNear(policy, sequence, rows.layer, begin, n_here);
    if (!PrefillStep(policy, view, *sequence.state, rows, begin, n_here, cancel)) return false;
  }
  return !cancelled();
}

// Into how many blocks of nearly the same size, at most so many tokens, n are divided: some more than it
// takes where all threads get as many of them then, and they stay large enough to share keys.
int64_t AttentionRunner::EvenBlocks(int64_t n, int64_t most) const {
  constexpr int64_t kLeast = 32;
  const int64_t fewest = (n + most - 1) / most;
  for (int64_t blocks = fewest; n / blocks >= kLeast; ++blocks) {
    if (blocks * shape_.n_kv_heads % pool_.n_threads() == 0) return blocks;
  }
  return fewest;
}

bool AttentionRunner::PrefillStep(const Policy& policy, const AttentionSequence& view, PolicyState& state,
                                  const AttentionRows& rows, int64_t row_begin, int64_t n,
                                  const CancelToken* cancel) {
  const auto cancelled = [cancel] { return Cancelled(cancel); };
  const int64_t first = view.kv->size() + row_begin;
  StepInput step = Step(policy, Phase::kPrefill, view, /*index=*/0, rows, row_begin, first, n);
  step.cancel = cancel;
  policy.Extend(step, state);
  if (cancelled()) return false;

  const int64_t q_floats = shape_.n_heads * shape_.head_dim;
  const bool observes = policy.Observes();
  if (observes) softmax_.resize(static_cast<std::size_t>(n * shape_.n_heads * 2));
  tokens_.clear();
  for (int64_t t = 0; t < n; ++t) {
    tokens_.push_back({.sequence = 0,
                       .position = first + t,
                       .q = rows.q + (row_begin + t) * q_floats,
                       .out = rows.out + (row_begin + t) * q_floats,
                       .softmax = observes ? softmax_.data() + t * shape_.n_heads * 2 : nullptr});
  }
  // Small enough that every thread has some, at most what a cache holds; more only where the rows of few
  // tokens would share too few keys. Late blocks see more keys: first.
  const auto share_of = [n](int64_t n_blocks) { return (n / n_blocks + 31) / 32 * 32; };
  const int64_t cached = std::clamp<int64_t>(share_of(2 * pool_.n_threads()), 32, kCachedTokens);
  const int64_t full = std::min(share_of(pool_.n_threads()), policy.FullPlanTokens(first + n));
  const int64_t most = std::min({std::max(cached, full), policy.PlanTokens(first + n), max_query_block});
  const int64_t n_blocks = EvenBlocks(n, most);
  const KeyPlane plane = policy.Plane();
  PolicyWork& work = WorkOf(policy);
  pool_.Run(n_blocks * shape_.n_kv_heads, [&](int64_t task, int thread) {
    if (cancelled()) return;
    // Where pages leave memory, one head after the other: the fewer of them are wanted at a time.
    const bool by_head = view.kv->on_disk();
    const int64_t kv_head = by_head ? task / n_blocks : task % shape_.n_kv_heads;
    const int64_t nth = n_blocks - 1 - (by_head ? task % n_blocks : task / shape_.n_kv_heads);
    const int64_t begin = nth * n / n_blocks, end = (nth + 1) * n / n_blocks;
    const QueryBlock queries{.layer = rows.layer,
                             .kv_head = kv_head,
                             .tokens = std::span(tokens_).subspan(static_cast<std::size_t>(begin),
                                                                  static_cast<std::size_t>(end - begin)),
                             .sequences = std::span(&view, 1),
                             .observer = observer};
    Plan& plan = plans_[static_cast<std::size_t>(thread)];
    plan.Clear();
    policy.BuildPlan(queries, Phase::kPrefill, executor_.kernels(),
                     *work.scratch[static_cast<std::size_t>(thread)], plan);
    if (observer != nullptr) observer->OnPlan(policy, queries, Phase::kPrefill, plan);
    executor_.ReadAhead(queries, plan, thread, /*remember=*/false);
    if (nth == n_blocks - 1) executor_.KeepForToken(queries, plan, thread);
    executor_.RunBlock(queries, plan, plane, thread, cancel);
  });
  if (cancelled()) return false;
  if (observer != nullptr) observer->OnLayerDone(rows.layer);
  if (observes) {
    step.softmax = softmax_.data();
    policy.Observe(step, state);
  }
  return !cancelled();
}

void AttentionRunner::Decode(const Policy& policy, std::span<const AttendingSequence> sequences,
                             const AttentionRows& rows) {
  const int64_t n = static_cast<int64_t>(sequences.size());
  const int64_t d = shape_.head_dim;
  const int64_t q_floats = shape_.n_heads * d;
  const int64_t kv_floats = shape_.n_kv_heads * d;
  const bool observes = policy.Observes();
  const KeyPlane plane = policy.Plane();
  if (observes) softmax_.resize(static_cast<std::size_t>(n * shape_.n_heads * 2));
  tokens_.clear();
  views_.clear();
  for (int64_t i = 0; i < n; ++i) {
    const AttendingSequence& sequence = sequences[static_cast<std::size_t>(i)];
    views_.push_back(ViewOf(sequence, 1));
    const int64_t position = sequence.kv->size();
    for (int64_t head = 0; head < shape_.n_kv_heads; ++head) {
      const int64_t at = i * kv_floats + head * d;
      const int64_t x = sequence.keys_unrotated ? 0 : plane.Position(position);
      vector_.rotate(rows.k + at, x, *sequence.rotations, rows.k + at);
      sequence.kv->Write(rows.layer, head, position, 1, rows.k + at, kv_floats, rows.v + at, kv_floats);
    }
    BringNear(policy, sequence, rows.layer, /*row_begin=*/0, 1);
    tokens_.push_back({.sequence = static_cast<int32_t>(i),
                       .position = position,
                       .q = rows.q + i * q_floats,
                       .out = rows.out + i * q_floats,
                       .softmax = observes ? softmax_.data() + i * shape_.n_heads * 2 : nullptr});
  }
  for (int64_t i = 0; i < n; ++i) {
    const AttentionSequence& view = views_[static_cast<std::size_t>(i)];
    policy.Extend(Step(policy, Phase::kDecode, view, i, rows, i, view.kv->size(), 1),
                  *sequences[static_cast<std::size_t>(i)].state);
  }
  blocks_.clear();
  for (int64_t head = 0; head < shape_.n_kv_heads; ++head) {
    blocks_.push_back(
        {.layer = rows.layer, .kv_head = head, .tokens = tokens_, .sequences = views_, .observer = observer});
  }
  PolicyWork& work = WorkOf(policy);
  const auto make_plan = [&](std::size_t head, int thread) -> const Plan& {
    const QueryBlock& block = blocks_[head];
    Plan& plan = plans_[head];
    plan.Clear();
    policy.BuildPlan(block, Phase::kDecode, executor_.kernels(),
                     *work.scratch[static_cast<std::size_t>(thread)], plan);
    if (observer != nullptr) observer->OnPlan(policy, block, Phase::kDecode, plan);
    executor_.ReadAhead(block, plan, thread, /*remember=*/true);
    return plan;
  };
  // Texts are read by the same heads in the same places, mostly: what the next layer looked at for the last
  // token, or the first layer for this one.
  const auto expect = [&] {
    for (const AttendingSequence& sequence : sequences) {
      sequence.kv->Expect((rows.layer + 1) % sequence.kv->geometry().n_layers);
    }
  };
  executor_.RunFew(blocks_, plane, pool_, std::ref(make_plan), std::ref(expect));
  if (observer != nullptr) observer->OnLayerDone(rows.layer);
  if (!observes) return;
  for (int64_t i = 0; i < n; ++i) {
    const AttentionSequence& view = views_[static_cast<std::size_t>(i)];
    StepInput step = Step(policy, Phase::kDecode, view, i, rows, i, view.kv->size(), 1);
    step.softmax = softmax_.data() + i * shape_.n_heads * 2;
    policy.Observe(step, *sequences[static_cast<std::size_t>(i)].state);
  }
}

}  // namespace longheads
