#include "tests/support/longheads_golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace longheads {
namespace {

const std::string kFolder = LONGHEADS_SOURCE_DIR "/tests/golden/longheads/";

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

// The largest Euclidean norm of a row.
double LargestNorm(const std::vector<float>& rows, int64_t d) {
  double largest = 0;
  for (std::size_t row = 0; row < rows.size(); row += static_cast<std::size_t>(d)) {
    double squares = 0;
    for (std::size_t m = row; m < row + static_cast<std::size_t>(d); ++m) {
      squares += static_cast<double>(rows[m]) * rows[m];
    }
    largest = std::max(largest, squares);
  }
  return std::sqrt(largest);
}

double Project(const float* row, int64_t d) {
  const std::vector<float> direction = Uniform("projection", 0, d);
  double sum = 0;
  for (int64_t m = 0; m < d; ++m) sum += static_cast<double>(direction[static_cast<std::size_t>(m)]) * row[m];
  return sum;
}

}  // namespace

std::vector<float> Uniform(std::string_view name, uint64_t seed, int64_t n) {
  uint64_t state = 0xcbf29ce484222325;
  for (const char c : name) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  state ^= seed;
  std::vector<float> values;
  for (int64_t x = 0; x < n; ++x) {
    uint64_t z = state + (static_cast<uint64_t>(x) + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    values.push_back(static_cast<float>(static_cast<double>(z >> 40) * 0x1p-23 - 1));
  }
  return values;
}

LayerInputs UniformInputs(const HeadShape& shape, int64_t n, uint64_t seed) {
  LayerInputs inputs{.shape = shape,
                     .n = n,
                     .q = Uniform("q", seed, n * shape.n_heads * shape.head_dim),
                     .k = Uniform("k", seed, n * shape.n_kv_heads * shape.head_dim),
                     .v = Uniform("v", seed, n * shape.n_kv_heads * shape.head_dim)};
  for (float& q : inputs.q) q *= 3;
  for (float& k : inputs.k) k *= 2;
  for (float& v : inputs.v) v *= 4;
  return inputs;
}

ErrorBound BoundOf(const LayerInputs& inputs, double max_logit, double logit_error, double value_error) {
  const double d = static_cast<double>(inputs.shape.head_dim);
  // One rounding is off by 2^-24 of its result at most, with a standard deviation of 1 / sqrt(3) of that; n
  // roundings of a sum whose parts stay below s by 2^-24 s sqrt(n / 3).
  const auto deviation = [](double roundings, double size) {
    return 0x1p-24 * size * std::sqrt(roundings / 3);
  };
  // A logit is a sum of d products; rotating both factors and scaling are about 16 roundings more, and the
  // largest logit is subtracted.
  const double logit = deviation(d + 16, max_logit) + deviation(1, 2 * max_logit);
  // A page's probabilities and its weighted values are sums of 256; exp and the merges of pages are as many
  // again. With probabilities p the output is off by sum p_j (e_j - e) v_j, where e is the mean of the
  // logits' errors: below |v| times the deviation of one.
  const double sums = 2 * deviation(512, 1);
  const double relative = 6 * (logit + sums) + std::expm1(2 * logit_error) + value_error;
  double largest = 0;
  for (const float v : inputs.v) largest = std::max(largest, std::abs(static_cast<double>(v)));
  double largest_projection = 0;
  for (std::size_t row = 0; row < inputs.v.size(); row += static_cast<std::size_t>(inputs.shape.head_dim)) {
    largest_projection =
        std::max(largest_projection, std::abs(Project(inputs.v.data() + row, inputs.shape.head_dim)));
  }
  const double direction =
      LargestNorm(Uniform("projection", 0, inputs.shape.head_dim), inputs.shape.head_dim);
  return {.out = largest * relative,
          .projection = largest_projection * relative + direction * largest * 6 * sums};
}

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
    golden.base = entry.at("base");
    if (!entry.at("n_prefill").is_null()) golden.n_prefill = entry.at("n_prefill").get<int64_t>();
    golden.lengths = entry.at("lengths").get<std::vector<int64_t>>();
    golden.out_rows = entry.at("out_rows").get<std::vector<int64_t>>();
    golden.max_logit = entry.at("max_logit");
    const HeadShape shape{.n_heads = entry.at("n_heads"),
                          .n_kv_heads = entry.at("n_kv_heads"),
                          .head_dim = entry.at("head_dim")};
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
