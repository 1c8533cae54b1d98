// What is recorded is what was attended to: against the naive twins' key sets, for every method that chooses;
// and that choices are the best of their candidates, and are seen, and nothing else of the candidates.
#include "attention/selection_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "attention/longheads.h"
#include "attention/registry.h"
#include "rope/frequencies.h"
#include "tests/support/longheads_golden.h"
#include "tests/support/method_case.h"
#include "tests/support/method_golden.h"
#include "tests/support/one_layer.h"

namespace longheads {
namespace {

using Row = std::pair<int64_t, int64_t>;  // position, head

std::vector<int32_t> KeysOf(const HeadSelection& head) {
  std::vector<int32_t> keys;
  for (const KeyRange& run : head.seen) {
    for (int64_t j = run.begin; j < run.end; ++j) keys.push_back(static_cast<int32_t>(j));
  }
  return keys;
}

// The keys of every row that a golden lists.
std::map<Row, std::vector<int32_t>> Listed(const std::vector<int32_t>& attended) {
  std::map<Row, std::vector<int32_t>> rows;
  for (std::size_t at = 0; at < attended.size(); at += 4) {
    rows[{attended[at], attended[at + 1]}].push_back(attended[at + 2]);
  }
  for (auto& [row, keys] : rows) {
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());  // some definitions count a key twice
  }
  return rows;
}

// Keeps every choice, and passes what it hears on.
struct ChoiceKeeper : SelectionObserver {
  struct Choice {
    int64_t first;
    int64_t n_candidates;
    std::vector<int32_t> taken;
    std::vector<float> scores;
    std::vector<float> taken_scores;
  };
  SelectionObserver* next = nullptr;
  std::mutex mutex;
  std::map<Row, Choice> choices;

  void OnChoice(const BlockChoice& c) override {
    next->OnChoice(c);
    const std::scoped_lock lock(mutex);
    for (int64_t i = c.token_begin; i < c.token_end; ++i) {
      for (int64_t h = c.head_begin; h < c.head_end; ++h) {
        choices[{i, h}] = {c.first,
                           c.n_candidates,
                           {c.taken.begin(), c.taken.end()},
                           {c.scores.begin(), c.scores.end()},
                           {c.taken_scores.begin(), c.taken_scores.end()}};
      }
    }
  }
  void OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) override {
    next->OnPlan(policy, block, phase, plan);
  }
  void OnLayerDone(int64_t layer) override { next->OnLayerDone(layer); }
};

struct Recorded {
  std::map<Row, HeadSelection> rows;
  std::map<Row, ChoiceKeeper::Choice> choices;
  std::vector<int64_t> order;
};

struct Feeding {
  std::vector<int64_t> calls;  // of the prefill
  int64_t n = 0;               // the rest is decoded
};

// Runs a text on two threads with a recorder from `from` on.
Recorded Record(LayerSetup setup, const LayerInputs& inputs, const Feeding& feeding, int64_t from) {
  Recorded recorded;
  SelectionRecorder recorder(1, inputs.shape, from, [&](const TokenSelection& token) {
    recorded.order.push_back(token.position);
    for (std::size_t h = 0; h < token.heads.size(); ++h) {
      recorded.rows[{token.position, static_cast<int64_t>(h)}] = token.heads[h];
    }
  });
  ChoiceKeeper keeper;
  keeper.next = &recorder;
  setup.n_threads = 2;
  OneLayer layer(setup);
  layer.observer = &keeper;
  for (const int64_t call : feeding.calls) layer.Prefill(inputs, call, /*query_block=*/24);
  while (layer.size() < feeding.n) layer.Decode(inputs);
  recorded.choices = std::move(keeper.choices);
  return recorded;
}

void ExpectEqualsTwin(const Recorded& recorded, const std::vector<int32_t>& attended, int64_t from) {
  int64_t n_compared = 0;
  for (const auto& [row, keys] : Listed(attended)) {
    if (row.first < from) continue;
    ++n_compared;
    const auto found = recorded.rows.find(row);
    ASSERT_NE(found, recorded.rows.end()) << row.first << " " << row.second;
    ASSERT_EQ(KeysOf(found->second), keys) << row.first << " " << row.second;
  }
  EXPECT_GT(n_compared, 0);
}

