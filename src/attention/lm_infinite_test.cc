// What LM-Infinite promises beside its definition, which the goldens hold it to.
#include "attention/lm_infinite.h"

#include <gtest/gtest.h>

#include "attention/registry.h"
#include "tests/support/method_case.h"

namespace longheads {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

TEST(LmInfinite, SeesTheNewestTokensAndTheFirstAtAConstantDistance) {
  const auto official = MakeCase("lm-infinite,global=2,local=3", 64);
  const auto infllm = MakeCase("lm-infinite,global=2,local=3,form=infllm", 64);
  const auto near = MakeCase("lm-infinite,global=2,local=3,limit=1", 64);
  for (const bool decode : {false, true}) {
    EXPECT_EQ(LastSees(*official, 8, decode), (Pairs{{0, 3}, {1, 3}, {5, 2}, {6, 1}, {7, 0}}));
    EXPECT_EQ(LastSees(*infllm, 8, decode), (Pairs{{0, 2}, {1, 2}, {5, 2}, {6, 1}, {7, 0}}));
    EXPECT_EQ(LastSees(*near, 8, decode), (Pairs{{0, 1}, {1, 1}, {5, 2}, {6, 1}, {7, 0}}));
    // Token 1 is still one of the newest.
    EXPECT_EQ(LastSees(*infllm, 4, decode), (Pairs{{0, 2}, {1, 2}, {2, 1}, {3, 0}}));
  }
}

TEST(LmInfinite, ALimitAboveLocalIsCutToTheKeysOfTheCall) {
  const auto policy = MakeCase("lm-infinite,global=1,local=3,limit=20", 64);
  const LayerInputs inputs = UniformInputs(kCaseShape, 40, 1);
  OneLayer layer(CaseSetup(*policy, 40));
  const auto first_at = [&](int64_t i) { return layer.seen(i, 0).keys.front(); };
  layer.Prefill(inputs, 12);
  EXPECT_EQ(first_at(5), std::make_pair(0, 11));  // the whole prompt's length counts
  EXPECT_EQ(first_at(11), std::make_pair(0, 11));
  layer.Decode(inputs);
  EXPECT_EQ(first_at(12), std::make_pair(0, 12));
  layer.Prefill(inputs, 27);
  EXPECT_EQ(first_at(13), std::make_pair(0, 20));
}

TEST(LmInfinite, EqualsFullAttentionWhileTheTextIsLocal) {
  // The first token leaves the newest at distance local: in the official form one token more is equal.
  const auto official = MakeCase("lm-infinite,global=4,local=50", 64);
  EXPECT_LE(DifferenceFromFull(*official, 50), 1);
  EXPECT_LE(DifferenceFromFull(*official, 51), 1);
  EXPECT_GT(DifferenceFromFull(*official, 52), 1);
  const auto infllm = MakeCase("lm-infinite,global=4,local=50,form=infllm", 64);
  EXPECT_LE(DifferenceFromFull(*infllm, 50), 1);
  EXPECT_GT(DifferenceFromFull(*infllm, 51), 1);
  // Nothing lies between to look for.
  const auto looking = MakeCase("lm-infinite,global=4,local=50,top_k=1", 64);
  EXPECT_LE(DifferenceFromFull(*looking, 51), 1);
}

// Keys are zero but where a head's queries look: on a pair that hardly turns.
LayerInputs Planted(int64_t n, const std::vector<std::pair<int64_t, std::vector<int64_t>>>& of_kv_heads) {
  LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
  const int64_t d = kCaseShape.head_dim;
  std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
  std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
  for (std::size_t at = d / 2 - 1; at < inputs.q.size(); at += static_cast<std::size_t>(d)) inputs.q[at] = 1;
  for (const auto& [kv_head, tokens] : of_kv_heads) {
    float loud = 1;
    for (const int64_t j : tokens) {
      inputs.k[static_cast<std::size_t>((j * kCaseShape.n_kv_heads + kv_head) * d + d / 2 - 1)] = loud;
      loud += 1;
    }
  }
  return inputs;
}

TEST(LmInfinite, TheLastTokenOfACallSeesItsBestMatchesBetween) {
  const auto policy = MakeCase("lm-infinite,global=2,local=4,top_k=3,top_k_at=7", 64);
  const LayerInputs inputs = Planted(20, {{0, {3, 9, 5}}, {1, {4}}});
  OneLayer layer(CaseSetup(*policy, 20));
  layer.Prefill(inputs, 12);
  layer.Decode(inputs);
  layer.Prefill(inputs, 7);
  const Pairs first = {{0, 4}, {1, 4}};
  const auto sees = [&](int64_t i, int64_t head) {
    Pairs keys = layer.seen(i, head).keys;
    std::sort(keys.begin(), keys.end());
    return keys;
  };
  // 12 - 4 = 8: tokens 2 .. 7 lie between. Equal ones: the lower first.
  EXPECT_EQ(sees(11, 0), (Pairs{{0, 4}, {1, 4}, {2, 7}, {3, 7}, {5, 7}, {8, 3}, {9, 2}, {10, 1}, {11, 0}}));
  EXPECT_EQ(sees(11, 1), sees(11, 0));  // heads of one KV head and equal queries
  EXPECT_EQ(sees(11, 2), (Pairs{{0, 4}, {1, 4}, {2, 7}, {3, 7}, {4, 7}, {8, 3}, {9, 2}, {10, 1}, {11, 0}}));
  EXPECT_EQ(sees(10, 0).size(), 6u);  // not the last of its call
  EXPECT_EQ(sees(12, 0).size(), 9u);
  EXPECT_EQ(sees(15, 0).size(), 6u);
  EXPECT_EQ(sees(19, 0), (Pairs{{0, 4}, {1, 4}, {3, 7}, {5, 7}, {9, 7}, {16, 3}, {17, 2}, {18, 1}, {19, 0}}));
  // Parts merge in the order of the text.
  EXPECT_EQ(layer.seen(19, 0).rotations, (std::vector<int32_t>{4, 7, 19}));
}

// Keys that every head sees from the last of n tokens.
std::size_t CountSeen(const Policy& policy, int64_t n, bool decode) {
  const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
  OneLayer layer(CaseSetup(policy, n));
  layer.Prefill(inputs, n - (decode ? 1 : 0));
  if (decode) layer.Decode(inputs);
  for (int64_t h = 1; h < kCaseShape.n_heads; ++h) {
    EXPECT_EQ(layer.seen(n - 1, h).keys.size(), layer.seen(n - 1, 0).keys.size());
  }
  return layer.seen(n - 1, 0).keys.size();
}

TEST(LmInfinite, LooksOnlyWhereThereIsAChoice) {
  // Nine tokens: 9 - 4 - 2 = 3 between.
  const auto policy = MakeCase("lm-infinite,global=2,local=4,top_k=3", 64);
  EXPECT_EQ(CountSeen(*policy, 8, true), 6u);
  EXPECT_EQ(CountSeen(*policy, 9, true), 9u);
  EXPECT_EQ(CountSeen(*policy, 9, false), 9u);
  EXPECT_EQ(CountSeen(*policy, 20, true), 9u);
}

TEST(LmInfinite, FindsTheBestOfManyPagesWhateverTheStore) {
  const auto policy = MakeCase("lm-infinite,global=2,local=4,top_k=4", 64);
  const LayerInputs inputs = Planted(1200, {{0, {255, 256, 511, 900, 1195}}, {1, {1150, 767, 3, 2}}});
  for (const KvType kv : {KvType::kF32, KvType::kBF16}) {
    LayerSetup setup = CaseSetup(*policy, 1200);
    setup.kv = kv;
    OneLayer layer(setup);
    layer.Prefill(inputs, 1199);
    layer.Decode(inputs);
    const auto between = [&](int64_t head) {
      std::vector<int32_t> keys;
      for (const auto& [key, distance] : layer.seen(1199, head).keys) {
        if (distance == 32) keys.push_back(key);
      }
      return keys;
    };
    EXPECT_EQ(between(0), (std::vector<int32_t>{256, 511, 900, 1195}));
    EXPECT_EQ(between(2), (std::vector<int32_t>{2, 3, 767, 1150}));
  }
}

TEST(LmInfinite, LayersBeforeTopKFromDoNotLook) {
  const AttentionModel model{.shape = kCaseShape,
                             .n_layers = 6,
                             .trained_window = 64,
                             .layout = PairLayout::kHalfSplit,
                             .trained = {.theta = std::vector<double>(32, 0.5), .amplitude = 1}};
  const auto seen_by_layer = [&](const std::string& spec) {
    std::vector<std::size_t> seen;
    const auto layers = *MakeAttention(spec, model);
    for (const LayerAttention& layer : layers) seen.push_back(CountSeen(*layer.policy, 30, true));
    return seen;
  };
  using Counts = std::vector<std::size_t>;
  EXPECT_EQ(seen_by_layer("lm-infinite,global=2,local=4,top_k=3"), (Counts{6, 6, 6, 6, 9, 9}));
  EXPECT_EQ(seen_by_layer("lm-infinite,global=2,local=4,top_k=3,top_k_from=0"), (Counts{9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(seen_by_layer("lm-infinite,global=2,local=4,top_k=3,top_k_from=6"), (Counts{6, 6, 6, 6, 6, 6}));
  EXPECT_EQ(seen_by_layer("lm-infinite,global=2,local=4,top_k_from=0"), (Counts{6, 6, 6, 6, 6, 6}));
}

TEST(LmInfinite, ReadsOnlyWhatItSeesHoweverLongTheText) {
  for (const auto& [options, n_seen] : {std::pair{"", 35}, std::pair{",form=infllm", 35},
                                        std::pair{",top_k=7", 49}}) {  // of each of two heads its own 7
    const auto policy = MakeCase(std::string("lm-infinite,global=5,local=30") + options, 64);
    for (const int64_t n : {100, 600}) {
      EXPECT_EQ(ReadForLast(*policy, n).read, n_seen) << options;
      EXPECT_EQ(policy->StateBytes(n), policy->NewState()->Bytes());
    }
  }
}

TEST(LmInfinite, RotationsStayBelowTheirBound) {
  for (const char* const options : {"", ",form=infllm", ",limit=60", ",top_k=2,top_k_at=50"}) {
    const auto policy = MakeCase(std::string("lm-infinite,global=3,local=5") + options, 64);
    for (int64_t n = 1; n < 20; ++n) {
      const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
      OneLayer layer(CaseSetup(*policy, n));
      layer.Prefill(inputs, n);
      for (const int32_t x : layer.seen(n - 1, 0).rotations) EXPECT_LT(x, policy->RotationBound(n));
    }
  }
}

// The goldens' comparison would notice each of these.
TEST(LmInfinite, GoldensNoticeEveryMutation) {
  const auto of_first = [](const PlanSegment& segment) { return segment.min_distance > 0; };
  const auto turn = [](const PlanSegment& segment, int32_t by, Plan& plan) {
    for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
      plan.rows[static_cast<std::size_t>(r)].x += by;
    }
  };
  struct Case {
    std::string what;
    bool of_top_k;
    Mutation mutation;
  };
  const std::vector<Case> cases = {
      {"the first tokens a step off", false,
       [&](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) {
           if (of_first(segment)) turn(segment, -1, plan);
         }
       }},
      {"no first token", false,
       [&](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) {
           if (of_first(segment)) ++segment.key_begin;
         }
       }},
      {"one newest token more", false,
       [](const QueryBlock&, Plan& plan) {
         PlanSegment& newest = plan.segments.back();
         ++newest.max_distance;
         newest.key_begin = std::max<int64_t>(0, newest.key_begin - 1);
       }},
      {"one newest token less", false,
       [](const QueryBlock&, Plan& plan) { --plan.segments.back().max_distance; }},
      {"no own key", false, [](const QueryBlock&, Plan& plan) { plan.segments.back().min_distance = 1; }},
      {"another match", true,
       [](const QueryBlock&, Plan& plan) {
         if (!plan.keys.empty()) ++plan.keys.back();
       }},
      {"a match less", true,
       [](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) segment.key_begin += segment.listed;
       }},
      {"matches a step off", true,
       [&](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) {
           if (segment.listed) turn(segment, 1, plan);
         }
       }},
  };
  for (const char* const golden :
       {"lm-infinite-mha", "lm-infinite-infllm-gqa", "lm-infinite-top-k-gqa", "lm-infinite-top-k-decoded"}) {
    EXPECT_TRUE(MutatedDifferences(golden, [](const QueryBlock&, Plan&) {}).none());
    const bool looks = std::string(golden).find("top-k") != std::string::npos;
    for (const Case& c : cases) {
      if (c.of_top_k && !looks) continue;
      const MethodDifferences differences = MutatedDifferences(golden, c.mutation);
      EXPECT_GT(differences.n_sets, 0) << golden << ": " << c.what;
      EXPECT_GT(differences.n_outputs, 0) << golden << ": " << c.what;
    }
  }
}

