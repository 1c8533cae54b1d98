// What StreamingLLM promises beside its definition, which the goldens hold it to.
#include "attention/streaming_llm.h"

#include <gtest/gtest.h>

#include "tests/support/method_case.h"

namespace longheads {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

TEST(StreamingLlm, SlotsAreThoseOfACacheWithTheQueryOnTop) {
  // The cache holds tokens 0, 1 and 4, 5, 6 in slots 0 .. 4 when token 7 comes to slot 5.
  const auto policy = MakeCase("streaming-llm,start=2,recent=3", 64);
  for (const bool decode : {false, true}) {
    EXPECT_EQ(LastSees(*policy, 8, decode), (Pairs{{0, 5}, {1, 4}, {4, 3}, {5, 2}, {6, 1}, {7, 0}}));
    // The last one before anything is evicted: slots are positions.
    EXPECT_EQ(LastSees(*policy, 6, decode), (Pairs{{0, 5}, {1, 4}, {2, 3}, {3, 2}, {4, 1}, {5, 0}}));
    EXPECT_EQ(LastSees(*policy, 7, decode), (Pairs{{0, 5}, {1, 4}, {3, 3}, {4, 2}, {5, 1}, {6, 0}}));
  }
}

TEST(StreamingLlm, ChunkSafeSinksLieImmediatelyBeforeTheRecentTokens) {
  const auto policy = MakeCase("streaming-llm,start=2,recent=3,form=chunk-safe", 64);
  for (const bool decode : {false, true}) {
    EXPECT_EQ(LastSees(*policy, 8, decode), (Pairs{{0, 4}, {1, 3}, {5, 2}, {6, 1}, {7, 0}}));
    // Token 1 is still a recent one, at its true distance; token 0 is not.
    EXPECT_EQ(LastSees(*policy, 4, decode), (Pairs{{0, 4}, {1, 2}, {2, 1}, {3, 0}}));
    EXPECT_EQ(LastSees(*policy, 3, decode), (Pairs{{0, 2}, {1, 1}, {2, 0}}));
  }
}

TEST(StreamingLlm, WithoutSinksIsASlidingWindow) {
  EXPECT_EQ(LastSees(*MakeCase("streaming-llm,start=0,recent=2", 64), 9, true),
            (Pairs{{6, 2}, {7, 1}, {8, 0}}));
  EXPECT_EQ(LastSees(*MakeCase("streaming-llm,start=0,recent=2,form=chunk-safe", 64), 9, true),
            (Pairs{{7, 1}, {8, 0}}));
}

TEST(StreamingLlm, EqualsFullAttentionWhileTheTextFits) {
  const auto slots = MakeCase("streaming-llm,start=4,recent=59", 64);
  EXPECT_LE(DifferenceFromFull(*slots, 64), 1);
  EXPECT_GT(DifferenceFromFull(*slots, 65), 1);
  const auto chunk_safe = MakeCase("streaming-llm,start=4,recent=60,form=chunk-safe", 64);
  EXPECT_LE(DifferenceFromFull(*chunk_safe, 60), 1);
  EXPECT_GT(DifferenceFromFull(*chunk_safe, 61), 1);
}

TEST(StreamingLlm, ReadsOnlyWhatItSeesHoweverLongTheText) {
  for (const auto& [form, n_seen] : {std::pair{"slots", 36}, std::pair{"chunk-safe", 35}}) {
    const auto policy = MakeCase(std::string("streaming-llm,start=5,recent=30,form=") + form, 64);
    for (const int64_t n : {100, 600}) {
      const KeysRead keys = ReadForLast(*policy, n);
      EXPECT_EQ(keys.seen, n_seen) << form;
      EXPECT_EQ(keys.read, n_seen) << form;
      EXPECT_EQ(policy->StateBytes(n), policy->NewState()->Bytes());
    }
  }
}

TEST(StreamingLlm, RotationsStayBelowTheirBound) {
  for (const char* const form : {"slots", "chunk-safe"}) {
    const auto policy = MakeCase(std::string("streaming-llm,start=9,recent=5,form=") + form, 64);
    for (int64_t n = 1; n < 20; ++n) {
      const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
      OneLayer layer(CaseSetup(*policy, n));
      layer.Prefill(inputs, n);
      for (const int32_t x : layer.seen(n - 1, 0).rotations) EXPECT_LT(x, policy->RotationBound(n)) << form;
    }
  }
}

// The goldens' comparison would notice each of these.
TEST(StreamingLlm, GoldensNoticeEveryMutation) {
  const std::vector<std::pair<std::string, Mutation>> mutations = {
      {"a sink one step off",
       [](const QueryBlock&, Plan& plan) {
         for (PlanSegment& segment : plan.segments) {
           if (segment.key_begin != 0 || segment.key_end > 4) continue;
           for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
             ++plan.rows[static_cast<std::size_t>(r)].x;
           }
         }
       }},
      {"one recent key more",
       [](const QueryBlock&, Plan& plan) {
         PlanSegment& recent = plan.segments.back();
         ++recent.max_distance;
       }},
      {"one recent key less",
       [](const QueryBlock&, Plan& plan) {
         PlanSegment& recent = plan.segments.back();
         --recent.max_distance;
       }},
      {"no first sink", [](const QueryBlock&, Plan& plan) { ++plan.segments.front().key_begin; }},
      {"no own key", [](const QueryBlock&, Plan& plan) { plan.segments.back().min_distance = 1; }},
  };
  for (const char* const golden : {"streaming-llm-slots-mha", "streaming-llm-chunk-safe-gqa"}) {
    EXPECT_TRUE(MutatedDifferences(golden, [](const QueryBlock&, Plan&) {}).none());
    for (const auto& [what, mutation] : mutations) {
      const MethodDifferences differences = MutatedDifferences(golden, mutation);
      EXPECT_GT(differences.n_sets, 0) << golden << ": " << what;
      EXPECT_GT(differences.n_outputs, 0) << golden << ": " << what;
    }
  }
}

