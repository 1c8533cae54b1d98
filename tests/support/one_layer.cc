#include "tests/support/one_layer.h"

#include <algorithm>
#include <cmath>

#include "kernels/vector_ops.h"
#include "rope/frequencies.h"

namespace longheads {

LayerInputs Interleaved(const LayerInputs& half_split) {
  LayerInputs result = half_split;
  const std::size_t d = static_cast<std::size_t>(half_split.shape.head_dim);
  const auto permute = [d](const std::vector<float>& from, std::vector<float>& to) {
    for (std::size_t row = 0; row < from.size(); row += d) {
      for (std::size_t m = 0; m < d / 2; ++m) {
        to[row + 2 * m] = from[row + m];
        to[row + 2 * m + 1] = from[row + m + d / 2];
      }
    }
  };
  permute(half_split.q, result.q);
  permute(half_split.k, result.k);
  return result;
}

OneLayer::OneLayer(const LayerSetup& setup)
    : OneLayer(std::shared_ptr<Environment>(new Environment{
                   .policy = setup.policy,
                   .shape = setup.shape,
                   .rotations = RotationTable(TrainedFrequencies(setup.base, setup.shape.head_dim, {})->theta,
                                              setup.shape.head_dim, setup.layout,
                                              setup.policy.RotationBound(setup.max_tokens)),
                   .scale = 1 / std::sqrt(static_cast<float>(setup.shape.head_dim)),
                   .pool = ThreadPool(setup.n_threads),
                   .executor = AttentionExecutor(setup.kernels, setup.shape, setup.n_threads),
                   .kv_pool = KvPool::Create({.n_layers = 1,
                                              .n_kv_heads = setup.shape.n_kv_heads,
                                              .head_dim = setup.shape.head_dim,
                                              .type = setup.kv}),
                   .scratch = setup.policy.NewScratch()}),
               KvSequence(KvPool::Create({})), setup.policy.NewState()) {
  kv_ = KvSequence(environment_->kv_pool);
}

OneLayer::OneLayer(std::shared_ptr<Environment> environment, KvSequence kv,
                   std::unique_ptr<PolicyState> state)
    : environment_(std::move(environment)), kv_(std::move(kv)), state_(std::move(state)) {}

OneLayer OneLayer::Fork() const {
  OneLayer fork(environment_, kv_.Fork(), state_->Fork());
  fork.out_ = out_;
  fork.seen_ = seen_;
  fork.mutation = mutation;
  return fork;
}

void OneLayer::Truncate(int64_t m) {
  const HeadShape& shape = environment_->shape;
  state_->Truncate(m);
  kv_.Truncate(m);
  out_.resize(static_cast<std::size_t>(m * shape.n_heads * shape.head_dim));
  seen_.resize(static_cast<std::size_t>(m * shape.n_heads));
}

void OneLayer::Store(const LayerInputs& inputs, int64_t n) {
  Environment& e = *environment_;
  const int64_t first = size();
  const int64_t d = e.shape.head_dim;
  const int64_t kv_floats = e.shape.n_kv_heads * d;
  const VectorKernels& vector = *VectorImplementations().back().table;
  kv_.Reserve(first + n);
  std::vector<float> k(inputs.k.begin() + first * kv_floats, inputs.k.begin() + (first + n) * kv_floats);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t head = 0; head < e.shape.n_kv_heads; ++head) {
      float* const key = k.data() + i * kv_floats + head * d;
      vector.rotate(key, e.policy.KeyPosition(first + i), e.rotations, key);
    }
  }
  for (int64_t head = 0; head < e.shape.n_kv_heads; ++head) {
    kv_.Write(0, head, first, n, k.data() + head * d, kv_floats,
              inputs.v.data() + first * kv_floats + head * d, kv_floats);
  }
  e.policy.Extend({.layer = 0,
                   .sequence = &kv_,
                   .token_begin = first,
                   .n_tokens = n,
                   .q = inputs.q.data() + first * e.shape.n_heads * d,
                   .executor = &e.executor,
                   .rotations = &e.rotations,
                   .scale = e.scale,
                   .pool = &e.pool,
                   .cancel = nullptr},
                  *state_);
  kv_.Commit(first + n);
  out_.resize(static_cast<std::size_t>((first + n) * e.shape.n_heads * d));
  seen_.resize(static_cast<std::size_t>((first + n) * e.shape.n_heads));
}

