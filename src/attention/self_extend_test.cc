// What Self-Extend promises beside its definition, which the goldens hold it to.
#include "attention/self_extend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/method_case.h"

namespace longheads {
namespace {

// The distances of keys 0, 1, ... of token n - 1; an absent key is -1.
std::vector<int32_t> Distances(const std::string& spec, int64_t n, bool decode) {
  std::vector<int32_t> distances(static_cast<std::size_t>(n), -1);
  for (const auto& [key, distance] : LastSees(*MakeCase(spec, 64), n, decode)) {
    distances[static_cast<std::size_t>(key)] = distance;
  }
  return distances;
}

TEST(SelfExtend, DistancesAreThoseOfTheAuthorsFigure) {
  for (const bool decode : {false, true}) {
    const std::string figure = "self-extend,group=2,window=4";
    EXPECT_EQ(Distances(figure, 10, decode), (std::vector<int32_t>{6, 6, 5, 5, 4, 4, 3, 2, 1, 0}));
    EXPECT_EQ(Distances(figure, 6, decode), (std::vector<int32_t>{4, 4, 3, 2, 1, 0}));
    // Groups that do not divide the window: the first group's distance jumps.
    EXPECT_EQ(Distances("self-extend,group=3,window=4", 7, decode),
              (std::vector<int32_t>{5, 5, 5, 3, 2, 1, 0}));
  }
}

TEST(SelfExtend, ExactFractionsAreInGroupsOfTheUnit) {
  // Token 16: floor(16/5) + 4 - 4/5 = 6.2 from the first group, in fifths.
  EXPECT_EQ(Distances("self-extend,group=5,window=4,fraction=exact", 17, true),
            (std::vector<int32_t>{31, 31, 31, 31, 31, 26, 26, 26, 26, 26, 21, 21, 21, 15, 10, 5, 0}));
  // Nothing is left of the fraction: whole distances.
  EXPECT_EQ(Distances("self-extend,group=2,window=4,fraction=exact", 6, true),
            (std::vector<int32_t>{4, 4, 3, 2, 1, 0}));
}

TEST(SelfExtend, EqualsFullAttentionWithinTheWindowAndInGroupsOfOne) {
  for (const char* const fraction : {"floor", "exact"}) {
    const std::string rest = std::string(",fraction=") + fraction;
    const auto near = MakeCase("self-extend,group=5,window=40" + rest, 64);
    EXPECT_LE(DifferenceFromFull(*near, 40), 1);
    EXPECT_GT(DifferenceFromFull(*near, 60), 1);
    EXPECT_LE(DifferenceFromFull(*MakeCase("self-extend,group=1,window=9" + rest, 64), 60), 1);
  }
}

TEST(SelfExtend, ReadsEveryKeyOnce) {
  for (const char* const fraction : {"floor", "exact"}) {
    const auto policy = MakeCase(std::string("self-extend,group=7,window=20,fraction=") + fraction, 64);
    for (const int64_t n : {2, 20, 21, 300}) {
      const KeysRead keys = ReadForLast(*policy, n);
      EXPECT_EQ(keys.read, n);
      EXPECT_EQ(keys.seen, n);
      EXPECT_EQ(policy->StateBytes(n), policy->NewState()->Bytes());
    }
  }
}

TEST(SelfExtend, RotationsStayBelowTheirBound) {
  for (const auto& [group, window] : {std::pair{3, 4}, std::pair{12, 8}, std::pair{2, 4}}) {
    for (const char* const fraction : {"floor", "exact"}) {
      const auto policy =
          MakeCase(fmt::format("self-extend,group={},window={},fraction={}", group, window, fraction), 64);
      for (int64_t n = 1; n < 40; ++n) {
        const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
        OneLayer layer(CaseSetup(*policy, n));
        layer.Prefill(inputs, n);
        for (const int32_t x : layer.seen(n - 1, 0).rotations) EXPECT_LT(x, policy->RotationBound(n));
      }
    }
  }
}

// ln(i + 1) / ln(L) is 1 at the last token of the trained window and more from the next on.
TEST(SelfExtend, LogNScalesFromTheTrainedWindowOn) {
  const auto plain = MakeCase("self-extend,group=4,window=16", 50);
  const auto scaled = MakeCase("self-extend,group=4,window=16,log_n=on", 50);
  const LayerInputs inputs = UniformInputs(kCaseShape, 52, 3);
  for (const bool decode : {false, true}) {
    OneLayer a(CaseSetup(*plain, 52)), b(CaseSetup(*scaled, 52));
    for (OneLayer* const layer : {&a, &b}) {
      if (!decode) layer->Prefill(inputs, 52);
      while (layer->size() < 52) layer->Decode(inputs);
    }
    const auto token = [&](const OneLayer& layer, int64_t i) {
      const int64_t floats = kCaseShape.n_heads * kCaseShape.head_dim;
      return std::vector<float>(layer.out().begin() + i * floats, layer.out().begin() + (i + 1) * floats);
    };
    for (int64_t i = 0; i < 52; ++i) EXPECT_EQ(token(a, i) == token(b, i), i < 50) << i;
  }
}

TEST(SelfExtend, GoldensNoticeEveryMutation) {
  const auto each_row = [](const PlanSegment& segment, Plan& plan,
                           const std::function<void(PlanRow&)>& change) {
    for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
      change(plan.rows[static_cast<std::size_t>(r)]);
    }
  };
  const std::vector<std::pair<std::string, Mutation>> mutations = {
      {"a window one longer",
       [](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments)
           ++(segment.absolute ? segment.max_distance : segment.min_distance);
       }},
      {"a window one shorter",
       [](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments)
           --(segment.absolute ? segment.max_distance : segment.min_distance);
       }},
      {"far positions one step off",
       [&](const QueryBlock&, Plan& plan) {
         for (const PlanSegment& segment : plan.segments) {
           if (!segment.absolute) each_row(segment, plan, [](PlanRow& row) { ++row.x; });
         }
       }},
      {"near keys in groups",
       [](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) segment.absolute = false;
       }},
      {"no far keys",
       [](const QueryBlock&, Plan& plan) {
         std::erase_if(plan.segments, [](const PlanSegment& segment) { return !segment.absolute; });
       }},
  };
  for (const char* const golden : {"self-extend-uneven", "self-extend-exact-gqa"}) {
    EXPECT_TRUE(MutatedDifferences(golden, [](const QueryBlock&, Plan&) {}).none());
    for (const auto& [what, mutation] : mutations) {
      const MethodDifferences differences = MutatedDifferences(golden, mutation);
      EXPECT_GT(differences.n_sets, 0) << golden << ": " << what;
      EXPECT_GT(differences.n_outputs, 0) << golden << ": " << what;
    }
  }
  // A scale is seen in the outputs alone.
  const MethodDifferences unscaled = MutatedDifferences(
      "self-extend-log-n", [](const QueryBlock&, Plan& plan) { plan.token_scales.clear(); });
  EXPECT_EQ(unscaled.n_sets, 0);
  EXPECT_GT(unscaled.n_outputs, 0);
}

