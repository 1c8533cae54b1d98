#include "eval/counting_stars.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

std::string NumberedWords(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += fmt::format("w{}{}", i, i % 12 == 11 ? "\n" : " ");
  return text;
}

class CountingStarsTest : public testing::Test {
 protected:
  TestDirectory directory_;
  std::unique_ptr<Engine> engine_ = TinyEngine(directory_, "full");
};

TEST_F(CountingStarsTest, SentencesStandAtEqualDistancesOfWords) {
  const CountingStarsTask task(Haystack::FromText("text", NumberedWords(3000)),
                               {.context = 2000, .n_stars = 8, .n_samples = 4});
  ASSERT_EQ(task.samples().size(), 4u);
  for (std::size_t s = 0; s < 4; ++s) {
    const Sample& sample = task.samples()[s];
    EXPECT_EQ(sample.cell.at("length"), 500 * (s + 1));
    const auto question = task.Ask(*engine_, PromptForm::kChat, sample, nullptr);
    ASSERT_TRUE(question);
    const std::vector<int64_t> stars = task.Stars(sample);
    ASSERT_EQ(stars.size(), 8u);
    EXPECT_EQ(question->references.get<std::vector<int64_t>>(), stars);
    // floor(0.8 * tokens) words, a sentence behind each eighth of them.
    const std::size_t n_words = 400 * (s + 1), step = n_words / 8;
    std::istringstream lines(question->text.rest);
    std::string line;
    std::size_t words = 0;
    std::vector<int64_t> found;
    while (std::getline(lines, line) && !line.empty()) {
      if (line.starts_with("The little penguin counted ")) {
        EXPECT_EQ(words, step * (found.size() + 1));
        found.push_back(std::stoll(line.substr(27)));
        continue;
      }
      std::istringstream in(line);
      for (std::string word; in >> word; ++words) EXPECT_EQ(word, fmt::format("w{}", words));
    }
    EXPECT_EQ(words, n_words);
    EXPECT_EQ(found, stars);
    EXPECT_NE(question->text.rest.find("{\"little_penguin\": [x"), std::string::npos);
    EXPECT_EQ(question->text.answer_begin, "\n{\"little_penguin\": [");
    EXPECT_EQ(question->max_new, 8 * 5 + 20);
  }
}

TEST_F(CountingStarsTest, NumbersAreDistinctAndFollowSeedAndSample) {
  const Haystack haystack = Haystack::FromText("text", NumberedWords(3000));
  const CountingStarsTask task(haystack, {.context = 2000, .n_stars = 100, .n_samples = 2});
  const CountingStarsTask other(haystack, {.context = 2000, .n_stars = 100, .n_samples = 2, .seed = 1});
  std::vector<int64_t> stars = task.Stars(task.samples()[0]);
  EXPECT_EQ(stars, task.Stars(task.samples()[0]));
  EXPECT_NE(stars, task.Stars(task.samples()[1]));
  EXPECT_NE(stars, other.Stars(other.samples()[0]));
  std::ranges::sort(stars);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(stars[static_cast<std::size_t>(i)], i + 1);
}

TEST_F(CountingStarsTest, ScoreIsTheRecallOfTheNumbers) {
  const CountingStarsTask task(Haystack::FromText("text", NumberedWords(3000)), {});
  Question question;
  question.references = {3, 14, 15, 92};
  EXPECT_DOUBLE_EQ(task.Judge(question, "3, 14, 99, 92]").value, 0.75);
  EXPECT_DOUBLE_EQ(task.Judge(question, "none").value, 0);
}

