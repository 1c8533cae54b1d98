// What ReRoPE and Leaky ReRoPE promise beside their definition, which the goldens hold them to.
#include "attention/rerope.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/method_case.h"

namespace longheads {
namespace {

// The distances of keys 0, 1, ... of token n - 1, in the plane's units; an absent key is -1.
std::vector<int32_t> Distances(const std::string& spec, int64_t n, bool decode) {
  std::vector<int32_t> distances(static_cast<std::size_t>(n), -1);
  for (const auto& [key, distance] : LastSees(*MakeCase(spec, 64), n, decode)) {
    distances[static_cast<std::size_t>(key)] = distance;
  }
  return distances;
}

TEST(ReRope, DistancesEndAtTheWindow) {
  for (const bool decode : {false, true}) {
    EXPECT_EQ(Distances("rerope,window=3", 7, decode), (std::vector<int32_t>{3, 3, 3, 3, 2, 1, 0}));
    EXPECT_EQ(Distances("rerope,window=3", 3, decode), (std::vector<int32_t>{2, 1, 0}));
    EXPECT_EQ(Distances("rerope,window=1", 3, decode), (std::vector<int32_t>{1, 1, 0}));
  }
}

TEST(ReRope, LeakyDistancesGrowMoreSlowlyBeyondTheWindow) {
  for (const bool decode : {false, true}) {  // in quarters
    EXPECT_EQ(Distances("leaky-rerope,window=3,factor=4", 9, decode),
              (std::vector<int32_t>{17, 16, 15, 14, 13, 12, 8, 4, 0}));
    EXPECT_EQ(Distances("leaky-rerope,window=3,factor=1", 6, decode),
              (std::vector<int32_t>{5, 4, 3, 2, 1, 0}));
  }
}

TEST(ReRope, EqualsFullAttentionWithinTheWindow) {
  for (const char* const method : {"rerope", "leaky-rerope"}) {
    // The log-n scale is 1 as long as the text is no longer than the trained window.
    const auto policy = MakeCase(fmt::format("{},window=60", method), 64);
    EXPECT_LE(DifferenceFromFull(*policy, 60), 1) << method;
    EXPECT_GT(DifferenceFromFull(*policy, 62), 1) << method;
  }
  EXPECT_LE(DifferenceFromFull(*MakeCase("leaky-rerope,window=5,factor=1", 64), 64), 1);
}

TEST(ReRope, ReadsEveryKeyOnce) {
  for (const char* const method : {"rerope", "leaky-rerope"}) {
    const auto policy = MakeCase(fmt::format("{},window=20", method), 64);
    for (const int64_t n : {2, 20, 21, 300}) {
      const KeysRead keys = ReadForLast(*policy, n);
      EXPECT_EQ(keys.read, n) << method;
      EXPECT_EQ(keys.seen, n) << method;
      EXPECT_EQ(policy->StateBytes(n), policy->NewState()->Bytes());
    }
  }
}

TEST(ReRope, RotationsStayBelowTheirBound) {
  for (const char* const spec : {"rerope,window=4", "leaky-rerope,window=4,factor=5", "leaky-rerope,factor=1",
                                 "leaky-rerope,window=9,factor=100"}) {
    const auto policy = MakeCase(spec, 64);
    for (int64_t n = 1; n < 30; ++n) {
      const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
      OneLayer layer(CaseSetup(*policy, n));
      layer.Prefill(inputs, n);
      for (const int32_t x : layer.seen(n - 1, 0).rotations) EXPECT_LT(x, policy->RotationBound(n)) << spec;
    }
  }
}

// The factor is exactly 1 at the last token of the base, and more from the next on.
TEST(ReRope, LogNScalesFromItsBaseOn) {
  const LayerInputs inputs = UniformInputs(kCaseShape, 52, 3);
  const auto plain = MakeCase("rerope,window=16,log_n=off", 64);
  for (const auto& [spec, first] :
       {std::pair{"rerope,window=16,log_n_base=50", 50}, std::pair{"rerope,window=16,log_n_base=2", 2},
        std::pair{"rerope,window=16,log_n=on", 64}}) {
    const auto scaled = MakeCase(spec, 64);
    for (const bool decode : {false, true}) {
      OneLayer a(CaseSetup(*plain, 52)), b(CaseSetup(*scaled, 52));
      for (OneLayer* const layer : {&a, &b}) {
        if (!decode) layer->Prefill(inputs, 52);
        while (layer->size() < 52) layer->Decode(inputs);
      }
      const int64_t floats = kCaseShape.n_heads * kCaseShape.head_dim;
      for (int64_t i = 0; i < 52; ++i) {
        const auto same = std::equal(a.out().begin() + i * floats, a.out().begin() + (i + 1) * floats,
                                     b.out().begin() + i * floats);
        EXPECT_EQ(same, i < first) << spec << " " << i;
      }
    }
  }
}

TEST(ReRope, GoldensNoticeEveryMutation) {
  const std::vector<std::pair<std::string, Mutation>> mutations = {
      {"a window one longer",
       [](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) {
           ++(segment.absolute ? segment.max_distance : segment.min_distance);
         }
       }},
      {"far keys one step off",
       [](const QueryBlock&, Plan& plan) {
         for (const PlanSegment& segment : plan.segments) {
           if (segment.absolute) continue;
           for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
             ++plan.rows[static_cast<std::size_t>(r)].x;
           }
         }
       }},
      {"near keys on the stored plane",
       [](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) segment.absolute = false;
       }},
      {"no far keys",
       [](const QueryBlock&, Plan& plan) {
         std::erase_if(plan.segments, [](const PlanSegment& segment) { return !segment.absolute; });
       }},
  };
  for (const char* const golden : {"rerope-gqa", "rerope-log-n", "leaky-rerope-mha", "leaky-rerope-mqa"}) {
    EXPECT_TRUE(MutatedDifferences(golden, [](const QueryBlock&, Plan&) {}).none());
    for (const auto& [what, mutation] : mutations) {
      const MethodDifferences differences = MutatedDifferences(golden, mutation);
      EXPECT_GT(differences.n_sets, 0) << golden << ": " << what;
      EXPECT_GT(differences.n_outputs, 0) << golden << ": " << what;
    }
  }
  // A scale is seen in the outputs alone.
  for (const char* const golden : {"rerope-log-n", "rerope-log-n-within-window", "leaky-rerope-gqa"}) {
    const MethodDifferences unscaled =
        MutatedDifferences(golden, [](const QueryBlock&, Plan& plan) { plan.token_scales.clear(); });
    EXPECT_EQ(unscaled.n_sets, 0) << golden;
    EXPECT_GT(unscaled.n_outputs, 0) << golden;
  }
}

