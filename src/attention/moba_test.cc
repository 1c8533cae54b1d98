// What MoBA promises beside its definition, which the goldens of its twin hold: limits, what users are told,
// and that the goldens notice changes.
#include "attention/moba.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "attention/full.h"
#include "attention/registry.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/method_golden.h"

namespace longheads {
namespace {

constexpr HeadShape kShape{.n_heads = 4, .n_kv_heads = 2, .head_dim = 64};
constexpr int64_t kTokens = 150;

LayerSetup SetupOf(const Policy& policy, int64_t max_tokens = kTokens) {
  return {.policy = policy,
          .kernels = *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table,
          .shape = kShape,
          .max_tokens = max_tokens};
}

Moba Gated(int64_t chunk, int64_t top_k) {
  return Moba({.chunk = chunk, .top_k = top_k, .gate_decode = true}, kShape, 1000);
}

TEST(Moba, LeavesTheLastLayersToFullAttention) {
  AttentionModel model;
  model.n_layers = 5;
  model.shape = kShape;
  model.trained_window = model.window = 1000;
  model.trained = *TrainedFrequencies(10000, kShape.head_dim, {});
  const auto layers = MakeAttention("moba,full_layers=2", model);
  ASSERT_TRUE(layers) << layers.error().message;
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(layers->at(i).policy->Blocks().has_value(), i < 3) << i;  // full attention chooses none
  const auto refused = MakeAttention("moba,full_layers=6", model);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("more than the 5 layers"), std::string::npos);
}

TEST(Moba, EqualsFullAttentionWhileAllBlocksAreSeen) {
  const LayerInputs inputs = UniformInputs(kShape, kTokens, 5);
  const FullAttention full(kShape, 1000);
  OneLayer expected(SetupOf(full));
  expected.Prefill(inputs, kTokens - 5);
  while (expected.size() < kTokens) expected.Decode(inputs);
  for (const auto& [chunk, top_k] :
       {std::pair(15, 10), std::pair(16, 10), std::pair(150, 1), std::pair(7, 99)}) {
    const Moba moba = Gated(chunk, top_k);
    OneLayer layer(SetupOf(moba));
    layer.Prefill(inputs, kTokens - 5);
    while (layer.size() < kTokens) layer.Decode(inputs);
    EXPECT_EQ(layer.out(), expected.out()) << chunk;
  }
}

// Keys are zero but in block 1, where they are what token 17 looks for on a pair that hardly turns.
TEST(Moba, SeesItsOwnBlockAndTheOneWhoseMeanKeyMatches) {
  LayerInputs inputs{
      .shape = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 64}, .n = 18, .q = {}, .k = {}, .v = {}};
  inputs.q.assign(18 * 64, 0);
  inputs.k.assign(18 * 64, 0);
  inputs.v.assign(18 * 64, 1);
  inputs.q[17 * 64 + 31] = 1;
  for (std::size_t j = 4; j < 8; ++j) inputs.k[j * 64 + 31] = 1;
  const Moba moba({.chunk = 4, .top_k = 2}, inputs.shape, 100);
  LayerSetup setup = SetupOf(moba);
  setup.shape = inputs.shape;
  OneLayer layer(setup);
  layer.Prefill(inputs, 18);
  EXPECT_EQ(layer.seen(17, 0).keys,
            (std::vector<std::pair<int32_t, int32_t>>{{4, 13}, {5, 12}, {6, 11}, {7, 10}, {16, 1}, {17, 0}}));
  // No key matches: the lowest block.
  EXPECT_EQ(layer.seen(16, 0).keys,
            (std::vector<std::pair<int32_t, int32_t>>{{0, 16}, {1, 15}, {2, 14}, {3, 13}, {16, 0}}));
}

TEST(Moba, GeneratedTokensSeeEverythingUnlessTheyAreGated) {
  const LayerInputs inputs = UniformInputs(kShape, kTokens, 5);
  for (const bool gate : {false, true}) {
    const Moba moba({.chunk = 16, .top_k = 3, .gate_decode = gate}, kShape, 1000);
    OneLayer layer(SetupOf(moba));
    layer.Prefill(inputs, 140);
    layer.Decode(inputs);
    EXPECT_EQ(layer.seen(139, 0).keys.size(), 2u * 16 + 139 % 16 + 1);
    EXPECT_EQ(layer.seen(140, 0).keys.size(), gate ? 2u * 16 + 140 % 16 + 1 : 141u);
    layer.Prefill(inputs, 1);  // a prompt token again
    EXPECT_EQ(layer.seen(141, 0).keys.size(), 2u * 16 + 141 % 16 + 1);
  }
}

