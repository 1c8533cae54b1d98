#include "eval/passkey_papers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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
    const std::string key = task.KeyOf(c);
    const std::string line = "The pass key is " + key + ". Remember it. " + key + " is the pass key.";
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
      const int64_t key = std::stoll(task.KeyOf({.length = 2048, .repeat = repeat}));
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
  within(range(PasskeyPaper::kYarn), 1, 50000);
  within(range(PasskeyPaper::kLmInfinite), 1, 9999999);
  within(range(PasskeyPaper::kSelfExtend), 10000, 99999);
  within(range(PasskeyPaper::kSelfExtend, 10), 1000000000, 9999999999);
  within(range(PasskeyPaper::kInfiniteBench), 0, 99999);
}

TEST(PasskeyPapers, KeysOfInfiniteBenchAreFiveDigitsOfWhichAnyMayBe0) {
  const PasskeyPaperTask task({.paper = PasskeyPaper::kInfiniteBench, .lengths = {2048}, .n_repeats = 1000});
  std::vector<std::set<char>> digits(5);  // by place
  for (int64_t repeat = 0; repeat < 1000; ++repeat) {
    const PasskeyPaperTask::Case c{.length = 2048, .repeat = repeat};
    const std::string key = task.KeyOf(c);
    ASSERT_EQ(key.size(), 5u);
    for (std::size_t place = 0; place < 5; ++place) digits[place].insert(key[place]);
    ASSERT_EQ(CountOf(task.Text(c, 3), "The pass key is " + key + ". Remember it. " + key + " is"), 1);
  }
  for (const std::set<char>& at_place : digits) EXPECT_EQ(at_place.size(), 10u);
}

// The official program's: for j in range(0, 5220 + 1, 90), j units stand before the key.
TEST(PasskeyPapers, PlacesOfInfiniteBenchAreFromBeforeAllUnitsToBehindAll) {
  const PasskeyPaperTask drawn({.paper = PasskeyPaper::kInfiniteBench, .lengths = {2048}, .n_repeats = 500});
  std::set<int64_t> official, before;
  for (int64_t j = 0; j < 5220 + 1; j += 90) official.insert(j);
  ASSERT_EQ(official.size(), 59u);
  const auto units_before = [](const PasskeyPaperTask& task, const PasskeyPaperTask::Case& c) {
    const std::string text = task.Text(c, 5220);
    return CountOf(text.substr(0, text.find("The pass key is")), kPasskeyUnit);
  };
  for (int64_t repeat = 0; repeat < 500; ++repeat) {
    before.insert(units_before(drawn, {.length = 2048, .repeat = repeat}));
  }
  EXPECT_EQ(before, official);
  // All of them in turn.
  const PasskeyPaperTask grid({.paper = PasskeyPaper::kInfiniteBench, .lengths = {2048}, .n_depths = 59});
  before.clear();
  for (int64_t d = 0; d < 59; ++d) before.insert(units_before(grid, {.length = 2048, .depth_index = d}));
  EXPECT_EQ(before, official);
}