TEST_F(CountingStarsTest, ReadsTheOfficialFormat) {
  // A fixture in the official form, not official data.
  const std::string file = directory_.File("Counting_Stars_EN_acquisition_fixture.jsonl");
  AppendText(file,
             "{\"question\": \"text\\nThe little penguin counted 3 \u2605\\nmore\\n\\n\\n\\nWhich?\", "
             "\"context_size\": 800, "
             "\"retrieval_question\": \"Which?\", \"reference_counting_results\": [3, 7], \"parameters\": "
             "{\"temperature\": 0.0}}\n");
  const auto task = MakeTask(CountingStarsKind(), {{"data", file}});
  ASSERT_TRUE(task) << task.error().message;
  ASSERT_EQ((*task)->samples().size(), 1u);
  EXPECT_EQ((*task)->samples()[0].cell.at("stars"), 2);
  EXPECT_EQ((*task)->samples()[0].cell.at("length"), 1000);
  EXPECT_TRUE((*task)->Setup().contains("words_per_token")) << "what the length follows tells records apart";
  const auto question = static_cast<CountingStarsTask&>(**task).Ask(*engine_, PromptForm::kChat,
                                                                    (*task)->samples()[0], nullptr);
  ASSERT_TRUE(question);
  EXPECT_TRUE(question->text.rest.ends_with("Which?"));
  AppendText(file, "{\"question\": \"text\"}\n");
  const auto broken = MakeTask(CountingStarsKind(), {{"data", file}});
  ASSERT_TRUE(broken) << broken.error().message;
  const auto& stars = static_cast<CountingStarsTask&>(**broken);
  ASSERT_EQ(stars.samples().size(), 2u);
  EXPECT_TRUE(stars.Check(*engine_, PromptForm::kChat, nullptr));
  EXPECT_TRUE(stars.Ask(*engine_, PromptForm::kChat, stars.samples()[0], nullptr));
  const auto damaged = stars.Ask(*engine_, PromptForm::kChat, stars.samples()[1], nullptr);
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().message.find("line 2"), std::string::npos) << damaged.error().message;
}

TEST_F(CountingStarsTest, WhatNoFileSaysIsRefusedInASentence) {
  const std::string file = directory_.File("bad.jsonl");
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  const std::string begin = "{\"question\": \"q\", \"reference_counting_results\": ";
  AppendText(file, nested + "\n" + begin + nested + "}\n" + begin + "[1e300]}\n" + begin + "7}\n");
  AppendText(file, begin + "[3], \"context_size\": 1e300}\n");
  const auto task = MakeTask(CountingStarsKind(), {{"data", file}});
  ASSERT_TRUE(task) << task.error().message;
  const auto& stars = static_cast<CountingStarsTask&>(**task);
  const auto problem = [&](std::size_t i) {
    const auto question = stars.Ask(*engine_, PromptForm::kChat, stars.samples()[i], nullptr);
    return question ? "" : question.error().message;
  };
  ASSERT_EQ(stars.samples().size(), 5u);
  EXPECT_NE(problem(0).find("line 1 is no sample of Counting-Stars"), std::string::npos) << problem(0);
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_NE(problem(i).find("nested too deeply"), std::string::npos) << problem(i);
  }
  for (const std::size_t i : {2U, 3U}) EXPECT_NE(problem(i), "");
  // A size that no text has is no reason to fail.
  EXPECT_EQ(problem(4), "");
  EXPECT_GT(stars.samples()[4].cell.at("length"), 0);
}

TEST_F(CountingStarsTest, AFileThatIsNotThereOrEmptyIsNamed) {
  const auto missing = MakeTask(CountingStarsKind(), {{"data", "/nowhere/stars.jsonl"}});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("--data /nowhere/stars.jsonl"), std::string::npos);
  EXPECT_NE(missing.error().message.find("Counting_Stars_EN_acquisition_*.jsonl"), std::string::npos);
  AppendText(directory_.File("empty.jsonl"), "\n");
  const auto empty = MakeTask(CountingStarsKind(), {{"data", directory_.File("empty.jsonl")}});
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message.find("is empty"), std::string::npos) << empty.error().message;
}

TEST_F(CountingStarsTest, MoreStarsThanWordsIsRefused) {
  const CountingStarsTask task(Haystack::FromText("text", NumberedWords(3000)),
                               {.context = 200, .n_stars = 100, .n_samples = 10});
  const Status status = task.Check(*engine_, PromptForm::kChat, nullptr);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("--stars 100"), std::string::npos);
}

}  // namespace
}  // namespace longheads
