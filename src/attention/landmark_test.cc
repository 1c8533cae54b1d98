// What Landmark attention promises beside its definition, which the goldens of its twin hold: where it equals
// full attention, its windows and slots, limits, what users are told, and that the goldens notice changes.
#include "attention/landmark.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "attention/registry.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/method_case.h"

namespace longheads {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

constexpr int64_t kTokens = 150;

TEST(Landmark, EqualsFullAttentionInTheFirstBlock) {
  for (const int64_t n : {1, 2, 49, 50}) {
    EXPECT_LE(DifferenceFromFull(*MakeCase("landmark,token=3", 512), n), 1) << n;
  }
  EXPECT_GT(DifferenceFromFull(*MakeCase("landmark,token=3", 512), 51), 1);  // the landmark
}

// What the last token sees where blocks have 4 tokens, windows 8, one block is looked up, and the query meets
// one key: landmark 7, of block 1. calls: of the prefill.
Pairs Seen(const std::vector<int64_t>& calls, int64_t landmark = 7) {
  const int64_t n = std::accumulate(calls.begin(), calls.end(), int64_t{0});
  LayerInputs inputs{
      .shape = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 64}, .n = n, .q = {}, .k = {}, .v = {}};
  inputs.q.assign(static_cast<std::size_t>(n * 64), 0);
  inputs.k = inputs.v = inputs.q;
  inputs.q[static_cast<std::size_t>((n - 1) * 64 + 31)] = 1;  // a pair that hardly turns
  inputs.k[static_cast<std::size_t>(landmark * 64 + 31)] = 1;
  const Landmark policy({.block = 4, .top_k = 1, .window = 8}, inputs.shape);
  LayerSetup setup = CaseSetup(policy, n);
  setup.shape = inputs.shape;
  OneLayer layer(setup);
  for (const int64_t call : calls) layer.Prefill(inputs, call);
  Pairs keys = layer.seen(n - 1, 0).keys;
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(Landmark, SeesItsWindowAndInASlotTheBlockWhoseLandmarkMatches) {
  // Token 21 stands in the window [16, 24), before which the slots are [8, 12) and [12, 16).
  const Pairs window = {{16, 5}, {17, 4}, {18, 3}, {19, 2}, {20, 1}, {21, 0}};
  const auto with_block = [&](int32_t first, int32_t distance) {
    Pairs keys;
    for (int32_t o = 0; o < 4; ++o) keys.push_back({first + o, distance - o});
    keys.insert(keys.end(), window.begin(), window.end());
    return keys;
  };
  EXPECT_EQ(Seen({22}), with_block(4, 13));
  EXPECT_EQ(Seen({22}, /*landmark=*/15), with_block(12, 9));  // the last block stays where it is
  EXPECT_EQ(Seen({22}, /*landmark=*/14), with_block(0, 13));  // no landmark matches: the lowest block
}

TEST(Landmark, ALandmarkSeesItsBlockWithoutItself) {
  EXPECT_EQ(Seen({20}), (Pairs{{4, 11}, {5, 10}, {6, 9}, {7, 8}, {16, 3}, {17, 2}, {18, 1}}));
}

TEST(Landmark, WindowsAreCutInEachCall) {
  const Pairs own = {{20, 1}, {21, 0}};
  const auto and_own = [&](Pairs keys) {
    keys.insert(keys.end(), own.begin(), own.end());
    return keys;
  };
  const Pairs looked_up = {{4, 13}, {5, 12}, {6, 11}, {7, 10}, {16, 5}, {17, 4}, {18, 3}, {19, 2}};
  EXPECT_EQ(Seen({16, 6}), and_own(looked_up));
  EXPECT_EQ(Seen({13, 9}), and_own(looked_up));  // [13, 16), then [16, 24)
  // The window begins with block 5, or inside it: block 4 is one of those that are looked up.
  const Pairs alone = {{4, 9}, {5, 8}, {6, 7}, {7, 6}};
  EXPECT_EQ(Seen({20, 2}), and_own(alone));
  EXPECT_EQ(Seen({20, 1, 1}), and_own(alone));
  EXPECT_EQ(Seen({9, 13}), and_own(alone));  // [9, 12), [12, 20), [20, 28)
}

TEST(Landmark, NoRotationIsPastTheTrainedWindow) {
  for (const char* const spec : {"landmark,block=7,top_k=3,token=3", "landmark,block=2,top_k=0,token=3",
                                 "landmark,block=16,top_k=1,token=3"}) {
    const std::shared_ptr<const Policy> policy = MakeCase(spec, 50);
    EXPECT_LE(policy->RotationBound(kTokens), 50);
    const LayerInputs inputs = UniformInputs(kCaseShape, kTokens, 5);
    OneLayer layer(CaseSetup(*policy, kTokens));
    layer.Prefill(inputs, kTokens - 20);
    while (layer.size() < kTokens) layer.Decode(inputs);
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t head = 0; head < kCaseShape.n_heads; ++head) {
        for (const int64_t x : layer.seen(i, head).rotations) EXPECT_LT(x, policy->RotationBound(kTokens));
      }
    }
  }
}

