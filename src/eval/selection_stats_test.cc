#include "eval/selection_stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

double GiniByDefinition(const std::vector<int64_t>& x) {
  double sum = 0, differences = 0;
  for (const int64_t a : x) {
    sum += static_cast<double>(a);
    for (const int64_t b : x) differences += std::abs(static_cast<double>(a - b));
  }
  return sum == 0 ? 0 : differences / (2 * static_cast<double>(x.size()) * sum);
}

TEST(GiniCoefficient, IsTheDefinitions) {
  for (const std::vector<int64_t>& x :
       {std::vector<int64_t>{3, 3, 3}, {0, 0, 6}, {1, 2, 3, 4}, {0, 0}, {5}, {}}) {
    EXPECT_NEAR(GiniCoefficient(x), GiniByDefinition(x), 1e-12);
  }
  EXPECT_NEAR(GiniCoefficient(std::vector<int64_t>{0, 0, 0, 8}), 0.75, 1e-12);
  EXPECT_EQ(GiniCoefficient(std::vector<int64_t>{2, 2}), 0);
}

TEST(BestRank, IsOfTheBestWantedBlockAmongThoseRanked) {
  const std::vector<double> values = {9, 1, 5, 5, 2};
  const std::vector<int64_t> ranked = {0, 1, 1, 1, 1};
  const auto rank = [&](std::vector<int64_t> wanted) { return BestRank(values, ranked, wanted); };
  EXPECT_EQ(rank({2}), 1);
  EXPECT_EQ(rank({3}), 2);  // a tie: the lower index first
  EXPECT_EQ(rank({1}), 4);
  EXPECT_EQ(rank({1, 4}), 3);
  EXPECT_EQ(rank({0}), 0);
  EXPECT_EQ(rank({}), 0);
}

TEST(BlockTally, CountsChoicesAndScoresByBlock) {
  BlockTally tally(2, {.n_heads = 2, .n_kv_heads = 1, .head_dim = 4}, {.first = 0, .tokens = 8}, 5);
  const std::vector<int32_t> taken = {1, 3};
  const std::vector<float> scores = {4, 1, 3};
  BlockChoice choice{.layer = 1,
                     .token_begin = 40,
                     .token_end = 41,
                     .head_begin = 0,
                     .head_end = 2,
                     .first = 1,
                     .n_candidates = 3,
                     .taken = taken,
                     .scores = scores};
  tally.OnChoice(choice);
  choice.head_end = 1;
  choice.layer = 0;
  tally.OnChoice(choice);
  EXPECT_EQ(tally.taken(), (std::vector<int64_t>{0, 3, 0, 3, 0}));
  const std::vector<double> sums = tally.scores();
  EXPECT_EQ(std::vector<double>(sums.begin() + 1, sums.begin() + 4), (std::vector<double>{12, 3, 9}));
  EXPECT_TRUE(std::isinf(sums[0]) && std::isinf(sums[4]));
  EXPECT_TRUE(tally.has_scores());
  choice.scores = {};
  tally.OnChoice(choice);
  EXPECT_FALSE(tally.has_scores());
}

TEST(BlocksOf, AreThoseOfTheTokensThatHoldTheText) {
  const TestDirectory directory;
  const auto engine = TinyEngine(directory, "full");
  const std::string text = std::string(30, 'x') + "12345" + std::string(20, 'y') + "12345";
  const auto tokens = engine->tokenizer().Encode(text, {});
  ASSERT_TRUE(tokens);
  ASSERT_EQ(tokens->size(), text.size());  // bytes
  const auto blocks = [&](int64_t first, int64_t n) {
    return BlocksOf(engine->tokenizer(), *tokens, "12345", {.first = first, .tokens = n});
  };
  EXPECT_EQ(blocks(0, 16), (std::vector<int64_t>{1, 2, 3}));  // tokens 30 .. 34 and 55 .. 59
  EXPECT_EQ(blocks(0, 100), (std::vector<int64_t>{0}));
  EXPECT_EQ(blocks(32, 16), (std::vector<int64_t>{0, 1}));
}

class SelectionTaskTest : public testing::Test {
 protected:
  std::vector<TaskRecord> Run(SelectionTask task, const std::string& spec) {
    std::vector<TaskRecord> records;
    const TaskHooks hooks{.load = [&](const std::string& s) { return LoadTiny(model_, s); }};
    const Status status = RunTask({.attention = {spec}}, task, hooks, records);
    EXPECT_TRUE(status) << status.error().message;
    return records;
  }
  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
};

TEST_F(SelectionTaskTest, FullWindowCoversAllAndAFewChunksDoNot) {
  const SelectionOptions options{.lengths = {1500}, .n_samples = 2, .n_decode = 4};
  int64_t n_ranked = 0;
  for (const TaskRecord& record :
       Run(SelectionTask({}, options), "longheads,chunk=64,window=256,begin=256")) {
    EXPECT_EQ(record.failed, "");
    const Json& values = record.measured.values;
    EXPECT_EQ(values.at("blocks"), (record.measured.tokens + 63) / 64);
    EXPECT_GT(record.measured.score, 0.1);
    EXPECT_LE(record.measured.score, 1);
    EXPECT_GT(values.at("gini").get<double>(), 0);
    EXPECT_LT(values.at("gini").get<double>(), 1);
    // None where the key lies in what is never up for choice.
    EXPECT_EQ(values.contains("rank"), values.contains("top5"));
    if (!values.contains("rank")) continue;
    ++n_ranked;
    EXPECT_GE(values.at("rank").get<int64_t>(), 1);
    EXPECT_EQ(values.at("top1").get<int64_t>(), values.at("rank") == 1 ? 1 : 0);
    EXPECT_EQ(values.at("top5").get<int64_t>(), values.at("rank") <= 5 ? 1 : 0);
    EXPECT_TRUE(values.contains("top5_by_count"));
  }
  EXPECT_GT(n_ranked, 0);
}

TEST_F(SelectionTaskTest, SummaryHasNothingToHit) {
  std::string text;
  for (int i = 0; i < 900; ++i) text += "Word " + std::to_string(i) + ". ";
  const SelectionOptions options{.lengths = {1000}, .n_samples = 1, .summary = true, .n_decode = 3};
  const auto records = Run(SelectionTask(Haystack::FromText("text", text), options),
                           "longheads,chunk=64,window=256,begin=256");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].failed, "");
  EXPECT_FALSE(records[0].measured.values.contains("top1"));
  EXPECT_LE(records[0].measured.tokens, 1000);
  EXPECT_GE(records[0].measured.tokens, 990);
}

TEST_F(SelectionTaskTest, MethodWithoutBlocksFailsWithTheReason) {
  const auto records = Run(SelectionTask({}, {.lengths = {1000}, .n_samples = 1}), "full");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_NE(records[0].failed.find("choose no blocks"), std::string::npos) << records[0].failed;
}

}  // namespace
}  // namespace longheads