// Of the candidates a row sees what was taken and nothing else; none that was left is better than one taken;
// the recorder keeps what was said.
void ExpectChoicesAreSeen(const Recorded& recorded, const BlockGrid& grid, int64_t from, float sign) {
  for (const auto& [row, choice] : recorded.choices) {
    if (row.first < from) continue;
    const HeadSelection& head = recorded.rows.at(row);
    std::set<int32_t> expected, seen;
    float worst_taken = std::numeric_limits<float>::infinity();
    float best_left = -std::numeric_limits<float>::infinity();
    for (int64_t b = choice.first; b < choice.first + choice.n_candidates; ++b) {
      const bool taken = std::ranges::binary_search(choice.taken, static_cast<int32_t>(b));
      for (int64_t j = grid.Begin(b); j < std::min(grid.Begin(b + 1), row.first + 1); ++j) {
        if (taken) expected.insert(static_cast<int32_t>(j));
      }
      if (choice.scores.empty()) continue;
      const float score = sign * choice.scores[static_cast<std::size_t>(b - choice.first)];
      if (taken) worst_taken = std::min(worst_taken, score);
      if (!taken) best_left = std::max(best_left, score);
    }
    for (const int32_t j : KeysOf(head)) {
      if (j >= grid.Begin(choice.first) && j < grid.Begin(choice.first + choice.n_candidates)) seen.insert(j);
    }
    ASSERT_EQ(seen, expected) << row.first << " " << row.second;
    ASSERT_LE(best_left, worst_taken);
    ASSERT_EQ(head.taken.size(), choice.taken.size());
    for (std::size_t i = 0; i < choice.taken.size(); ++i) {
      ASSERT_EQ(head.taken[i].block, choice.taken[i]);
      if (!choice.taken_scores.empty()) {
        ASSERT_EQ(head.taken[i].score, choice.taken_scores[i]);
      } else if (!choice.scores.empty()) {
        ASSERT_EQ(head.taken[i].score,
                  choice.scores[static_cast<std::size_t>(choice.taken[i] - choice.first)]);
      } else {
        ASSERT_TRUE(std::isnan(head.taken[i].score));
      }
    }
  }
}

class RecordedMethod : public testing::TestWithParam<std::string> {};

TEST_P(RecordedMethod, EqualsWhatTheTwinAttendsTo) {
  int64_t n_choices = 0;
  for (const std::string& name : MethodGoldenNames(GetParam())) {
    const MethodGolden golden = LoadMethodGolden(name);
    // Another layer's goldens want that layer's inputs too, compressed scores a fit.
    if (golden.layer != 0 || golden.extra.contains("projections")) continue;
    SCOPED_TRACE(name);
    const LayerAttention attention = AttentionOf(golden, PairLayout::kHalfSplit);
    const Policy& policy = *attention.policy;
    const LayerSetup setup{
        .policy = policy,
        .kernels = *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table,
        .shape = golden.inputs.shape,
        .frequencies = attention.frequencies,
        .max_tokens = golden.inputs.n};
    const int64_t n = golden.inputs.n;
    const Feeding feeding{.calls = golden.calls.value_or(std::vector<int64_t>{golden.n_prefill.value_or(n)}),
                          .n = n};
    for (const int64_t from : {int64_t{0}, n - 2}) {
      const Recorded recorded = Record(setup, golden.inputs, feeding, from);
      ASSERT_EQ(recorded.order.size(), static_cast<std::size_t>(n - from));
      EXPECT_TRUE(std::ranges::is_sorted(recorded.order));
      ExpectEqualsTwin(recorded, golden.attended, from);
      if (recorded.choices.empty()) continue;
      n_choices += static_cast<int64_t>(recorded.choices.size());
      ASSERT_TRUE(policy.Blocks());
      const bool worst = golden.spec.find("choose=last-k") != std::string::npos;
      ExpectChoicesAreSeen(recorded, *policy.Blocks(), from, worst ? -1.0f : 1.0f);
    }
  }
  const bool chooses = GetParam() != "full" && GetParam() != "self-extend" && GetParam() != "streaming-llm" &&
                       GetParam() != "rerope";
  EXPECT_EQ(n_choices > 0, chooses);
}