TEST(LmInfinite, DefaultsFollowTheTrainedWindow) {
  const auto expect = [&](const std::string& spec, int64_t trained, const std::string& part) {
    const std::string text = MakeCase(spec, trained)->Explain();
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect("lm-infinite", 8192,
         "last 8192 tokens up to itself, and the first 10 of the text at distance 8192;");
  expect("lm-infinite", 2048,
         "last 2048 tokens up to itself, and the first 10 of the text at distance 2048;");
  expect("lm-infinite,local=4096", 8192, "at distance 4096;");
  expect("lm-infinite,local=4096,limit=8192", 8192, "at distance 8192 at most;");
  expect("lm-infinite,form=infllm,local=4096", 8192, "at distance 4095;");
  expect("lm-infinite", 8192, "nothing between them");
  expect("lm-infinite,top_k=5", 8192, "from layer 0 on");  // of one
  expect("lm-infinite,top_k=5", 8192, "the 5 tokens between that match it best, at distance 2048");
  expect("lm-infinite,top_k=5", 1000, "at distance 500");
  expect("lm-infinite,top_k=5", 1, "at distance 1");
}

TEST(LmInfinite, RefusesWhatCannotApply) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"lm-infinite,global=-1", "'-1' is not a count"},
      {"lm-infinite,local=0", "local must be at least 1"},
      {"lm-infinite,local=65", "local=65 is larger than the model's window of 64 tokens"},
      {"lm-infinite,local=1m", "use at most local=64"},
      {"lm-infinite,limit=65", "use at most limit=64"},
      {"lm-infinite,limit=0", "limit must be at least 1"},
      {"lm-infinite,form=infllm,limit=5", "limit belongs to form=official"},
      {"lm-infinite,form=other", "form is 'other', but must be official or infllm"},
      {"lm-infinite,top_k=5,local=16,limit=20", "top_k=5 needs limit=16"},
      {"lm-infinite,top_k=5,top_k_at=65", "use at most top_k_at=64"},
      {"lm-infinite,top_k=5,top_k_from=2", "top_k_from=2 is past the model's last layer: it has 1"},
      {"lm-infinite,k=5", "lm-infinite has no option 'k'"},
  };
  for (const auto& [spec, expected] : cases) {
    const std::string message = RefusalOf(spec, 64);
    EXPECT_NE(message.find(expected), std::string::npos) << spec << ": " << message;
  }
  EXPECT_EQ(RefusalOf("lm-infinite,global=1m,local=64,limit=64,top_k=5,top_k_from=1,top_k_at=64", 64), "");
  EXPECT_EQ(RefusalOf("lm-infinite", 1), "");
  EXPECT_NE(RefusalOf("lm-infinite", 0), "");
}

TEST(LmInfinite, WarnsThatWhatLiesBetweenIsNotRead) {
  const auto policy = MakeCase("lm-infinite,global=4,local=28", 64);
  EXPECT_EQ(policy->Warning(32), "");
  EXPECT_NE(policy->Warning(40).find("first 4 and the last 28 alone, and 8 between"), std::string::npos);
  EXPECT_EQ(MakeCase("lm-infinite,global=4,local=28,top_k=1", 64)->Warning(40), "");
}

}  // namespace
}  // namespace longheads