TEST(PasskeyPapers, LandmarksLengthsAreCharactersOfFiller) {
  const auto task = MakeTask(PasskeyPaperKind(), {{"paper", "landmark"}, {"repeats", "50"}});
  ASSERT_TRUE(task) << task.error().message;
  ASSERT_EQ((*task)->samples().size(), 13u * 50);
  std::set<int64_t> lengths;
  std::set<std::string> ids;
  for (const Sample& sample : (*task)->samples()) {
    lengths.insert(sample.cell.at("characters").get<int64_t>());
    ids.insert(sample.id);
  }
  EXPECT_EQ(lengths, (std::set<int64_t>{0, 100, 500, 1000, 5000, 8000, 10000, 12000, 14000, 18000, 20000,
                                        25000, 38000}));
  EXPECT_EQ(ids.size(), 13u * 50);
  // No text of tokens has the same name.
  const auto by_tokens = MakeTask(PasskeyPaperKind(), {{"paper", "landmark"}, {"lengths", "1000"}});
  ASSERT_TRUE(by_tokens);
  EXPECT_EQ((*by_tokens)->samples()[0].cell.at("length"), 1000);
  EXPECT_FALSE(ids.contains((*by_tokens)->samples()[0].id));
  const auto refused = MakeTask(PasskeyPaperKind(), {{"paper", "lm-infinite"}, {"characters", "1000"}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--characters is for longheads and landmark alone"),
            std::string::npos);
}

TEST(PasskeyPapers, UnitsAreJoinedAsPublished) {
  const PasskeyPaperTask spaces({.paper = PasskeyPaper::kLmInfinite, .lengths = {2048}});
  const PasskeyPaperTask lines({.paper = PasskeyPaper::kSelfExtend, .lengths = {2048}});
  const PasskeyPaperTask::Case c{.length = 2048};
  EXPECT_EQ(CountOf(spaces.Text(c, 20), kPasskeyUnit), 20);
  EXPECT_EQ(CountOf(spaces.Text(c, 20), "\n"), 1);
  EXPECT_EQ(CountOf(lines.Text(c, 20), std::string(kPasskeyUnit) + "\n"), 20);
  EXPECT_EQ(CountOf(lines.Text(c, 20), "\n"), 22);
  const PasskeyPaperTask yarn({.paper = PasskeyPaper::kYarn, .lengths = {2048}});
  EXPECT_EQ(CountOf(yarn.Text(c, 1280), "\n"), 4);
}

class PasskeyPaperTaskTest : public testing::Test {
 protected:
  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
};

TEST_F(PasskeyPaperTaskTest, EveryPaperRunsAndSaysWhetherTheKeyWasSplit) {
  for (const std::string paper :
       {"longheads", "landmark", "yarn", "lm-infinite", "self-extend", "infinitebench"}) {
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
      if (paper == "longheads") {
        EXPECT_EQ(record.measured.generated, 6) << "a space and five digits, a byte each";
      }
      if (paper == "landmark" || paper == "yarn") {
        EXPECT_LE(record.measured.generated, 10);
      }
      if (paper == "lm-infinite" || paper == "self-extend" || paper == "infinitebench") {
        EXPECT_LE(record.measured.tokens, 1024 - 16);  // with room for an answer
        EXPECT_GT(record.measured.tokens, 1024 - 16 - 90) << "another unit would fit";
      }
    }
  }
}

TEST_F(PasskeyPaperTaskTest, YarnsFillerGrowsIn128CharactersUpToTheLength) {
  const auto engine = LoadTiny(model_, "full");
  const PasskeyPaperTask task({.paper = PasskeyPaper::kYarn, .lengths = {1024}});
  for (const int64_t length : {400, 512, 1000, 2048, 4097}) {
    const PasskeyPaperTask::Case c{.length = length};
    const auto filler = task.FillerOf(**engine, PromptForm::kPlain, c);
    ASSERT_TRUE(filler) << filler.error().message;
    EXPECT_EQ(*filler % 128, 0);
    const auto tokens = [&](int64_t characters) {
      const std::string prompt = task.Text(c, characters) + "What is the pass key? The pass key is";
      return static_cast<int64_t>((*engine)->EncodePrompt(prompt, /*chat=*/false)->size());
    };
    EXPECT_LT(tokens(*filler), length);
    EXPECT_GE(tokens(*filler + 128), length);
  }
}

TEST_F(PasskeyPaperTaskTest, FillerIsAsManyCharactersAsWereAskedFor) {
  const auto engine = LoadTiny(model_, "full");
  for (const PasskeyPaper paper : {PasskeyPaper::kLongHeads, PasskeyPaper::kLandmark}) {
    const PasskeyPaperTask characters({.paper = paper, .lengths = {77}, .by_characters = true});
    EXPECT_EQ(characters.FillerOf(**engine, PromptForm::kPlain, {.length = 77}), 77);
    const PasskeyPaperTask tokens({.paper = paper, .lengths = {2048}});
    EXPECT_EQ(tokens.FillerOf(**engine, PromptForm::kPlain, {.length = 2048}), 7168);
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