INSTANTIATE_TEST_SUITE_P(Methods, RecordedMethod,
                         testing::Values("longheads", "infllm", "quest", "moba", "landmark", "esa",
                                         "lm-infinite", "full", "self-extend", "streaming-llm", "rerope"),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class RecordedLongHeads : public testing::TestWithParam<std::string> {};

TEST_P(RecordedLongHeads, EqualsWhatTheTwinAttendsTo) {
  const LongHeadsGolden golden = LoadLongHeadsGolden(GetParam());
  const LongHeads policy(golden.options, golden.inputs.shape, PairLayout::kHalfSplit, golden.options.begin);
  const LayerSetup setup{
      .policy = policy,
      .kernels = *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table,
      .shape = golden.inputs.shape,
      .frequencies = golden.frequencies,
      .max_tokens = golden.inputs.n};
  const int64_t n = golden.inputs.n;
  const int64_t from = std::max<int64_t>(0, n - 300);
  const Recorded recorded =
      Record(setup, golden.inputs, {.calls = {golden.n_prefill.value_or(n)}, .n = n}, from);
  ASSERT_EQ(recorded.order.size(), static_cast<std::size_t>(n - from));
  ExpectEqualsTwin(recorded, golden.attended, from);
  ExpectChoicesAreSeen(recorded, *policy.Blocks(), from, 1);
  // What is seen and was not taken is the first chunk, the one before the token's own, and its own.
  if (golden.options.compat.own_key || golden.options.compat.chunk_end) return;
  for (const auto& [row, choice] : recorded.choices) {
    if (row.first < from) continue;
    const int64_t own = row.first / golden.options.chunk;
    std::set<int64_t> chunks;
    for (const int32_t j : KeysOf(recorded.rows.at(row))) chunks.insert(j / golden.options.chunk);
    std::set<int64_t> expected(choice.taken.begin(), choice.taken.end());
    expected.insert({0, own - 1, own});
    ASSERT_EQ(chunks, expected) << row.first;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, RecordedLongHeads,
                         testing::Values("mha", "gqa-head-head", "gqa-head-kv", "gqa-kv-head", "chunks-of-32",
                                         "chunks-of-256", "compat-all-decode-late", "compat-own-key",
                                         "tie-repeated", "no-free-choice"),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(SelectionRecorder, ListeningChangesNoBit) {
  const auto policy = MakeCase("longheads,chunk=16,window=64,begin=64", 128);
  const LayerInputs inputs = UniformInputs(kCaseShape, 200, 3);
  OneLayer heard(CaseSetup(*policy, 200)), alone(CaseSetup(*policy, 200));
  SelectionRecorder recorder(1, kCaseShape, 0, [](const TokenSelection&) {});
  heard.observer = &recorder;
  for (OneLayer* layer : {&heard, &alone}) {
    layer->Prefill(inputs, 150);
    while (layer->size() < 200) layer->Decode(inputs);
  }
  EXPECT_EQ(heard.out(), alone.out());
}

// Calls that fail within a layer, and are made again.
TEST(SelectionRecorder, ForgetsWhatWasNotFinished) {
  const auto policy = MakeCase("moba,chunk=8,top_k=3,decode=gated", 128);
  std::vector<int64_t> positions;
  SelectionRecorder recorder(2, kCaseShape, 0,
                             [&](const TokenSelection& token) { positions.push_back(token.position); });
  const auto feed = [&](int64_t layer, int64_t position) {
    const QueryToken token{.sequence = 0, .position = position, .q = nullptr, .out = nullptr};
    for (int64_t kv_head = 0; kv_head < kCaseShape.n_kv_heads; ++kv_head) {
      Plan plan;
      const QueryBlock block{
          .layer = layer, .kv_head = kv_head, .tokens = std::span(&token, 1), .sequences = {}};
      recorder.OnPlan(*policy, block, Phase::kDecode, plan);
    }
    recorder.OnLayerDone(layer);
  };
  feed(0, 7);
  feed(0, 8);
  feed(0, 9);  // no layer follows
  feed(0, 7);
  feed(1, 7);
  feed(0, 8);
  feed(0, 9);
  feed(1, 9);
  feed(0, 8);
  feed(1, 8);
  EXPECT_EQ(positions, (std::vector<int64_t>{7, 9, 8}));
}

}  // namespace
}  // namespace longheads
