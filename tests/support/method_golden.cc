#include "tests/support/method_golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "formats/npy.h"
#include "rope/frequencies.h"

namespace longheads {
namespace {

const std::string kFolder = LONGHEADS_GOLDENS "/methods/";

// The cases of all manifests.
const std::vector<nlohmann::json>& Cases() {
  static const std::vector<nlohmann::json> cases = [] {
    std::vector<nlohmann::json> all;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
      if (entry.path().extension() != ".json") continue;
      const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(entry.path()));
      for (const auto& one : manifest.at("cases")) all.push_back(one);
    }
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.at("name") < b.at("name"); });
    return all;
  }();
  return cases;
}

template <typename T>
std::vector<T> Load(const std::string& name, std::string_view array) {
  const std::string path = fmt::format("{}{}.{}.npy", kFolder, name, array);
  const Result<NpyArray> read = ReadNpy(path);
  if (!read) throw std::runtime_error(read.error().message);
  if (read->As<T>() == nullptr) throw std::runtime_error(path + ": another type was expected");
  return *read->As<T>();
}

std::string SpecOf(const nlohmann::json& entry) {
  const std::string policy = entry.at("spec");
  return entry.at("frequencies").is_null() ? policy
                                           : entry.at("frequencies").get<std::string>() + "+" + policy;
}

LayerInputs MakeInputs(const nlohmann::json& entry) {
  const HeadShape shape{
      .n_heads = entry.at("heads"), .n_kv_heads = entry.at("kv_heads"), .head_dim = entry.at("dim")};
  const int64_t n = entry.at("n");
  const std::vector<double> scales = entry.at("scales");
  LayerInputs inputs =
      UniformInputs(shape, n, entry.at("seed"), {.q = scales.at(0), .k = scales.at(1), .v = scales.at(2)});

  const std::string kind = entry.at("inputs");
  const int64_t period = entry.at("period").is_null() ? n : entry.at("period").get<int64_t>();
  const auto repeat = [&](std::vector<float>& values) {
    const int64_t row = static_cast<int64_t>(values.size()) / n;
    for (int64_t t = period; t < n; ++t) {
      std::copy_n(values.begin() + t % period * row, row, values.begin() + t * row);
    }
  };
  if (kind == "zero-keys") {
    std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
  } else if (kind == "some-zero-keys") {
    const int64_t row = shape.n_kv_heads * shape.head_dim;
    for (int64_t t = 0; t < n; ++t) {
      if (t / period % 3 != 0) std::fill_n(inputs.k.begin() + t * row, row, 0.0f);
    }
  } else if (kind == "repeated") {
    repeat(inputs.q);
    repeat(inputs.k);
    repeat(inputs.v);
  } else if (kind == "repeated-keys") {
    repeat(inputs.k);
  } else if (kind != "plain") {
    throw std::runtime_error("inputs of an unknown kind: " + kind);
  }
  return inputs;
}

// ESA's projections, where the golden says how they are made.
decltype(AttentionModel::esa_projections) EsaProjectionsOf(const MethodGolden& golden, PairLayout layout) {
  if (!golden.extra.contains("projections")) return {};
  return [&golden, layout](int64_t distance) -> Result<std::shared_ptr<const EsaProjections>> {
    const std::size_t at = golden.spec.find(",dim=");
    const int64_t n_rows = std::stoll(golden.spec.substr(at + 5));
    const int64_t n_columns = golden.inputs.shape.n_kv_heads * golden.inputs.shape.head_dim;
    const float scale = golden.extra["projections"]["scale"];
    const uint64_t seed = golden.extra["projections"]["seed"];
    LayerInputs matrices{.shape = golden.inputs.shape,
                         .n = n_rows,
                         .q = Uniform("w_q", seed, n_rows * n_columns),
                         .k = Uniform("w_k", seed, n_rows * n_columns),
                         .v = {}};
    for (float& value : matrices.q) value *= scale;
    for (float& value : matrices.k) value *= scale;
    if (layout == PairLayout::kInterleaved) matrices = Interleaved(matrices);
    return std::make_shared<EsaProjections>(EsaProjections{.distance = distance,
                                                           .n_rows = n_rows,
                                                           .n_columns = n_columns,
                                                           .layers = {{matrices.q, matrices.k}}});
  };
}

