// What ESA promises beside its definition: it is full attention while the text fits, its far keys stand at
// one distance, its local part begins where the chunk says; options that cannot apply are refused. The
// definition itself is held by the goldens (method_golden_test.cc).
#include "attention/esa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "attention/full.h"
#include "attention/registry.h"
#include "rope/frequencies.h"
#include "tests/support/method_golden.h"

namespace longheads {
namespace {

const AttentionKernels& Fastest() {
  return *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
}

constexpr HeadShape kShape{.n_heads = 4, .n_kv_heads = 2, .head_dim = 64};
constexpr int64_t kTokens = 75;
constexpr EsaOptions kOptions{
    .n_init = 3, .k = 7, .n_local = 12, .chunk = 8, .eps = 1, .score = EsaOptions::Score::kExact};

LayerSetup SetupOf(const Policy& policy, int64_t max_tokens = kTokens) {
  return {.policy = policy, .kernels = Fastest(), .shape = kShape, .max_tokens = max_tokens};
}

// Projections that leave q and k as they are.
std::shared_ptr<const EsaProjections> Identity() {
  const int64_t n = kShape.n_kv_heads * kShape.head_dim;
  EsaProjections::Layer layer{.q = std::vector<float>(static_cast<std::size_t>(n * n)), .k = {}};
  for (int64_t i = 0; i < n; ++i) layer.q[static_cast<std::size_t>(i * n + i)] = 1;
  layer.k = layer.q;
  return std::make_shared<EsaProjections>(
      EsaProjections{.distance = kOptions.n_local, .n_rows = n, .n_columns = n, .layers = {layer}});
}

class EsaTest : public testing::Test {
 protected:
  const Esa policy_{kOptions, kShape, nullptr};
  const LayerInputs inputs_ = UniformInputs(kShape, kTokens, 5);
  const LayerInputs others_ = UniformInputs(kShape, kTokens, 6);
};

TEST_F(EsaTest, EqualsFullAttentionWhileTheTextFits) {
  const FullAttention full(kShape, kTokens);
  OneLayer expected(SetupOf(full));
  expected.Prefill(inputs_, kTokens);
  const auto equal_rows = [&](const OneLayer& layer) {
    int64_t rows = 0;
    while (rows < layer.size() && layer.seen(rows, 0).keys == expected.seen(rows, 0).keys) ++rows;
    const double bound = 2 * BoundOf(inputs_, /*max_logit=*/12).out;  // both sides round
    for (int64_t x = 0; x < rows * kShape.n_heads * kShape.head_dim; ++x) {
      const auto at = static_cast<std::size_t>(x);
      EXPECT_NEAR(layer.out()[at], expected.out()[at], bound);
    }
    return rows;
  };
  OneLayer prefilled(SetupOf(policy_));
  prefilled.Prefill(inputs_, kTokens);
  EXPECT_EQ(equal_rows(prefilled), 8 * (12 / 8 + 1));
  OneLayer decoded(SetupOf(policy_));
  while (decoded.size() < kTokens) decoded.Decode(inputs_);
  EXPECT_EQ(equal_rows(decoded), 12 + 1);
}

TEST_F(EsaTest, SeesFarKeysAtOneDistanceAndLocalOnesFromWhereTheChunkSays) {
  OneLayer layer(SetupOf(policy_));
  layer.Prefill(inputs_, 70);
  for (const int64_t i : {64, 66, 69}) {  // of the chunk at 64: 52 tokens are left behind
    const auto& keys = layer.seen(i, 0).keys;
    ASSERT_EQ(keys.size(), static_cast<std::size_t>(3 + 7 + i - 52 + 1));
    for (std::size_t at = 0; at < 10; ++at) EXPECT_EQ(keys[at].second, 12);
    for (int32_t at = 0; at < 3; ++at) EXPECT_EQ(keys[static_cast<std::size_t>(at)].first, at);
    for (std::size_t at = 3; at < 10; ++at) {
      EXPECT_GT(keys[at].first, keys[at - 1].first);
      EXPECT_LT(keys[at].first, 52);
    }
    for (std::size_t at = 10; at < keys.size(); ++at) {
      EXPECT_EQ(keys[at], std::make_pair(static_cast<int32_t>(at + 42), static_cast<int32_t>(i - 42 - at)));
    }
    // The choice is the chunk's and all heads'.
    for (int64_t head = 0; head < kShape.n_heads; ++head) {
      const auto& others = layer.seen(i, head).keys;
      EXPECT_TRUE(std::equal(others.begin(), others.begin() + 10, layer.seen(64, 0).keys.begin()));
    }
  }
}

TEST_F(EsaTest, SeesAllOfTheMiddleWhereItHasNoMoreThanK) {
  EsaOptions options = kOptions;
  options.k = 49;  // 52 tokens are left behind at the last chunk, 3 of them the first
  const Esa all(options, kShape, nullptr);
  OneLayer layer(SetupOf(all));
  layer.Prefill(inputs_, 72);
  const auto& keys = layer.seen(71, 1).keys;
  ASSERT_EQ(keys.size(), 72u);
  for (std::size_t j = 0; j < 72; ++j) {
    EXPECT_EQ(keys[j], std::make_pair(static_cast<int32_t>(j), static_cast<int32_t>(j < 52 ? 12 : 71 - j)));
  }
}

TEST_F(EsaTest, ProjectionsThatKeepEverythingChooseAsExactScoresDo) {
  EsaOptions options = kOptions;
  options.score = EsaOptions::Score::kCompressed;
  options.dim = kShape.n_kv_heads * kShape.head_dim;
  const Esa compressed(options, kShape, Identity());
  OneLayer expected(SetupOf(policy_));
  OneLayer layer(SetupOf(compressed));
  for (OneLayer* const one : {&expected, &layer}) {
    one->Prefill(inputs_, 60);
    while (one->size() < kTokens) one->Decode(inputs_);
  }
  EXPECT_EQ(layer.out(), expected.out());
}

TEST_F(EsaTest, TheLargestScoreOfAHeadChoosesOtherwiseThanTheSum) {
  EsaOptions options = kOptions;
  options.share = EsaOptions::Share::kIndividual;
  const Esa individual(options, kShape, nullptr);
  OneLayer sum(SetupOf(policy_));
  OneLayer largest(SetupOf(individual));
  sum.Prefill(inputs_, kTokens);
  largest.Prefill(inputs_, kTokens);
  EXPECT_NE(sum.seen(74, 0).keys, largest.seen(74, 0).keys);
  EXPECT_EQ(sum.seen(74, 0).keys.size(), largest.seen(74, 0).keys.size());
}

TEST_F(EsaTest, ATruncatedSequenceForgetsWithoutATrace) {
  EsaOptions compressed_options = kOptions;
  compressed_options.score = EsaOptions::Score::kCompressed;
  compressed_options.dim = 16;
  const Esa compressed(compressed_options, kShape, Identity());
  for (const Esa* const policy : {&policy_, &compressed}) {
    for (int64_t n = 1; n < kTokens; n += 3) {
      OneLayer expected(SetupOf(*policy));
      expected.Prefill(inputs_, n);
      expected.Prefill(inputs_, kTokens - n);
      OneLayer layer(SetupOf(*policy));
      layer.Prefill(inputs_, n);
      OneLayer fork = layer.Fork();
      layer.Prefill(others_, kTokens - n);
      ASSERT_EQ(layer.RewindPoint(n), n);
      layer.Truncate(n);
      layer.Prefill(inputs_, kTokens - n);
      EXPECT_EQ(layer.out(), expected.out()) << n;
      fork.Prefill(inputs_, kTokens - n);
      EXPECT_EQ(fork.out(), expected.out()) << n;
    }
  }
}

TEST_F(EsaTest, StateBytesForeseesWhatTheStateHolds) {
  EsaOptions compressed_options = kOptions;
  compressed_options.score = EsaOptions::Score::kCompressed;
  compressed_options.dim = 16;
  const Esa compressed(compressed_options, kShape, Identity());
  for (const Esa* const policy : {&policy_, &compressed}) {
    for (const int64_t n : {0, 1, 255, 256, 257, 600}) {
      OneLayer layer(SetupOf(*policy, n + 1));
      if (n > 0) layer.Prefill(UniformInputs(kShape, n, 5), n);
      EXPECT_EQ(layer.state().Bytes(), policy->StateBytes(n)) << n;
    }
  }
  EXPECT_EQ(compressed.StateBytes(257), 4 * (2 * 256 * 16 + 7));
}

// Faults that the comparison with the twin must notice.
TEST(EsaMutations, AreNoticed) {
  const std::vector<std::function<void(const QueryBlock&, Plan&)>> mutations = {
      [](const QueryBlock&, Plan&) {},
      [](const QueryBlock&, Plan& plan) {  // a chosen token is another
        if (!plan.keys.empty()) plan.keys.back() += plan.keys.back() % 2 == 0 ? 1 : -1;
      },
      [](const QueryBlock&, Plan& plan) {  // far keys a token farther
        for (PlanRow& row : plan.rows) row.x += row.x == 32 ? 1 : 0;
      },
      [](const QueryBlock&, Plan& plan) {  // the local part slides inside the chunk
        for (PlanSegment& segment : plan.segments) {
          if (segment.absolute) segment.max_distance = 33;
        }
      },
      [](const QueryBlock&, Plan& plan) {  // the first tokens are forgotten
        std::erase_if(plan.segments,
                      [](const PlanSegment& segment) { return !segment.listed && !segment.absolute; });
      },
  };
  const MethodGolden golden = LoadMethodGolden("esa-mha");  // n_local = 32
  const auto layers = MakeAttention(
      golden.spec,
      {.shape = golden.inputs.shape, .trained_window = 512, .layout = PairLayout::kHalfSplit, .trained = {}});
  ASSERT_TRUE(layers) << layers.error().message;
  for (std::size_t m = 0; m < mutations.size(); ++m) {
    OneLayer layer({.policy = *(*layers)[0].policy,
                    .kernels = Fastest(),
                    .shape = golden.inputs.shape,
                    .base = golden.base,
                    .max_tokens = golden.inputs.n});
    layer.mutation = mutations[m];
    layer.Prefill(golden.inputs, *golden.n_prefill);
    while (layer.size() < golden.inputs.n) layer.Decode(golden.inputs);
    const MethodDifferences differences = Compare(golden, layer, 1);
    EXPECT_EQ(differences.none(), m == 0) << m << " " << differences.first;
    EXPECT_EQ(differences.n_outputs > 0, m > 0) << m;
  }
}

// ---- What the user is told

AttentionModel Model(int64_t trained_window, bool fitted = true) {
  AttentionModel model{.shape = kShape, .n_layers = 3, .trained_window = trained_window, .trained = {}};
  if (fitted) {
    model.esa_projections = [](int64_t distance) -> Result<std::shared_ptr<const EsaProjections>> {
      return std::make_shared<EsaProjections>(
          EsaProjections{.distance = distance,
                         .n_rows = 64,
                         .n_columns = 128,
                         .layers = std::vector<EsaProjections::Layer>(3)});
    };
  }
  return model;
}

TEST(EsaMethod, DefaultsFollowTheTrainedWindow) {
  const auto explain = [](const std::string& spec, int64_t trained) {
    const auto layers = MakeAttention(spec, Model(trained));
    return layers ? (*layers)[0].policy->Explain() : layers.error().message;
  };
  for (const int64_t trained : {8192, 131072}) {
    EXPECT_EQ(explain("esa", trained),
              "ESA: full attention up to token 4096; then each chunk of 512 tokens sees itself and the 4096 "
              "tokens before it, the first 128 of the text, and the 2048 tokens between that match it best "
              "(by compressed, dim 16, scores), these and the first ones at distance 4096");
  }
  EXPECT_EQ(explain("esa,score=exact", 2048),
            "ESA: full attention up to token 1024; then each chunk of 128 tokens sees itself and the 1024 "
            "tokens before it, the first 32 of the text, and the 512 tokens between that match it best (by "
            "exact scores), these and the first ones at distance 1024");
  EXPECT_NE(explain("esa", 2).find("each chunk of 1 tokens"), std::string::npos);
}

TEST(EsaMethod, RefusesWhatCannotApply) {
  const std::vector<std::tuple<std::string, int64_t, std::string>> cases = {
      {"esa,n_local=8000", 8192, "n_local=8000 and chunk=512 do not fit together in the model's window of 8192"},
      {"esa,chunk=1099511627776", 8192, "do not fit"},
      {"esa,n_local=1099511627776", 8192, "do not fit"},
      {"esa", 1, "do not fit together in the model's window of 1"},
      {"esa,k=0", 8192, "k must be at least 1"},
      {"esa,k=2m", 8192, "use at most k=1048576"},
      {"esa,eps=1001", 8192, "use at most eps=1000"},
      {"esa,dim=129", 8192, "more than the 128 dimensions"},
      {"esa,dim=65", 8192, "fitted for dim=64 at most"},
      {"esa,dim=0", 8192, "dim must be at least 1"},
      {"esa,score=full", 8192, "must be compressed or exact"},
      {"esa,share=each", 8192, "must be sum or individual"},
      {"esa,share=individual", 8192, "share=individual needs score=exact"},
      {"esa,tokens=4", 8192, "esa has no option 'tokens'"},
  };
  for (const auto& [spec, trained, expected] : cases) {
    const auto layers = MakeAttention(spec, Model(trained));
    ASSERT_FALSE(layers) << spec;
    EXPECT_NE(layers.error().message.find(expected), std::string::npos) << layers.error().message;
  }
  EXPECT_TRUE(MakeAttention("esa,n_local=7680,n_init=0,eps=0", Model(8192)));
}

TEST(EsaMethod, NeedsAFittedCompressionUnlessScoresAreExact) {
  const auto layers = MakeAttention("esa", Model(8192, /*fitted=*/false));
  ASSERT_FALSE(layers);
  EXPECT_NE(layers.error().message.find("score=exact"), std::string::npos) << layers.error().message;
  EXPECT_TRUE(MakeAttention("esa,score=exact", Model(8192, /*fitted=*/false)));
}

}  // namespace
}  // namespace longheads