// Over more than one group of means that lie together, in float32 and in bfloat16.
TEST(Moba, GoesBackToAnyTokenWithoutATrace) {
  const LayerInputs inputs = UniformInputs(kShape, kTokens, 5);
  const LayerInputs others = UniformInputs(kShape, kTokens, 6);
  const Moba moba = Gated(2, 5);
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8}) {
    LayerSetup setup = SetupOf(moba);
    setup.kv = type;
    OneLayer whole(setup);
    whole.Prefill(inputs, kTokens);
    for (const int64_t m : {0, 1, 2, 63, 127, 128, 129, 149}) {
      OneLayer layer(setup);
      if (m > 0) layer.Prefill(inputs, m);
      OneLayer fork = layer.Fork();
      layer.Prefill(others, kTokens - m);
      ASSERT_EQ(layer.RewindPoint(m), m);
      layer.Truncate(m);
      layer.Prefill(inputs, kTokens - m);
      fork.Prefill(inputs, kTokens - m);
      ASSERT_EQ(layer.out(), whole.out()) << m;
      ASSERT_EQ(fork.out(), whole.out()) << m;
    }
  }
}

TEST(Moba, StateBytesForeseesWhatTheStateHolds) {
  const Moba moba = Gated(2, 5);
  for (const int64_t n : {1, 2, 127, 128, 129, 400}) {
    const LayerInputs inputs = UniformInputs(kShape, n, 5);
    OneLayer layer(SetupOf(moba, n));
    layer.Prefill(inputs, n);
    EXPECT_EQ(layer.state().Bytes(), moba.StateBytes(n)) << n;
  }
}

TEST(Moba, GoldensNoticeChanges) {
  for (const char* const name : {"moba-mha", "moba-gqa-gated"}) {
    const auto every = [&](const std::function<void(PlanSegment&)>& change) {
      return Notices(name, [&](const QueryBlock&, Plan& plan) {
        for (PlanSegment& segment : plan.segments) change(segment);
      });
    };
    EXPECT_TRUE(every([](PlanSegment& s) { s.min_distance = 1; }));  // without the query's own key
    EXPECT_TRUE(every([](PlanSegment& s) { s.key_begin += s.key_begin > 0; }));
    EXPECT_TRUE(every([](PlanSegment& s) {  // the block before the chosen one
      if (s.key_begin == 0) return;
      const int64_t chunk = s.key_begin % 16 == 0 ? 16 : 8;
      s.key_begin -= chunk;
      s.key_end -= chunk;
    }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) {
      for (PlanRow& row : plan.rows) ++row.x;
    }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) { --plan.segments.back().row_end; }));
  }
}

AttentionModel Model(int64_t trained_window) {
  return {.shape = kShape,
          .n_layers = 3,
          .trained_window = trained_window,
          .trained = {.theta = std::vector<double>(32, 0.5), .amplitude = 1}};
}

std::string Explain(const std::string& spec, int64_t trained_window) {
  const auto layers = MakeAttention(spec, Model(trained_window));
  return layers ? (*layers)[0].policy->Explain() : layers.error().message;
}

TEST(Moba, DefaultsAreThePapersAtItsLengths) {
  const auto expect = [](const std::string& text, int64_t chunk, int64_t top_k) {
    EXPECT_NE(text.find(fmt::format("token {} on", chunk * top_k)), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("of {} tokens and the {} earlier", chunk, top_k - 1)), std::string::npos)
        << text;
  };
  expect(Explain("moba", 8192), 512, 3);
  expect(Explain("moba", 32768), 2048, 3);
  expect(Explain("moba", 1 << 20), 4096, 12);
  expect(Explain("moba", 131072), 4096, 6);
  expect(Explain("moba", 10), 1, 3);
  expect(Explain("moba,chunk=128", 8192), 128, 12);
  expect(Explain("moba,chunk=128,top_k=5", 8192), 128, 5);
  EXPECT_NE(Explain("moba", 8192).find("generated tokens see everything"), std::string::npos);
  EXPECT_EQ(Explain("moba,decode=gated", 8192).find("generated"), std::string::npos);
}

TEST(Moba, RefusesWhatCannotApply) {
  for (const auto& [spec, expected] : std::vector<std::pair<std::string, std::string>>{
           {"moba,chunk=0", "chunk must be at least 1"},
           {"moba,chunk=8193", "use at most chunk=8192"},
           {"moba,top_k=0", "top_k must be at least 1"},
           {"moba,decode=half", "decode is 'half', but must be full or gated"},
           {"moba,blocks=3", "moba has no option 'blocks'"}}) {
    const auto layers = MakeAttention(spec, Model(8192));
    ASSERT_FALSE(layers) << spec;
    EXPECT_NE(layers.error().message.find(expected), std::string::npos) << layers.error().message;
  }
}

TEST(Moba, TakesAsManyBlocksAsOneLikes) {
  EXPECT_NE(Explain("moba,chunk=8192,top_k=1099511627776", 8192).find("1099511627775 earlier"),
            std::string::npos);
}

TEST(Moba, WarnsPastTheTrainedWindow) {
  const Moba moba = Gated(16, 3);
  EXPECT_EQ(moba.Warning(1000), "");
  EXPECT_NE(moba.Warning(1001).find("1000"), std::string::npos);
}

}  // namespace
}  // namespace longheads
