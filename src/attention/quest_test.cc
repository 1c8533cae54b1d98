// What Quest promises beside its definition, which the goldens of its twin hold: limits, the bound that its
// choice rests on, what users are told, and that the goldens notice changes.
#include "attention/quest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "attention/full.h"
#include "attention/registry.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/method_golden.h"

namespace longheads {
namespace {

constexpr HeadShape kShape{.n_heads = 4, .n_kv_heads = 2, .head_dim = 64};
constexpr int64_t kTokens = 150;
constexpr QuestOptions::Rule kRules[] = {QuestOptions::Rule::kKernel, QuestOptions::Rule::kEvaluation};

LayerSetup SetupOf(const Policy& policy, int64_t max_tokens = kTokens) {
  return {.policy = policy,
          .kernels = *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table,
          .shape = kShape,
          .max_tokens = max_tokens};
}

Quest Choosing(int64_t page, int64_t budget, QuestOptions::Rule rule = QuestOptions::Rule::kKernel) {
  return Quest({.page = page, .budget = budget, .rule = rule}, /*dense=*/false, kShape, 1000);
}

// The first n_prefill tokens in prefill, the others decoded.
OneLayer Feed(const LayerSetup& setup, const LayerInputs& inputs, int64_t n_prefill, int64_t n = kTokens) {
  OneLayer layer(setup);
  layer.Prefill(inputs, n_prefill);
  while (layer.size() < n) layer.Decode(inputs);
  return layer;
}

TEST(Quest, EqualsFullAttentionWhileAllPagesAreSeen) {
  const LayerInputs inputs = UniformInputs(kShape, kTokens, 5);
  const FullAttention full(kShape, 1000);
  const OneLayer expected = Feed(SetupOf(full), inputs, 100);
  for (const auto& quest : {Choosing(16, 160), Choosing(7, 154),
                            Quest({.page = 16, .budget = 16}, /*dense=*/true, kShape, 1000)}) {
    EXPECT_EQ(Feed(SetupOf(quest), inputs, 100).out(), expected.out());
  }
  for (const QuestOptions::Rule rule : kRules) {
    const Quest quest = Choosing(16, 144, rule);
    const OneLayer layer = Feed(SetupOf(quest), inputs, 20);
    for (int64_t i = 20; i < kTokens; ++i) {
      const int64_t n = i + 1;
      const int64_t may_see =
          rule == QuestOptions::Rule::kKernel ? 9 : std::max<int64_t>(3, std::min<int64_t>(n, 144) / 16);
      EXPECT_EQ(layer.seen(i, 1).keys == expected.seen(i, 1).keys, may_see >= (n + 15) / 16) << i;
    }
  }
}

TEST(Quest, ReadsPromptsWithFullAttention) {
  const LayerInputs inputs = UniformInputs(kShape, kTokens, 5);
  const FullAttention full(kShape, 1000);
  const Quest quest = Choosing(8, 24);
  EXPECT_EQ(Feed(SetupOf(quest), inputs, kTokens).out(), Feed(SetupOf(full), inputs, kTokens).out());
}

// Keys are zero but in page 1, where they are the opposite of what token 17 looks for; one of them is not.
TEST(Quest, SeesThePageThatMightMatchBestAndTheNewest) {
  LayerInputs inputs{
      .shape = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 64}, .n = 18, .q = {}, .k = {}, .v = {}};
  inputs.q.assign(18 * 64, 0);
  inputs.k.assign(18 * 64, 0);
  inputs.v.assign(18 * 64, 1);
  inputs.q[17 * 64 + 31] = 1;  // of a pair that hardly turns
  for (std::size_t j = 4; j < 8; ++j) inputs.k[j * 64 + 31] = j == 6 ? 0.1f : -5.0f;
  using Keys = std::vector<std::pair<int32_t, int32_t>>;
  for (const QuestOptions::Rule rule : kRules) {
    const Quest quest({.page = 4, .budget = 8, .rule = rule}, /*dense=*/false, inputs.shape, 100);
    LayerSetup setup = SetupOf(quest);
    setup.shape = inputs.shape;
    const OneLayer layer = Feed(setup, inputs, 16, 18);
    const auto seen = [&](int64_t i) { return layer.seen(i, 0).keys; };
    if (rule == QuestOptions::Rule::kKernel) {
      EXPECT_EQ(seen(16), (Keys{{0, 16}, {1, 15}, {2, 14}, {3, 13}, {16, 0}}));
      EXPECT_EQ(seen(17), (Keys{{4, 13}, {5, 12}, {6, 11}, {7, 10}, {16, 1}, {17, 0}}));
    } else {  // at least three pages; the newest is one of many that promise nothing
      EXPECT_EQ(seen(17).size(), 12u);
      EXPECT_EQ(seen(17)[0], std::make_pair(0, 17));
      EXPECT_EQ(seen(17)[4], std::make_pair(4, 13));
      EXPECT_EQ(seen(17).back(), std::make_pair(11, 6));
    }
  }
}

TEST(Quest, TheEvaluationRuleDropsAPageBeforeTheBudgetIsFull) {
  const LayerInputs inputs = UniformInputs(kShape, 70, 5);
  const Quest quest = Choosing(16, 64, QuestOptions::Rule::kEvaluation);
  const OneLayer layer = Feed(SetupOf(quest), inputs, 40, 70);
  for (int64_t i = 40; i < 70; ++i) {
    const std::size_t n_pages = static_cast<std::size_t>(i) / 16 + 1;
    std::set<int32_t> pages;
    for (const auto& [key, distance] : layer.seen(i, 0).keys) pages.insert(key / 16);
    EXPECT_EQ(pages.size(), i + 1 < 49 ? n_pages : i + 1 < 64 ? 3 : 4) << i;
  }
}

// No key that is left out meets the query better than a page that is seen might.
TEST(Quest, ABoundOfAPageIsAboveItsEveryKey) {
  const LayerInputs inputs = UniformInputs(kShape, kTokens, 9);
  constexpr int64_t d = kShape.head_dim;
  const auto rotate = [](const float* x, int64_t position) {
    std::vector<double> y(static_cast<std::size_t>(d));
    for (int64_t m = 0; m < d / 2; ++m) {
      const double angle = static_cast<double>(position) *
                           std::pow(10000.0, -2.0 * static_cast<double>(m) / static_cast<double>(d));
      y[static_cast<std::size_t>(m)] = x[m] * std::cos(angle) - x[m + d / 2] * std::sin(angle);
      y[static_cast<std::size_t>(m + d / 2)] = x[m + d / 2] * std::cos(angle) + x[m] * std::sin(angle);
    }
    return y;
  };
  constexpr int64_t kPage = 10;
  const Quest quest = Choosing(kPage, 5 * kPage);
  const OneLayer layer = Feed(SetupOf(quest), inputs, 60);
  for (int64_t i = 60; i < kTokens; i += 7) {
    for (int64_t h = 0; h < kShape.n_heads; ++h) {
      const std::vector<double> q = rotate(inputs.q.data() + (i * kShape.n_heads + h) * d, i);
      const auto key = [&](int64_t j) {
        return rotate(inputs.k.data() + (j * kShape.n_kv_heads + h / kShape.group()) * d, j);
      };
      std::set<int64_t> seen;
      for (const auto& [j, distance] : layer.seen(i, h).keys) seen.insert(j / kPage);
      ASSERT_EQ(seen.size(), 5u);
      double least_bound = 1e9, best_left = -1e9;
      for (int64_t page = 0; page < i / kPage; ++page) {
        double bound = 0;
        std::vector<double> lowest(q.size(), 1e9), highest(q.size(), -1e9);
        for (int64_t j = page * kPage; j < (page + 1) * kPage; ++j) {
          const std::vector<double> k = key(j);
          double product = 0;
          for (std::size_t m = 0; m < q.size(); ++m) {
            product += q[m] * k[m];
            lowest[m] = std::min(lowest[m], k[m]);
            highest[m] = std::max(highest[m], k[m]);
          }
          if (!seen.contains(page)) best_left = std::max(best_left, product);
        }
        for (std::size_t m = 0; m < q.size(); ++m) bound += std::max(q[m] * lowest[m], q[m] * highest[m]);
        if (seen.contains(page)) least_bound = std::min(least_bound, bound);
      }
      EXPECT_LT(best_left, least_bound + 1e-4) << i << " " << h;
    }
  }
}

// Over more than one group of pages that lie together, in float32 and in bfloat16.
TEST(Quest, GoesBackToAnyTokenWithoutATrace) {
  const LayerInputs inputs = UniformInputs(kShape, kTokens, 5);
  const LayerInputs others = UniformInputs(kShape, kTokens, 6);
  for (const QuestOptions::Rule rule : kRules) {
    const Quest quest = Choosing(2, 12, rule);
    for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8}) {
      LayerSetup setup = SetupOf(quest);
      setup.kv = type;
      const OneLayer whole = Feed(setup, inputs, 60);
      for (const int64_t m : {60, 61, 127, 128, 129, 149}) {
        OneLayer layer = Feed(setup, inputs, 60, m);
        OneLayer fork = layer.Fork();
        layer.Prefill(others, kTokens - m);
        ASSERT_EQ(layer.RewindPoint(m), m);
        layer.Truncate(m);
        while (layer.size() < kTokens) layer.Decode(inputs);
        while (fork.size() < kTokens) fork.Decode(inputs);
        ASSERT_EQ(layer.out(), whole.out()) << m;
        ASSERT_EQ(fork.out(), whole.out()) << m;
      }
    }
  }
}

