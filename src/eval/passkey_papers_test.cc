#include "eval/passkey_papers.h"

#include <gtest/gtest.h>

#include "eval/passkey_prompt.h"
#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

int64_t CountOf(const std::string& text, std::string_view part) {
  int64_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(PasskeyPapers, FillerOfLongHeadsHasThePublishedCharacters) {
  EXPECT_EQ(kPasskeyUnit.size(), 89u);
  EXPECT_EQ(PasskeyFillerCharacters(2048), 7168);
  EXPECT_EQ(PasskeyFillerCharacters(4096), 15360);
  EXPECT_EQ(PasskeyFillerCharacters(8192), 30720);
  EXPECT_EQ(PasskeyFillerCharacters(16384), 61440);
  const PasskeyPaperTask task({.lengths = {2048}, .n_repeats = 20});
  for (int64_t repeat = 0; repeat < 20; ++repeat) {
    const PasskeyPaperTask::Case c{.length = 2048, .repeat = repeat};
    const std::string text = task.Text(c, 7168);
    const std::string line = "The pass key is " + std::to_string(task.KeyOf(c)) + ". Remember it. " +
                             std::to_string(task.KeyOf(c)) + " is the pass key.";
    ASSERT_EQ(CountOf(text, "\n" + line + "\n"), 1);
    const std::size_t at = text.find(line), begin = kPasskeyTask.size() + 1;
    EXPECT_EQ(text.size(), begin + 7168 + line.size() + 3);
    EXPECT_NEAR(static_cast<double>(at - 1 - begin), task.DepthOf(c) * 7168, 1);
    // Both parts begin with the unit.
    EXPECT_TRUE(text.substr(begin).starts_with(std::string_view(kPasskeyUnit).substr(0, at - 1 - begin)) ||
                at - 1 - begin > 89);
    EXPECT_TRUE(text.substr(at + line.size() + 1).starts_with("The grass is") || 7168 + begin - at < 20);
  }
}

TEST(PasskeyPapers, KeysAreInThePublishedRanges) {
  const auto range = [](PasskeyPaper paper, int64_t digits = 5) {
    const PasskeyPaperTask task({.paper = paper, .lengths = {2048}, .n_repeats = 500, .digits = digits});
    int64_t least = INT64_MAX, most = 0;
    for (int64_t repeat = 0; repeat < 500; ++repeat) {
      const int64_t key = task.KeyOf({.length = 2048, .repeat = repeat});
      least = std::min(least, key);
      most = std::max(most, key);
    }
    return std::pair(least, most);
  };
  const auto within = [&](std::pair<int64_t, int64_t> found, int64_t least, int64_t most) {
    EXPECT_GE(found.first, least);
    EXPECT_LE(found.second, most);
    EXPECT_GT(found.second, most / 10 * 9);
  };
  within(range(PasskeyPaper::kLongHeads), 1, 49999);
  within(range(PasskeyPaper::kLandmark), 1, 50000);
  within(range(PasskeyPaper::kLmInfinite), 1, 9999999);
  within(range(PasskeyPaper::kSelfExtend), 10000, 99999);
  within(range(PasskeyPaper::kSelfExtend, 10), 1000000000, 9999999999);
  within(range(PasskeyPaper::kInfiniteBench), 10000, 99999);
}

TEST(PasskeyPapers, UnitsAreJoinedAsPublished) {
  const PasskeyPaperTask spaces({.paper = PasskeyPaper::kLmInfinite, .lengths = {2048}});
  const PasskeyPaperTask lines({.paper = PasskeyPaper::kSelfExtend, .lengths = {2048}});
  const PasskeyPaperTask::Case c{.length = 2048};
  EXPECT_EQ(CountOf(spaces.Text(c, 20), kPasskeyUnit), 20);
  EXPECT_EQ(CountOf(spaces.Text(c, 20), "\n"), 1);
  EXPECT_EQ(CountOf(lines.Text(c, 20), std::string(kPasskeyUnit) + "\n"), 20);
  EXPECT_EQ(CountOf(lines.Text(c, 20), "\n"), 22);
}

class PasskeyPaperTaskTest : public testing::Test {
 protected:
  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
};

TEST_F(PasskeyPaperTaskTest, EveryPaperRunsAndSaysWhetherTheKeyWasSplit) {
  for (const char* const paper : {"longheads", "landmark", "lm-infinite", "self-extend", "infinitebench"}) {
    const auto task = MakeTask(PasskeyPaperKind(),
                               {{"paper", paper}, {"lengths", "1k"}, {"repeats", "2"}, {"chunk", "16"}});
    ASSERT_TRUE(task) << task.error().message;
    std::vector<TaskRecord> records;
    const TaskHooks hooks{.load = [&](const std::string& spec) { return LoadTiny(model_, spec); }};
    const Status status = RunTask({.attention = {"full"}}, **task, hooks, records);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_EQ(records.size(), 2u);
    for (const TaskRecord& record : records) {
      EXPECT_EQ(record.failed, "");
      // A token is a byte here, and the line longer than a chunk: it is split wherever it stands.
      EXPECT_EQ(record.sample.cell.at("split"), "yes");
      if (std::string(paper) == "longheads") {
        EXPECT_EQ(record.measured.generated, 6) << "a space and five digits, a byte each";
      }
      if (std::string(paper) != "longheads" && std::string(paper) != "landmark") {
        EXPECT_LE(record.measured.tokens, 1024);
        EXPECT_GT(record.measured.tokens, 1024 - 16 - 100);
      }
    }
  }
}

TEST_F(PasskeyPaperTaskTest, GridHasDepthsInItsCells) {
  const auto task = MakeTask(PasskeyPaperKind(), {{"lengths", "1k,4k"}, {"depths", "3"}, {"repeats", "2"}});
  ASSERT_TRUE(task);
  ASSERT_EQ((*task)->samples().size(), 12u);
  EXPECT_EQ((*task)->samples()[2].cell.at("depth"), 50.0);
  EXPECT_EQ((*task)->samples()[11].cell.at("length"), 4096);
}

TEST_F(PasskeyPaperTaskTest, SplitIsAboutBoundariesOfChunks) {
  const auto engine = LoadTiny(model_, "full");
  const auto tokens =
      (*engine)->tokenizer().Encode(std::string(30, 'x') + "12345" + std::string(20, 'y'), {});
  const auto split = [&](int64_t chunk) { return IsSplit((*engine)->tokenizer(), *tokens, "12345", chunk); };
  EXPECT_TRUE(split(32));
  EXPECT_TRUE(split(31));
  EXPECT_FALSE(split(30));
  EXPECT_FALSE(split(35));
  EXPECT_FALSE(split(100));
}

}  // namespace
}  // namespace longheads
