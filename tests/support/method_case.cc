#include "tests/support/method_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "attention/full.h"
#include "attention/registry.h"
#include "rope/frequencies.h"

namespace longheads {
namespace {

constexpr double kBase = 10000;

AttentionModel Model(const HeadShape& shape, int64_t trained_window, int64_t n_layers, double base) {
  return {.shape = shape,
          .n_layers = n_layers,
          .vocab_size = 16,
          .trained_window = trained_window,
          .layout = PairLayout::kHalfSplit,
          .trained = *TrainedFrequencies(base, shape.head_dim, {})};
}

const AttentionKernels& Best() {
  return *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
}

}  // namespace

std::shared_ptr<const Policy> MakeCase(const std::string& spec, int64_t trained_window, int64_t text_tokens) {
  AttentionModel model = Model(kCaseShape, trained_window, 1, kBase);
  model.text_tokens = text_tokens;
  const auto layers = MakeAttention(spec, model);
  if (!layers) throw std::runtime_error(layers.error().message);
  return layers->front().policy;
}

std::string RefusalOf(const std::string& spec, int64_t trained_window, int64_t text_tokens) {
  AttentionModel model = Model(kCaseShape, trained_window, 1, kBase);
  model.text_tokens = text_tokens;
  const auto layers = MakeAttention(spec, model);
  return layers ? "" : layers.error().message;
}

LayerSetup CaseSetup(const Policy& policy, int64_t max_tokens) {
  return {.policy = policy, .kernels = Best(), .shape = kCaseShape, .base = kBase, .max_tokens = max_tokens};
}

std::vector<std::pair<int32_t, int32_t>> LastSees(const Policy& policy, int64_t n, bool decode) {
  const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
  OneLayer layer(CaseSetup(policy, n));
  const int64_t n_prefill = n - (decode ? 1 : 0);
  if (n_prefill > 0) layer.Prefill(inputs, n_prefill);
  if (decode) layer.Decode(inputs);
  std::vector<std::pair<int32_t, int32_t>> keys = layer.seen(n - 1, 0).keys;
  for (int64_t h = 1; h < kCaseShape.n_heads; ++h) {
    if (layer.seen(n - 1, h).keys != keys) throw std::runtime_error("heads see different keys");
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

double DifferenceFromFull(const Policy& policy, int64_t n) {
  const LayerInputs inputs = UniformInputs(kCaseShape, n, 7);
  const FullAttention full(kCaseShape, n);
  const int64_t unit = policy.Plane().unit;
  const double bound = 2 * BoundOf(inputs, /*max_logit=*/12).out;  // both sides round
  double worst = 0;
  for (const bool decode : {false, true}) {
    const auto run = [&](const Policy& which) {
      OneLayer layer(CaseSetup(which, n));
      if (!decode) layer.Prefill(inputs, n);
      while (layer.size() < n) layer.Decode(inputs);
      return layer;
    };
    const OneLayer expected = run(full);
    const OneLayer actual = run(policy);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < kCaseShape.n_heads; ++h) {
        std::vector<std::pair<int32_t, int32_t>> keys = expected.seen(i, h).keys;
        for (auto& [key, distance] : keys) distance *= static_cast<int32_t>(unit);
        std::vector<std::pair<int32_t, int32_t>> ours = actual.seen(i, h).keys;
        std::sort(ours.begin(), ours.end());
        if (ours != keys) return std::numeric_limits<double>::infinity();
      }
    }
    for (std::size_t x = 0; x < expected.out().size(); ++x) {
      const double error = std::abs(static_cast<double>(actual.out()[x]) - expected.out()[x]);
      if (!(error <= worst * bound)) worst = error / bound;
    }
  }
  return worst;
}

MethodDifferences MutatedDifferences(const std::string& name, const Mutation& mutation) {
  const MethodGolden golden = LoadMethodGolden(name);
  const HeadShape& shape = golden.inputs.shape;
  const auto layers =
      MakeAttention(golden.spec, Model(shape, golden.trained_window, golden.layer + 1, golden.base));
  if (!layers) throw std::runtime_error(layers.error().message);
  const Policy& policy = *(*layers)[static_cast<std::size_t>(golden.layer)].policy;
  OneLayer layer({.policy = policy,
                  .kernels = Best(),
                  .shape = shape,
                  .base = golden.base,
                  .max_tokens = golden.inputs.n});
  layer.mutation = mutation;
  for (const int64_t n : golden.calls.value_or(std::vector<int64_t>{golden.inputs.n})) {
    layer.Prefill(golden.inputs, n);
  }
  while (layer.size() < golden.inputs.n) layer.Decode(golden.inputs);
  return Compare(golden, layer, policy.Plane().unit);
}

KeysRead ReadForLast(const Policy& policy, int64_t n) {
  const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
  OneLayer layer(CaseSetup(policy, n));
  layer.Prefill(inputs, n - 1);
  KeysRead keys;
  layer.mutation = [&](const QueryBlock& block, Plan& plan) {
    if (block.kv_head != 0) return;
    for (const PlanSegment& segment : plan.segments) keys.read += segment.key_end - segment.key_begin;
  };
  layer.Decode(inputs);
  keys.seen = static_cast<int64_t>(layer.seen(n - 1, 0).keys.size());
  return keys;
}

}  // namespace longheads
