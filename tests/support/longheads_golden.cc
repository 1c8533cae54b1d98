#include "tests/support/longheads_golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace longheads {
namespace {

const std::string kFolder = LONGHEADS_GOLDENS "/longheads/";

const nlohmann::json& Manifest() {
  static const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(kFolder + "manifest.json"));
  return manifest;
}

template <typename T>
std::vector<T> Load(const std::string& name, std::string_view array) {
  const std::string path = fmt::format("{}{}.{}.npy", kFolder, name, array);
  const Result<NpyArray> read = ReadNpy(path);
  if (!read) throw std::runtime_error(read.error().message);
  if (read->As<T>() == nullptr) throw std::runtime_error(path + ": another type was expected");
  return *read->As<T>();
}

void ChangeInputs(const std::string& kind, int64_t chunk, LayerInputs& inputs) {
  const auto each_row = [&](std::vector<float>& values, const auto& change) {
    const int64_t row = static_cast<int64_t>(values.size()) / inputs.n;
    for (int64_t t = 0; t < inputs.n; ++t) change(values.data() + t * row, t, row, values.data());
  };
  if (kind == "zero-keys") std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
  if (kind == "some-zero-keys") {
    each_row(inputs.k, [chunk](float* row, int64_t t, int64_t n, const float*) {
      if (t / chunk % 3 != 0) std::fill_n(row, n, 0.0f);
    });
  }
  if (kind == "repeated") {
    for (auto* values : {&inputs.q, &inputs.k, &inputs.v}) {
      each_row(*values, [chunk](float* row, int64_t t, int64_t n, const float* all) {
        if (t >= chunk) std::copy_n(all + t % chunk * n, n, row);
      });
    }
  }
}

}  // namespace

std::vector<std::string> LongHeadsGoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : Manifest().at("cases")) names.push_back(entry.at("name"));
  return names;
}

LongHeadsGolden LoadLongHeadsGolden(const std::string& name) {
  for (const auto& entry : Manifest().at("cases")) {
    if (entry.at("name") != name) continue;
    LongHeadsGolden golden;
    golden.name = name;
    const auto grouping = [&](const char* key) {
      return entry.at(key) == "kv" ? LongHeadsOptions::Grouping::kKv : LongHeadsOptions::Grouping::kHead;
    };
    golden.options = {.chunk = entry.at("chunk"),
                      .window = entry.at("window"),
                      .begin = entry.at("begin"),
                      .reps = grouping("reps"),
                      .select = grouping("select"),
                      .compat = {}};
    for (const std::string oddity : entry.at("compat")) {
      golden.options.compat.own_key |= oddity == "own-key";
      golden.options.compat.chunk_end |= oddity == "chunk-end";
      golden.options.compat.begin |= oddity == "begin";
    }
    if (!entry.at("n_prefill").is_null()) golden.n_prefill = entry.at("n_prefill").get<int64_t>();
    golden.lengths = entry.at("lengths").get<std::vector<int64_t>>();
    golden.out_rows = entry.at("out_rows").get<std::vector<int64_t>>();
    golden.max_logit = entry.at("max_logit");
    const HeadShape shape{.n_heads = entry.at("n_heads"),
                          .n_kv_heads = entry.at("n_kv_heads"),
                          .head_dim = entry.at("head_dim")};
    golden.frequencies = *TrainedFrequencies(entry.at("base"), shape.head_dim, {});
    golden.frequencies.amplitude = entry.at("amplitude");
    golden.inputs = UniformInputs(shape, entry.at("n"), entry.at("seed"));
    if (entry.at("q_scale") != 3.0 || entry.at("k_scale") != 2.0 || entry.at("v_scale") != 4.0) {
      throw std::runtime_error(name + ": the inputs have other scales than the usual ones");
    }
    ChangeInputs(entry.at("inputs"), golden.options.chunk, golden.inputs);
    golden.chunks = Load<uint32_t>(name, "chunks");
    golden.sets = Load<uint32_t>(name, "sets");
    golden.attended = Load<int32_t>(name, "attended");
    golden.out = Load<float>(name, "out");
    golden.projection = Load<float>(name, "projection");
    return golden;
  }
  throw std::runtime_error("no golden is called " + name);
}

GoldenDifferences Compare(const LongHeadsGolden& golden, const OneLayer& run) {
  GoldenDifferences result;
  const HeadShape& shape = golden.inputs.shape;
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
  const auto out_of = [&](int64_t i, int64_t h) {
    return run.out().data() + (i * shape.n_heads + h) * shape.head_dim;
  };

  for (int64_t i = 0; i < run.size(); ++i) {
    uint32_t hash = 0x811c9dc5;
    for (int64_t h = 0; h < shape.n_heads; ++h) {
      const SeenRow& seen = run.seen(i, h);
      for (const auto& [key, distance] : seen.keys) {
        for (const int32_t number : {key, distance}) {
          for (int byte = 0; byte < 4; ++byte) {
            hash = (hash ^ ((static_cast<uint32_t>(number) >> (8 * byte)) & 0xff)) * 0x01000193;
          }
        }
      }
      uint32_t chunks = 0;
      for (const int64_t begin : seen.segments) chunks |= uint32_t{1} << (begin / golden.options.chunk);
      const uint32_t expected = golden.chunks[static_cast<std::size_t>(i * shape.n_heads + h)];
      if (chunks != expected) {
        note(result.n_chunks,
             fmt::format("query ({}, {}) sees chunks {:b}, not {:b}", i, h, chunks, expected));
      }
      compare_value(Project(out_of(i, h), shape.head_dim),
                    golden.projection[static_cast<std::size_t>(i * shape.n_heads + h)], bound.projection,
                    fmt::format("projection ({}, {})", i, h));
    }
    if (hash != golden.sets[static_cast<std::size_t>(i)]) {
      note(result.n_sets, fmt::format("token {} sees other keys or distances", i));
    }
  }

  for (std::size_t at = 0; at < golden.attended.size();) {  // runs of (i, h, key, distance) with equal (i, h)
    const int32_t i = golden.attended[at];
    const int32_t h = golden.attended[at + 1];
    std::vector<std::pair<int32_t, int32_t>> expected;
    for (; at < golden.attended.size() && golden.attended[at] == i && golden.attended[at + 1] == h; at += 4) {
      expected.push_back({golden.attended[at + 2], golden.attended[at + 3]});
    }
    if (i < run.size() && run.seen(i, h).keys != expected) {
      note(result.n_attended, fmt::format("query ({}, {}) sees other keys or distances", i, h));
    }
  }

  for (std::size_t row = 0; row < golden.out_rows.size(); ++row) {
    const int64_t i = golden.out_rows[row];
    if (i >= run.size()) continue;
    const int64_t n = shape.n_heads * shape.head_dim;
    for (int64_t x = 0; x < n; ++x) {
      compare_value(out_of(i, 0)[x],
                    golden.out[row * static_cast<std::size_t>(n) + static_cast<std::size_t>(x)], bound.out,
                    fmt::format("output {} of token {}", x, i));
    }
  }
  return result;
}

}  // namespace longheads