TEST(ReRope, SaysHowFarItReaches) {
  EXPECT_EQ(MakeCase("rerope", 4096)->Warning(100'000'000), "");
  const auto leaky = MakeCase("leaky-rerope,window=10,factor=3", 32);
  // 10 + (n - 11) / 3 = 31
  EXPECT_EQ(leaky->Warning(74), "");
  EXPECT_EQ(LastSees(*leaky, 74, true).front().second, 3 * 31);
  EXPECT_NE(leaky->Explain().find("good for 74 tokens"), std::string::npos) << leaky->Explain();
  // 10 + 64 / 4 = 26; 10 + 64 / 3 = 31.3
  EXPECT_NE(leaky->Warning(75).find("use factor=4"), std::string::npos) << leaky->Warning(75);
  EXPECT_EQ(MakeCase("leaky-rerope,window=10,factor=4", 32)->Warning(75), "");
  EXPECT_NE(leaky->Warning(1'000'000).find("use --attn rerope"), std::string::npos);
  const auto no_room = MakeCase("leaky-rerope,window=31,factor=16", 32);
  EXPECT_EQ(no_room->Warning(32), "");
  EXPECT_NE(no_room->Warning(33).find("use --attn rerope"), std::string::npos);
}

TEST(ReRope, DefaultsFollowTheTrainedWindow) {
  const auto expect = [](const std::string& spec, int64_t trained, const std::string& part) {
    const std::string text = MakeCase(spec, trained)->Explain();
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const char* const method : {"rerope", "leaky-rerope"}) {
    expect(method, 4096, "the last 512 at their true distances");
    expect(method, 4096, "ln(i + 1) / ln(4096)");
    expect(method, 8192, "ln(i + 1) / ln(8192)");
    expect(method, 1000, "the last 500 ");
    expect(method, 2, "the last 1 ");
  }
  expect("rerope,window=1024", 8192, "all others at distance 1024");
  expect("leaky-rerope", 4096, "one more for every 16 tokens beyond: good for 57841 tokens");
  EXPECT_EQ(MakeCase("rerope,log_n=off", 4096)->Explain().find("ln("), std::string::npos);
}

TEST(ReRope, RefusesWhatCannotApply) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"rerope,window=0", "window must be at least 1"},
      {"rerope,window=64", "use at most window=63"},
      {"leaky-rerope,window=64", "use at most window=63"},
      {"rerope,factor=4", "rerope has no option 'factor'"},
      {"leaky-rerope,factor=0", "factor must be at least 1"},
      {"leaky-rerope,factor=1.5", "'1.5' is not a count"},
      {"leaky-rerope,factor=1025", "factor=1025 is more than 1024"},
      {"rerope,log_n=1", "log_n is '1', but must be on or off"},
      {"rerope,log_n_base=1", "log_n_base must be at least 2"},
  };
  for (const auto& [spec, expected] : cases) {
    const std::string message = RefusalOf(spec, 64);
    EXPECT_NE(message.find(expected), std::string::npos) << spec << ": " << message;
  }
  EXPECT_EQ(RefusalOf("rerope,window=63", 64), "");
  EXPECT_EQ(RefusalOf("leaky-rerope,factor=1024", 64), "");
  EXPECT_NE(RefusalOf("rerope", 1).find("use --attn full"), std::string::npos);
}

}  // namespace
}  // namespace longheads