uint32_t Hash(const std::vector<std::pair<int32_t, int32_t>>& pairs) {
  uint32_t hash = 0x811c9dc5;
  for (const auto& [key, distance] : pairs) {
    for (const int32_t number : {key, distance}) {
      for (int byte = 0; byte < 4; ++byte) {
        hash = (hash ^ ((static_cast<uint32_t>(number) >> (8 * byte)) & 0xff)) * 0x01000193;
      }
    }
  }
  return hash;
}

}  // namespace

std::vector<std::string> MethodGoldenNames(const std::string& method) {
  std::vector<std::string> names;
  for (const auto& entry : Cases()) {
    const std::string spec = entry.at("spec");
    if (method.empty() || spec.substr(0, spec.find(',')) == method) names.push_back(entry.at("name"));
  }
  return names;
}

MethodGolden LoadMethodGolden(const std::string& name) {
  for (const auto& entry : Cases()) {
    if (entry.at("name") != name) continue;
    MethodGolden golden{.name = name,
                        .spec = SpecOf(entry),
                        .trained_window = entry.at("trained_window"),
                        .base = entry.at("base"),
                        .calls = {},
                        .n_prefill = {},
                        .lengths = entry.at("lengths"),
                        .unit = entry.at("unit"),
                        .layer = entry.at("layer"),
                        .extra = entry.at("extra"),
                        .max_logit = entry.at("max_logit"),
                        .inputs = MakeInputs(entry),
                        .out_rows = entry.at("out_rows"),
                        .sets = Load<uint32_t>(name, "sets"),
                        .attended = Load<int32_t>(name, "attended"),
                        .out = Load<float>(name, "out"),
                        .projection = Load<float>(name, "projection")};
    if (!entry.at("calls").is_null()) golden.calls = entry.at("calls").get<std::vector<int64_t>>();
    if (!entry.at("n_prefill").is_null()) golden.n_prefill = entry.at("n_prefill").get<int64_t>();
    return golden;
  }
  throw std::runtime_error("no golden is called " + name);
}

LayerAttention AttentionOf(const MethodGolden& golden, PairLayout layout) {
  const HeadShape& shape = golden.inputs.shape;
  AttentionModel model;
  model.shape = shape;
  model.n_layers = golden.layer + 1;
  model.vocab_size = 16;
  model.trained_window = golden.trained_window;
  model.layout = layout;
  model.rope = {.base = golden.base, .rotary_dim = shape.head_dim, .context_length = golden.trained_window};
  model.trained = *TrainedFrequencies(golden.base, shape.head_dim, {});
  model.esa_projections = EsaProjectionsOf(golden, layout);
  auto layers = MakeAttention(golden.spec, model);
  if (!layers) throw std::runtime_error(golden.name + ": " + layers.error().message);
  return std::move((*layers)[static_cast<std::size_t>(golden.layer)]);
}