TEST(SelfExtend, SaysHowFarItReaches) {
  const auto policy = [](const std::string& options, int64_t trained) {
    return MakeCase("self-extend" + options, trained);
  };
  const auto expect_capacity = [&](const std::string& options, int64_t trained, int64_t capacity) {
    const auto made = policy(options, trained);
    EXPECT_EQ(made->Warning(capacity), "") << options;
    EXPECT_NE(made->Warning(capacity + 1), "") << options;
    EXPECT_NE(made->Explain().find("good for " + std::to_string(capacity) + " tokens"), std::string::npos)
        << made->Explain();
    // No distance passes L - 1, the largest that was trained.
    if (capacity > 2000) return;
    const int64_t unit = made->Plane().unit;
    EXPECT_LE(LastSees(*made, capacity, true).front().second, (trained - 1) * unit) << options;
    EXPECT_GT(LastSees(*made, capacity + 1, true).front().second, (trained - 1) * unit) << options;
  };
  expect_capacity(",group=5,window=1024", 4096, 16380);
  expect_capacity(",group=8,window=1024", 4096, 25600);
  expect_capacity(",group=2,window=4", 7, 10);
  expect_capacity(",group=5,window=14", 32, 100);
  expect_capacity(",group=5,window=14,fraction=exact", 32, 100);
  expect_capacity(",group=12,window=8", 32, 288);
  expect_capacity(",group=5,window=32", 32, 32);
  expect_capacity(",group=1,window=8", 32, 32);
}

