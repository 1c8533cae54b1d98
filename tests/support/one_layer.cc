#include "tests/support/one_layer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>

#include "base/check.h"
#include "kernels/vector_ops.h"

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

namespace {

// Hands every plan to a function before it runs, one at a time, and all it hears to another observer.
template <typename Function>
class PlanObserver : public SelectionObserver {
 public:
  PlanObserver(AttentionRunner& runner, const Function& function, SelectionObserver* other)
      : runner_(runner), function_(function), other_(other) {
    runner.observer = this;
  }
  ~PlanObserver() override { runner_.observer = nullptr; }
  void OnChoice(const BlockChoice& choice) override {
    if (other_ != nullptr) other_->OnChoice(choice);
  }
  void OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) override {
    {
      const std::scoped_lock lock(mutex_);
      function_(block, plan);
    }
    if (other_ != nullptr) other_->OnPlan(policy, block, phase, plan);
  }
  void OnLayerDone(int64_t layer) override {
    if (other_ != nullptr) other_->OnLayerDone(layer);
  }

 private:
  AttentionRunner& runner_;
  const Function& function_;
  SelectionObserver* other_;
  std::mutex mutex_;
};

Frequencies FrequenciesOf(const LayerSetup& setup) {
  return setup.frequencies ? *setup.frequencies : *TrainedFrequencies(setup.base, setup.shape.head_dim, {});
}

RotationTable Rotations(const LayerSetup& setup) {
  const int64_t unit = setup.policy.Plane().unit;
  std::vector<double> theta = FrequenciesOf(setup).theta;
  for (double& value : theta) value /= static_cast<double>(unit);
  return RotationTable(theta, setup.shape.head_dim, setup.layout,
                       std::max(setup.policy.RotationBound(setup.max_tokens), unit * setup.max_tokens));
}

std::shared_ptr<KvPool> PoolOf(const LayerSetup& setup) {
  std::shared_ptr<KvPool> pool = KvPool::Create({.n_layers = setup.layer + 1,
                                                 .n_kv_heads = setup.shape.n_kv_heads,
                                                 .head_dim = setup.shape.head_dim,
                                                 .type = setup.kv});
  if (!setup.on_disk) return pool;
  const auto page_bytes = static_cast<uint64_t>(pool->geometry().PageStride());
  auto file = TemporaryPageFile::Create(std::filesystem::temp_directory_path().string(), page_bytes, 0);
  LH_CHECK(file && pool->UseDisk({.ram_bytes = KvPool::kLeastPages * page_bytes, .file = *std::move(file)}));
  return pool;
}

}  // namespace

OneLayer::OneLayer(const LayerSetup& setup)
    : kv_(PoolOf(setup)),
      state_(setup.policy.NewState()),
      near_(setup.near_keys
                ? NearKeys::For(setup.policy, kv_.geometry(), *VectorImplementations().back().table)
                : nullptr) {
  auto pool = std::make_unique<ThreadPool>(setup.n_threads);
  auto runner = std::make_unique<AttentionRunner>(setup.kernels, *VectorImplementations().back().table,
                                                  setup.shape, *pool);
  const auto amplitude = static_cast<float>(FrequenciesOf(setup).amplitude);
  environment_ = std::make_shared<Environment>(
      Environment{.policy = setup.policy,
                  .shape = setup.shape,
                  .rotations = Rotations(setup),
                  .scale = amplitude * amplitude / std::sqrt(static_cast<float>(setup.shape.head_dim)),
                  .amplitude = amplitude,
                  .layer = setup.layer,
                  .first_inputs = setup.first_layer,
                  .pool = std::move(pool),
                  .runner = std::move(runner)});
  if (setup.first_layer == nullptr) return;
  LayerSetup first = setup;
  first.layer = 0;
  first.first_layer = nullptr;
  first_ = std::make_unique<OneLayer>(first);
}

OneLayer::OneLayer(std::shared_ptr<Environment> environment, KvSequence kv,
                   std::unique_ptr<PolicyState> state, std::unique_ptr<NearKeys> near)
    : environment_(std::move(environment)),
      kv_(std::move(kv)),
      state_(std::move(state)),
      near_(std::move(near)) {}

OneLayer OneLayer::Fork() const {
  OneLayer fork(environment_, kv_.Fork(), state_->Fork(), near_ ? near_->Fresh() : nullptr);
  if (first_) fork.first_ = std::make_unique<OneLayer>(first_->Fork());
  fork.out_ = out_;
  fork.seen_ = seen_;
  fork.mutation = mutation;
  return fork;
}

void OneLayer::Truncate(int64_t m) {
  const HeadShape& shape = environment_->shape;
  if (first_) first_->Truncate(m);
  state_->Truncate(m);
  kv_.Truncate(m);
  out_.resize(static_cast<std::size_t>(m * shape.n_heads * shape.head_dim));
  seen_.resize(static_cast<std::size_t>(m * shape.n_heads));
}

Result<OneLayer> OneLayer::Restored(std::span<const SavedState> saves) const {
  std::vector<std::span<const std::byte>> added;
  for (const SavedState& save : saves) added.push_back(save.added);
  LH_ASSIGN(std::unique_ptr<PolicyState> state,
            RestoreState(*environment_->policy.NewState(), added, saves.back().latest, size()));
  OneLayer restored = Fork();
  restored.state_ = std::move(state);
  return restored;
}