MethodDifferences Compare(const MethodGolden& golden, const OneLayer& run, int64_t unit) {
  MethodDifferences result;
  const HeadShape& shape = golden.inputs.shape;
  const int64_t d = shape.head_dim;
  const ErrorBound bound = BoundOf(golden.inputs, golden.max_logit);
  const auto note = [&](int64_t& count, const std::string& what) {
    ++count;
    if (result.first.empty()) result.first = golden.name + ": " + what;
  };
  const auto compare_value = [&](double actual, double expected, double tolerance, const std::string& what) {
    const double error = std::abs(actual - expected);
    if (std::isfinite(error)) result.worst = std::max(result.worst, error / tolerance);
    if (!(error <= tolerance)) {
      note(result.n_outputs, fmt::format("{} is {}, not {} (+- {})", what, actual, expected, tolerance));
    }
  };
  const auto out_of = [&](int64_t i, int64_t h) { return run.out().data() + (i * shape.n_heads + h) * d; };
  // Sorted, in the golden's unit. A distance that is no whole number of it is off by construction.
  const auto pairs_of = [&](int64_t i, int64_t h) {
    std::vector<std::pair<int32_t, int32_t>> pairs = run.seen(i, h).keys;
    for (auto& [key, distance] : pairs) {
      const int64_t scaled = int64_t{distance} * golden.unit;
      distance =
          scaled % unit == 0 ? static_cast<int32_t>(scaled / unit) : std::numeric_limits<int32_t>::min();
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  };

  // Queries whose pairs the golden lists: differences in words.
  std::vector<std::string> listed(static_cast<std::size_t>(run.size() * shape.n_heads));
  for (std::size_t at = 0; at < golden.attended.size();) {  // runs of (i, h, key, distance) with equal (i, h)
    const int32_t i = golden.attended[at];
    const int32_t h = golden.attended[at + 1];
    std::vector<std::pair<int32_t, int32_t>> expected;
    for (; at < golden.attended.size() && golden.attended[at] == i && golden.attended[at + 1] == h; at += 4) {
      expected.push_back({golden.attended[at + 2], golden.attended[at + 3]});
    }
    if (i >= run.size()) continue;
    const auto actual = pairs_of(i, h);
    if (actual == expected) continue;
    const auto [a, e] = std::mismatch(actual.begin(), actual.end(), expected.begin(), expected.end());
    const auto describe = [](const auto& at_pair, const auto& end) {
      return at_pair == end ? std::string("nothing")
                            : fmt::format("({}, {})", at_pair->first, at_pair->second);
    };
    note(result.n_sets,
         fmt::format("query ({}, {}) sees {} pairs, not {}; the first that differs is {}, not {}", i, h,
                     actual.size(), expected.size(), describe(a, actual.end()), describe(e, expected.end())));
  }
  for (int64_t i = 0; i < run.size(); ++i) {
    for (int64_t h = 0; h < shape.n_heads; ++h) {
      const std::size_t row = static_cast<std::size_t>(i * shape.n_heads + h);
      if (Hash(pairs_of(i, h)) != golden.sets[row]) {
        note(result.n_sets, fmt::format("query ({}, {}) sees other keys or distances", i, h));
      }
      compare_value(Project(out_of(i, h), d), golden.projection[row], bound.projection,
                    fmt::format("projection ({}, {})", i, h));
    }
  }
  for (std::size_t row = 0; row < golden.out_rows.size(); ++row) {
    const int64_t i = golden.out_rows[row];
    if (i >= run.size()) continue;
    const int64_t n = shape.n_heads * d;
    for (int64_t x = 0; x < n; ++x) {
      compare_value(out_of(i, 0)[x],
                    golden.out[row * static_cast<std::size_t>(n) + static_cast<std::size_t>(x)], bound.out,
                    fmt::format("output {} of token {}", x, i));
    }
  }
  return result;
}

MethodDifferences MutatedDifferences(const std::string& name, const Mutation& mutation) {
  const MethodGolden golden = LoadMethodGolden(name);
  const LayerAttention attention = AttentionOf(golden, PairLayout::kHalfSplit);
  OneLayer layer({.policy = *attention.policy,
                  .kernels = *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table,
                  .shape = golden.inputs.shape,
                  .frequencies = attention.frequencies,
                  .max_tokens = golden.inputs.n});
  layer.mutation = mutation;
  const int64_t n_prefill = golden.n_prefill.value_or(golden.inputs.n);
  for (const int64_t call : golden.calls.value_or(std::vector<int64_t>{n_prefill})) {
    layer.Prefill(golden.inputs, call);
  }
  while (layer.size() < golden.inputs.n) layer.Decode(golden.inputs);
  return Compare(golden, layer, attention.policy->Plane().unit);
}

bool Notices(const std::string& name, const Mutation& mutation) {
  const MethodDifferences none = MutatedDifferences(name, {});
  if (!none.none()) throw std::runtime_error(none.first);
  return !MutatedDifferences(name, mutation).none();
}

}  // namespace longheads