// What the warning advises is the authors' rule, and is enough.
TEST(SelfExtend, AdvisesAGroupByTheAuthorsRule) {
  const auto short_of = MakeCase("self-extend,group=4,window=1024", 4096);
  // 1024 + (30000 - 1024) / 17 = 2728 < 2730 < 1024 + (30000 - 1024) / 16.
  EXPECT_NE(short_of->Warning(30000).find("use group=17"), std::string::npos) << short_of->Warning(30000);
  EXPECT_EQ(MakeCase("self-extend,group=17,window=1024", 4096)->Warning(30000), "");
  const auto too_wide = MakeCase("self-extend,group=2,window=3000", 4096);
  EXPECT_NE(too_wide->Warning(30000).find("a smaller window"), std::string::npos);
  EXPECT_NE(short_of->Warning(10'000'000).find("--attn auto"), std::string::npos);
}

TEST(SelfExtend, ChoosesTheGroupByTheTextsLength) {
  const auto group = [](const std::string& options, int64_t n) {
    const auto policy = MakeCase("self-extend,group=auto" + options, 4096, n);
    EXPECT_EQ(policy->Warning(n), "") << n;
    return policy->Plane().group;
  };
  for (const int64_t inside : {0, 1, 4096}) EXPECT_EQ(group("", inside), 1) << inside;
  // 1024 + (n - 1024) / G < 2 / 3 * 4096 = 2730.7
  EXPECT_EQ(group("", 4097), 2);
  EXPECT_EQ(group("", 4437), 2);
  EXPECT_EQ(group("", 4438), 3);
  EXPECT_EQ(group("", 30000), 17);
  EXPECT_EQ(group(",window=512", 30000), 14);  // 512 + 29488 / 14 = 2618.3; / 13 = 2780.3
  EXPECT_NE(RefusalOf("self-extend,group=auto", 4096, 10'000'000).find("no group of up to 1024"),
            std::string::npos);
  EXPECT_NE(RefusalOf("self-extend,group=auto,window=3000", 4096, 5000).find("leave window out"),
            std::string::npos);
  // And the window where no group is enough: 1024 + (2,000,000 - 1024) / 1024 = 2976, 512 + ... / G = 2730
  // with G = 902.
  const auto narrow = MakeCase("self-extend,group=auto", 4096, 2'000'000);
  EXPECT_NE(narrow->Explain().find("the last 512 at their true distances, the others in groups of 902"),
            std::string::npos)
      << narrow->Explain();
  EXPECT_EQ(narrow->Warning(2'000'000), "");
  EXPECT_NE(RefusalOf("self-extend,group=auto,window=1024", 4096, 2'000'000).find("leave window out"),
            std::string::npos);
}

TEST(SelfExtend, DefaultsFollowTheTrainedWindow) {
  const auto expect = [](const std::string& spec, int64_t trained, const std::string& part) {
    const std::string text = MakeCase(spec, trained)->Explain();
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect("self-extend", 8192, "the last 1024 at their true distances, the others in groups of 8");
  expect("self-extend", 4096, "the last 1024 ");
  expect("self-extend", 2048, "the last 512 ");
  expect("self-extend", 2, "the last 1 ");
  expect("self-extend,group=3", 8192, "groups of 3");
}

TEST(SelfExtend, RefusesWhatCannotApply) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"self-extend,group=0", "group must be at least 1"},
      {"self-extend,group=1025", "group=1025 is more than 1024"},
      {"self-extend,group=1.5", "'1.5' is not a count"},
      {"self-extend,window=0", "window must be at least 1"},
      {"self-extend,window=65", "window=65 is larger than the model's window of 64 tokens"},
      {"self-extend,log_n=yes", "log_n is 'yes', but must be on or off"},
      {"self-extend,fraction=true", "fraction is 'true', but must be floor or exact"},
      {"self-extend,recent=5", "self-extend has no option 'recent'"},
  };
  for (const auto& [spec, expected] : cases) {
    const std::string message = RefusalOf(spec, 64);
    EXPECT_NE(message.find(expected), std::string::npos) << spec << ": " << message;
  }
  EXPECT_EQ(RefusalOf("self-extend,window=64,group=1024", 64), "");
  EXPECT_NE(RefusalOf("self-extend", 0), "");
  EXPECT_NE(RefusalOf("self-extend,log_n=on", 1), "");
}

}  // namespace
}  // namespace longheads
