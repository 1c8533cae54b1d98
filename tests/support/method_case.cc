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

AttentionModel Model(int64_t trained_window, int64_t text_tokens, const HeadShape& shape = kCaseShape) {
  constexpr int64_t kDimensions = 64;  // the most that ESA's scores can be compressed to
  const int64_t n_columns = shape.n_kv_heads * shape.head_dim;
  return {
      .shape = shape,
      .vocab_size = 16,
      .trained_window = trained_window,
      .layout = PairLayout::kHalfSplit,
      .rope = {.base = kBase, .rotary_dim = shape.head_dim, .context_length = trained_window},
      .trained = *TrainedFrequencies(kBase, shape.head_dim, {}),
      .text_tokens = text_tokens,
      .esa_projections = [n_columns](int64_t distance) -> Result<std::shared_ptr<const EsaProjections>> {
        const auto matrix = [&](const char* name) { return Uniform(name, 1, kDimensions * n_columns); };
        return std::make_shared<EsaProjections>(EsaProjections{.distance = distance,
                                                               .n_rows = kDimensions,
                                                               .n_columns = n_columns,
                                                               .layers = {{matrix("w_q"), matrix("w_k")}}});
      }};
}

LayerAttention Made(const std::string& spec, const AttentionModel& model) {
  const auto layers = MakeAttention(spec, model);
  if (!layers) throw std::runtime_error(layers.error().message);
  return layers->front();
}

const AttentionKernels& Best() {
  return *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
}

}  // namespace

LayerAttention AttentionOfCase(const std::string& spec, int64_t trained_window, int64_t text_tokens) {
  return Made(spec, Model(trained_window, text_tokens));
}

std::shared_ptr<const Policy> MakeCase(const std::string& spec, int64_t trained_window, int64_t text_tokens,
                                       const HeadShape& shape) {
  return Made(spec, Model(trained_window, text_tokens, shape)).policy;
}

std::string RefusalOf(const std::string& spec, int64_t trained_window, int64_t text_tokens) {
  const auto layers = MakeAttention(spec, Model(trained_window, text_tokens));
  return layers ? "" : layers.error().message;
}

LayerSetup CaseSetup(const Policy& policy, int64_t max_tokens) {
  return {.policy = policy, .kernels = Best(), .shape = kCaseShape, .base = kBase, .max_tokens = max_tokens};
}

LayerSetup CaseSetup(const LayerAttention& attention, int64_t max_tokens) {
  LayerSetup setup = CaseSetup(*attention.policy, max_tokens);
  setup.frequencies = attention.frequencies;
  return setup;
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
  const std::shared_ptr<const Policy> borrowed(std::shared_ptr<const Policy>(), &policy);
  return DifferenceFromFull(
      {.policy = borrowed, .frequencies = *TrainedFrequencies(kBase, kCaseShape.head_dim, {})}, n);
}

double DifferenceFromFull(const LayerAttention& attention, int64_t n) {
  const LayerInputs inputs = UniformInputs(kCaseShape, n, 7);
  const int64_t unit = attention.policy->Plane().unit;
  const double amplitude = attention.frequencies.amplitude;
  const double bound = 2 * BoundOf(inputs, /*max_logit=*/12 * amplitude * amplitude).out;  // both sides round
  double worst = 0;
  for (const bool decode : {false, true}) {
    const auto run = [&](const LayerAttention& which) {
      OneLayer layer(CaseSetup(which, n));
      if (!decode) layer.Prefill(inputs, n);
      while (layer.size() < n) layer.Decode(inputs);
      return layer;
    };
    const OneLayer expected =
        run({.policy = std::make_shared<FullAttention>(kCaseShape, n), .frequencies = attention.frequencies});
    const OneLayer actual = run(attention);
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