QueryToken OneLayer::Token(const LayerInputs& inputs, int64_t position, int32_t sequence) {
  const int64_t floats = environment_->shape.n_heads * environment_->shape.head_dim;
  return {.sequence = sequence,
          .position = position,
          .q = inputs.q.data() + position * floats,
          .out = out_.data() + position * floats};
}

void OneLayer::Remember(const QueryBlock& block, int32_t sequence, const Plan& plan) {
  const Environment& e = *environment_;
  const int64_t group = e.shape.group();
  for (const PlanSegment& segment : plan.segments) {
    if (segment.sequence != sequence) continue;
    for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
      const PlanRow& row = plan.rows[static_cast<std::size_t>(r)];
      const int64_t i = block.tokens[static_cast<std::size_t>(row.row / group)].position;
      const int64_t head = block.kv_head * group + row.row % group;
      SeenRow& seen = seen_[static_cast<std::size_t>(i * e.shape.n_heads + head)];
      seen.segments.push_back(segment.key_begin);
      seen.rotations.push_back(row.x);
      for (int64_t j = segment.key_begin; j < segment.key_end; ++j) {
        if (i - j < segment.min_distance || i - j >= segment.max_distance) continue;
        seen.keys.push_back({static_cast<int32_t>(j), static_cast<int32_t>(row.x - e.policy.KeyPosition(j))});
      }
    }
  }
}

void OneLayer::Prefill(const LayerInputs& inputs, int64_t n, int64_t query_block) {
  Environment& e = *environment_;
  const int64_t first = size();
  Store(inputs, n);
  std::vector<QueryToken> tokens;
  for (int64_t i = first; i < first + n; ++i) tokens.push_back(Token(inputs, i, 0));
  const KvSequence* const sequences[] = {&kv_};
  const PolicyState* const states[] = {state_.get()};
  Plan plan;
  for (int64_t begin = 0; begin < n; begin += query_block) {
    for (int64_t kv_head = 0; kv_head < e.shape.n_kv_heads; ++kv_head) {
      const QueryBlock block{
          .layer = 0,
          .kv_head = kv_head,
          .tokens = std::span(tokens).subspan(static_cast<std::size_t>(begin),
                                              static_cast<std::size_t>(std::min(query_block, n - begin))),
          .sequences = sequences};
      e.policy.BuildPlan(block, Phase::kPrefill, states, e.executor.kernels(), *e.scratch, plan);
      if (mutation) mutation(block, plan);
      e.executor.RunBlock(block, plan, e.rotations, e.scale, 0, nullptr);
      Remember(block, 0, plan);
    }
  }
}

void OneLayer::Decode(const LayerInputs& inputs) {
  OneLayer* const sequences[] = {this};
  const LayerInputs* const all_inputs[] = {&inputs};
  DecodeTogether(sequences, all_inputs);
}

void OneLayer::DecodeTogether(std::span<OneLayer* const> sequences,
                              std::span<const LayerInputs* const> inputs) {
  Environment& e = *sequences[0]->environment_;
  std::vector<QueryToken> tokens;
  std::vector<const KvSequence*> kv;
  std::vector<const PolicyState*> states;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    OneLayer& layer = *sequences[s];
    layer.Store(*inputs[s], 1);
    tokens.push_back(layer.Token(*inputs[s], layer.size() - 1, static_cast<int32_t>(s)));
    kv.push_back(&layer.kv_);
    states.push_back(layer.state_.get());
  }
  std::vector<QueryBlock> blocks;
  std::vector<Plan> plans(static_cast<std::size_t>(e.shape.n_kv_heads));
  for (int64_t kv_head = 0; kv_head < e.shape.n_kv_heads; ++kv_head) {
    Plan& plan = plans[static_cast<std::size_t>(kv_head)];
    blocks.push_back({.layer = 0, .kv_head = kv_head, .tokens = tokens, .sequences = kv});
    e.policy.BuildPlan(blocks.back(), Phase::kDecode, states, e.executor.kernels(), *e.scratch, plan);
    if (sequences[0]->mutation) sequences[0]->mutation(blocks.back(), plan);
  }
  e.executor.RunFew(blocks, plans, e.rotations, e.scale, e.pool);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      sequences[s]->Remember(blocks[b], static_cast<int32_t>(s), plans[b]);
    }
  }
}

}  // namespace longheads