TEST(StreamingLlm, DefaultsFollowTheTrainedWindow) {
  const auto explain = [](const std::string& spec, int64_t trained) {
    return MakeCase(spec, trained)->Explain();
  };
  const auto expect = [&](const std::string& spec, int64_t trained, const std::string& part) {
    const std::string text = explain(spec, trained);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect("streaming-llm", 8192, "first 4 tokens of the text and the last 2001 up to itself");
  expect("streaming-llm,form=chunk-safe", 8192, "first 4 tokens of the text and the last 2000 up to itself");
  expect("streaming-llm", 2005, "last 2001 ");
  expect("streaming-llm", 2004, "last 2000 ");
  expect("streaming-llm,form=chunk-safe", 2003, "last 1999 ");
  expect("streaming-llm,start=128", 1024, "first 128 tokens of the text and the last 896 up");
  expect("streaming-llm", 8, "first 2 tokens of the text and the last 6 up");
  expect("streaming-llm", 2, "first 0 tokens of the text and the last 2 up");
}

TEST(StreamingLlm, RefusesWhatCannotApply) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"streaming-llm,start=-1", "'-1' is not a count"},
      {"streaming-llm,recent=0", "recent must be at least 1"},
      {"streaming-llm,form=ring", "form is 'ring', but must be slots or chunk-safe"},
      {"streaming-llm,start=63", "start=63 leaves no room for recent tokens in the 64"},
      {"streaming-llm,start=1m", "leaves no room"},
      {"streaming-llm,recent=60", "use at most recent=59"},
      {"streaming-llm,recent=61,form=chunk-safe", "use at most recent=60"},
      {"streaming-llm,window=5", "streaming-llm has no option 'window'"},
  };
  for (const auto& [spec, expected] : cases) {
    const std::string message = RefusalOf(spec, 64);
    EXPECT_NE(message.find(expected), std::string::npos) << spec << ": " << message;
  }
  EXPECT_EQ(RefusalOf("streaming-llm,recent=59", 64), "");
  EXPECT_EQ(RefusalOf("streaming-llm,recent=60,form=chunk-safe", 64), "");
  EXPECT_NE(RefusalOf("streaming-llm", 1), "");
}

TEST(StreamingLlm, WarnsThatTheMiddleIsNotRead) {
  const auto slots = MakeCase("streaming-llm,start=4,recent=27", 64);
  EXPECT_EQ(slots->Warning(32), "");
  EXPECT_NE(slots->Warning(40).find("first 4 and the last 28 alone, and 8 between"), std::string::npos)
      << slots->Warning(40);
  const auto chunk_safe = MakeCase("streaming-llm,start=4,recent=28,form=chunk-safe", 64);
  EXPECT_EQ(chunk_safe->Warning(32), "");
  EXPECT_NE(chunk_safe->Warning(33), "");
}

}  // namespace
}  // namespace longheads