TEST(Quest, StateBytesForeseesWhatTheStateHolds) {
  const Quest quest = Choosing(3, 12);
  const Quest dense({}, /*dense=*/true, kShape, 1000);
  EXPECT_EQ(dense.StateBytes(1000), 0u);
  for (const int64_t n : {1, 3, 191, 192, 195, 400}) {
    const LayerInputs inputs = UniformInputs(kShape, n, 5);
    OneLayer layer(SetupOf(quest, n));
    layer.Prefill(inputs, n);
    EXPECT_EQ(layer.state().Bytes(), quest.StateBytes(n)) << n;
  }
}

TEST(Quest, GoldensNoticeChanges) {
  for (const char* const name : {"quest-mha", "quest-gqa", "quest-evaluation-mqa"}) {
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) {
      if (plan.keys.empty()) return;
      for (PlanRow& row : plan.rows) ++row.x;
    }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) {  // without a key
      if (!plan.keys.empty()) --plan.segments.back().key_end;
    }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) {  // the page before
      for (std::size_t i = 0; i < plan.keys.size() && i < 8; ++i) plan.keys[i] += plan.keys[i] < 8 ? 8 : -8;
    }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) {  // a head that sees no more than it shares
      if (!plan.keys.empty()) plan.segments.erase(plan.segments.begin());
    }));
  }
}