// Over more than one group of landmarks that lie together, in float32 and in bfloat16; in the middle of a
// call too: what it has read does not depend on what follows.
TEST(Landmark, GoesBackToAnyTokenWithoutATrace) {
  const LayerInputs inputs = UniformInputs(kCaseShape, kTokens, 5);
  const LayerInputs others = UniformInputs(kCaseShape, kTokens, 6);
  const std::shared_ptr<const Policy> policy = MakeCase("landmark,block=2,top_k=3,token=3", 16);
  const auto decode = [&](OneLayer& layer) {
    while (layer.size() < kTokens) layer.Decode(inputs);
  };
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8}) {
    LayerSetup setup = CaseSetup(*policy, kTokens);
    setup.kv = type;
    OneLayer all(setup);
    all.Prefill(inputs, kTokens);
    for (const int64_t m : {1, 2, 63, 127, 128, 129, 149}) {
      OneLayer whole(setup);
      whole.Prefill(inputs, m);
      OneLayer layer = whole.Fork();
      OneLayer inside = all.Fork();
      decode(whole);
      layer.Prefill(others, kTokens - m);
      ASSERT_EQ(layer.RewindPoint(m), m);
      layer.Truncate(m);
      inside.Truncate(m);
      decode(layer);
      decode(inside);
      ASSERT_EQ(layer.out(), whole.out()) << m;
      ASSERT_EQ(inside.out(), whole.out()) << m;
    }
  }
}

TEST(Landmark, StateBytesForeseesWhatTheStateHolds) {
  const std::shared_ptr<const Policy> policy = MakeCase("landmark,block=2,top_k=3,token=3", 16);
  for (const int64_t n : {1, 2, 127, 128, 129, 400}) {
    const LayerInputs inputs = UniformInputs(kCaseShape, n, 5);
    OneLayer layer(CaseSetup(*policy, n));
    layer.Prefill(inputs, n);
    EXPECT_EQ(layer.state().Bytes(), policy->StateBytes(n)) << n;
  }
}

TEST(Landmark, GoldensNoticeChanges) {
  for (const auto& [name, block] : {std::pair("landmark-mha", 17), std::pair("landmark-mqa-calls", 9)}) {
    const auto every = [name = name](const std::function<void(PlanSegment&)>& change) {
      return Notices(name, [&](const QueryBlock&, Plan& plan) {
        for (PlanSegment& segment : plan.segments) change(segment);
      });
    };
    const auto is_own = [](const PlanSegment& s) { return s.as_key == PlanSegment::kNoKey; };
    EXPECT_TRUE(every([](PlanSegment& s) { s.as_key = PlanSegment::kNoKey; }));  // one softmax over all
    EXPECT_TRUE(every([](PlanSegment& s) { s.as_key -= s.as_key > 0; }));        // another landmark
    EXPECT_TRUE(every([&](PlanSegment& s) { s.key_end += !is_own(s); }));        // a landmark with a value
    EXPECT_TRUE(every([&](PlanSegment& s) { s.key_begin += !is_own(s); }));
    EXPECT_TRUE(every([&](PlanSegment& s) { s.min_distance = is_own(s) ? 1 : 0; }));
    EXPECT_TRUE(every([&, block = block](PlanSegment& s) {  // a landmark that sees itself
      s.key_end += is_own(s) && s.key_end % block == block - 1 && s.row_end - s.row_begin >= block;
    }));
    EXPECT_TRUE(every([&, block = block](PlanSegment& s) {  // the block before the chosen one
      if (is_own(s) || s.key_begin == 0) return;
      s.key_begin -= block;
      s.key_end -= block;
      s.as_key -= block;
    }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) {
      for (PlanRow& row : plan.rows) ++row.x;
    }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) { --plan.segments.front().row_end; }));
  }
}

