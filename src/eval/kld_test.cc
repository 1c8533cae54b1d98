#include "eval/kld.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

TEST(KlDivergence, HasItsKnownValues) {
  // p = (1/2, 1/4, 1/4), q uniform: log 3 - 1.5 log 2; logits may be shifted.
  const std::vector<float> p = {std::log(2.0f) + 7, 7, 7}, q = {-3, -3, -3};
  EXPECT_NEAR(KlDivergence(p, q), std::log(3.0) - 1.5 * std::log(2.0), 1e-6);
  // The other way round: log(1/3) averaged against p.
  EXPECT_NEAR(KlDivergence(q, p), (std::log(2.0 / 3) + 2 * std::log(4.0 / 3)) / 3, 1e-6);
  EXPECT_EQ(KlDivergence(p, p), 0);
  const std::vector<float> bad = {0, NAN, 0};
  EXPECT_FALSE(std::isfinite(KlDivergence(bad, q)));
}

class KldTest : public testing::Test {
 protected:
  std::vector<TaskRecord> Run(const std::vector<std::string>& attention) {
    std::string text;
    for (int i = 0; i < 900; ++i) text += std::to_string(i * 7919 % 1009) + " ";
    KldTask task(Haystack::FromText("text", text), {.lengths = {200, 400}, .n_samples = 2, .n_score = 20});
    std::vector<TaskRecord> records;
    const TaskHooks hooks{.load = [&](const std::string& spec) { return LoadTiny(model_, spec); }};
    const Status status = RunTask({.attention = attention}, task, hooks, records);
    EXPECT_TRUE(status) << status.error().message;
    return records;
  }
  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
};

TEST_F(KldTest, DenseAttentionIsNothingFromItselfAndAWindowIsSomething) {
  const std::vector<TaskRecord> records =
      Run({"full", "longheads,chunk=64,window=512,begin=512", "streaming-llm,start=4,recent=60"});
  ASSERT_EQ(records.size(), 12u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].failed, "");
    EXPECT_EQ(records[i].measured.score, 0);
    EXPECT_EQ(records[i].measured.values.at("same_top"), 1.0);
    EXPECT_EQ(records[i].measured.values.at("nll"), records[i].measured.values.at("nll_against"));
  }
  // Inside `begin` it is full attention but for roundings.
  for (std::size_t i = 4; i < 8; ++i) EXPECT_LT(records[i].measured.score, 1e-9);
  for (std::size_t i = 8; i < 12; ++i) {
    EXPECT_EQ(records[i].failed, "");
    EXPECT_GT(records[i].measured.score, 1e-6);
    EXPECT_GE(records[i].measured.values.at("kl_max").get<double>(), records[i].measured.score);
  }
}

TEST_F(KldTest, BeyondTheWindowIsRefused) {
  KldTask task(Haystack::FromText("text", "a b c"), {.lengths = {1 << 20}});
  const auto engine = LoadTiny(model_, "full");
  const Status status = task.Check(**engine, PromptForm::kPlain, nullptr);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("--lengths has 1048576"), std::string::npos);
  const auto few = MakeTask(KldKind(), {{"lengths", "100"}, {"score", "99"}});
  ASSERT_FALSE(few);
  EXPECT_NE(few.error().message.find("--score is 99"), std::string::npos);
}

}  // namespace
}  // namespace longheads