AttentionModel Model(int64_t trained_window) {
  return {.shape = kShape,
          .n_layers = 4,
          .trained_window = trained_window,
          .trained = {.theta = std::vector<double>(32, 0.5), .amplitude = 1}};
}

TEST(Quest, LeavesTheFirstLayersDense) {
  for (const auto& [spec, n_dense] : std::vector<std::pair<std::string, std::size_t>>{
           {"quest", 2}, {"quest,dense_layers=0", 0}, {"quest,dense_layers=4", 4}}) {
    const auto layers = MakeAttention(spec, Model(8192));
    ASSERT_TRUE(layers) << layers.error().message;
    ASSERT_EQ(layers->size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      const Policy& policy = *(*layers)[i].policy;
      EXPECT_EQ(policy.StateBytes(1000) == 0, i < n_dense) << spec << " " << i;
      EXPECT_EQ(policy.Explain(), layers->front().policy->Explain());
    }
  }
  AttentionModel one_layer = Model(8192);
  one_layer.n_layers = 1;
  EXPECT_TRUE(MakeAttention("quest", one_layer));
}

TEST(Quest, DefaultsAreThePapersOrAnEighthOfTheWindow) {
  const auto expect = [](const std::string& spec, int64_t trained, int64_t n_pages, int64_t page) {
    const auto layers = MakeAttention(spec, Model(trained));
    ASSERT_TRUE(layers) << layers.error().message;
    const std::string text = layers->front().policy->Explain();
    EXPECT_NE(text.find(fmt::format("past {} see the {} pages of {} ", n_pages * page, n_pages, page)),
              std::string::npos)
        << text;
  };
  expect("quest", 32768, 64, 16);
  expect("quest", 8192, 64, 16);
  expect("quest", 4096, 32, 16);
  expect("quest", 128, 3, 16);
  expect("quest,page=100", 8192, 10, 100);
  expect("quest,page=100,budget=250", 8192, 2, 100);
  expect("quest,budget=16", 8192, 1, 16);
  expect("quest,budget=16,rule=evaluation", 8192, 3, 16);
}

TEST(Quest, RefusesWhatCannotApply) {
  for (const auto& [spec, expected] : std::vector<std::pair<std::string, std::string>>{
           {"quest,page=0", "page must be at least 1"},
           {"quest,page=8193", "use at most page=8192"},
           {"quest,budget=15", "budget=15 does not hold one page of 16: try budget=48"},
           {"quest,dense_layers=5", "dense_layers=5 is more than the 4 layers"},
           {"quest,rule=paper", "rule is 'paper', but must be kernel or evaluation"},
           {"quest,pages=3", "did you mean 'page'"}}) {
    const auto layers = MakeAttention(spec, Model(8192));
    ASSERT_FALSE(layers) << spec;
    EXPECT_NE(layers.error().message.find(expected), std::string::npos) << layers.error().message;
  }
  AttentionModel many = Model(8192);
  many.shape = {.n_heads = 65, .n_kv_heads = 1, .head_dim = 64};
  EXPECT_FALSE(MakeAttention("quest", many));
  many.shape = {.n_heads = 64, .n_kv_heads = 1, .head_dim = 64};
  EXPECT_TRUE(MakeAttention("quest", many));
}

TEST(Quest, WarnsPastTheTrainedWindow) {
  const Quest quest = Choosing(16, 48);
  EXPECT_EQ(quest.Warning(1000), "");
  EXPECT_NE(quest.Warning(1001).find("1000"), std::string::npos);
}

}  // namespace
}  // namespace longheads