AttendingSequence OneLayer::Attending() {
  return {.kv = &kv_,
          .state = state_.get(),
          .first_state = first_ ? first_->state_.get() : state_.get(),
          .rotations = &environment_->rotations,
          .scale = environment_->scale,
          .amplitude = environment_->amplitude,
          .near = near_.get()};
}

void OneLayer::Reserve(int64_t n) {
  const HeadShape& shape = environment_->shape;
  kv_.Reserve(n);
  out_.resize(static_cast<std::size_t>(n * shape.n_heads * shape.head_dim));
  seen_.resize(static_cast<std::size_t>(n * shape.n_heads));
}

void OneLayer::Remember(const QueryBlock& block, int32_t sequence, const Plan& plan) {
  const Environment& e = *environment_;
  const int64_t group = e.shape.group();
  const KeyPlane plane = e.policy.Plane();
  for (const PlanSegment& segment : plan.segments) {
    if (segment.sequence != sequence) continue;
    for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
      const PlanRow& row = plan.rows[static_cast<std::size_t>(r)];
      const int64_t i = block.tokens[static_cast<std::size_t>(row.row / group)].position;
      const int64_t head = block.kv_head * group + row.row % group;
      SeenRow& seen = seen_[static_cast<std::size_t>(i * e.shape.n_heads + head)];
      seen.segments.push_back(segment.key_begin);
      seen.rotations.push_back(row.x);
      for (int64_t at = segment.key_begin; at < segment.key_end; ++at) {
        const int64_t j = segment.listed ? plan.keys[static_cast<std::size_t>(at)] : at;
        if (!segment.listed && (i - j < segment.min_distance || i - j >= segment.max_distance)) continue;
        const int64_t key_at = segment.absolute ? plane.unit * j : plane.Position(j);
        seen.keys.push_back({static_cast<int32_t>(j), static_cast<int32_t>(row.x - key_at)});
      }
      if (segment.as_key != PlanSegment::kNoKey) {
        const int64_t distance = row.x - plane.Position(segment.as_key);
        seen.keys.push_back({static_cast<int32_t>(segment.as_key), static_cast<int32_t>(distance)});
      }
    }
  }
}

void OneLayer::Prefill(const LayerInputs& inputs, int64_t n, int64_t query_block) {
  Environment& e = *environment_;
  if (first_) first_->Prefill(*e.first_inputs, n, query_block);
  const int64_t first = size();
  const int64_t d = e.shape.head_dim;
  const int64_t q_floats = e.shape.n_heads * d;
  const int64_t kv_floats = e.shape.n_kv_heads * d;
  Reserve(first + n);
  std::vector<float> k(inputs.k.begin() + first * kv_floats, inputs.k.begin() + (first + n) * kv_floats);
  e.runner->max_query_block = query_block;
  const auto remember = [&](const QueryBlock& block, Plan& plan) {
    if (mutation) mutation(block, plan);
    Remember(block, 0, plan);
  };
  const PlanObserver plans(*e.runner, remember, observer);
  e.runner->Prefill(e.policy, Attending(),
                    {.layer = e.layer,
                     .q = inputs.q.data() + first * q_floats,
                     .k = k.data(),
                     .v = inputs.v.data() + first * kv_floats,
                     .out = out_.data() + first * q_floats},
                    n, nullptr);
  kv_.Commit(first + n);
}

void OneLayer::Decode(const LayerInputs& inputs) {
  OneLayer* const sequences[] = {this};
  const LayerInputs* const all_inputs[] = {&inputs};
  DecodeTogether(sequences, all_inputs);
}

void OneLayer::DecodeTogether(std::span<OneLayer* const> sequences,
                              std::span<const LayerInputs* const> inputs) {
  Environment& e = *sequences[0]->environment_;
  const int64_t q_floats = e.shape.n_heads * e.shape.head_dim;
  const int64_t kv_floats = e.shape.n_kv_heads * e.shape.head_dim;
  std::vector<AttendingSequence> attending;
  std::vector<float> q, k, v;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    OneLayer& layer = *sequences[s];
    if (layer.first_) layer.first_->Decode(*e.first_inputs);
    const auto append = [&](const std::vector<float>& from, int64_t floats, std::vector<float>& to) {
      to.insert(to.end(), from.begin() + layer.size() * floats, from.begin() + (layer.size() + 1) * floats);
    };
    append(inputs[s]->q, q_floats, q);
    append(inputs[s]->k, kv_floats, k);
    append(inputs[s]->v, kv_floats, v);
    layer.Reserve(layer.size() + 1);
    attending.push_back(layer.Attending());
  }
  std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
  const auto remember = [&](const QueryBlock& block, Plan& plan) {
    if (sequences[0]->mutation) sequences[0]->mutation(block, plan);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      sequences[s]->Remember(block, static_cast<int32_t>(s), plan);
    }
  };
  const PlanObserver plans(*e.runner, remember, sequences[0]->observer);
  e.runner->Decode(e.policy, attending,
                   {.layer = e.layer, .q = q.data(), .k = k.data(), .v = v.data(), .out = out.data()});
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    OneLayer& layer = *sequences[s];
    std::copy_n(out.begin() + static_cast<int64_t>(s) * q_floats, q_floats,
                layer.out_.begin() + layer.size() * q_floats);
    layer.kv_.Commit(layer.size() + 1);
  }
}

}  // namespace longheads