AttentionModel Model(int64_t trained_window) {
  AttentionModel model;
  model.shape = kCaseShape;
  model.n_layers = 3;
  model.vocab_size = 32000;
  model.trained_window = trained_window;
  model.trained = {.theta = std::vector<double>(32, 0.5), .amplitude = 1};
  return model;
}

std::string RefusedBy(const std::string& spec, const AttentionModel& model) {
  const auto layers = MakeAttention(spec, model);
  return layers ? "" : layers.error().message;
}

TEST(Landmark, LeavesRoomForItsSlotsInTheTrainedWindow) {
  const auto window = [](const std::string& spec, int64_t trained) {
    const std::string text = (*MakeAttention(spec, Model(trained)))[0].policy->Explain();
    return text.substr(0, text.find(';'));
  };
  const auto says = [](int64_t tokens) {
    return fmt::format("Landmark attention: a text is read in windows of {} tokens", tokens);
  };
  EXPECT_EQ(window("landmark,token=3", 512), says(204));  // the published one
  EXPECT_EQ(window("landmark,token=3,train_context=512", 2048), says(204));
  EXPECT_EQ(window("landmark,token=3", 2048), says(1734));
  EXPECT_EQ(window("landmark,token=3", 357), says(51));
  EXPECT_EQ(window("landmark,token=3,top_k=8", 512), says(51));
  EXPECT_EQ(window("landmark,token=3,top_k=0,block=2", 5), says(2));
  EXPECT_EQ(window("pi:factor=4+landmark,token=3,train_context=1k", 512), says(714));
}

TEST(Landmark, RefusesWhatCannotApply) {
  for (const auto& [spec, expected] : std::vector<std::pair<std::string, std::string>>{
           {"landmark", "trained with a landmark token"},
           {"landmark", "say which it is with token=ID"},
           {"landmark,token=32000", "token=32000 is outside the vocabulary (0 .. 31999)"},
           {"landmark,token=-1", "'-1' is not a count"},
           {"landmark,token=3,block=1", "block must be at least 2"},
           {"landmark,token=3,block=257", "use at most block=256"},
           {"landmark,token=3,block=1099511627776", "use at most block=256"},
           {"landmark,token=3,top_k=9", "use at most top_k=8"},
           {"landmark,token=3,top_k=1099511627776", "use at most top_k=8"},
           {"landmark,token=3,train_context=513", "use at most train_context=512"},
           {"landmark,token=3,train_context=100", "use at most block=50"},
           {"landmark,token=3,tokens=3", "did you mean 'token'"}}) {
    const std::string message = RefusedBy(spec, Model(512));
    EXPECT_NE(message.find(expected), std::string::npos) << spec << ": " << message;
  }
  EXPECT_NE(RefusedBy("landmark,token=3", Model(0)), "");
}

TEST(Landmark, TakesItsTokenFromTheVocabulary) {
  AttentionModel model = Model(512);
  const auto inserted = [&](const std::string& spec) {
    const InsertedToken token = *(*MakeAttention(spec, model))[0].policy->Inserts();
    return std::pair(token.id, static_cast<int32_t>(token.period));
  };
  EXPECT_EQ(inserted("landmark,token=31999"), std::pair(31999, 50));
  model.find_token = [](std::string_view) { return std::nullopt; };
  EXPECT_NE(RefusedBy("landmark", model), "");
  model.find_token = [](std::string_view text) {
    return text == "<landmark>" ? std::optional<int32_t>(17) : std::nullopt;
  };
  EXPECT_EQ(inserted("landmark,block=16"), std::pair(17, 15));
  EXPECT_EQ(inserted("landmark,token=5"), std::pair(5, 50));
}

}  // namespace
}  // namespace longheads
