#include "eval/needlebench.h"

#include <gtest/gtest.h>

#include <set>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

std::string Sentences(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "Sentence number " + std::to_string(i) + " is here. ";
  return text;
}

class NeedleBenchTest : public testing::Test {
 protected:
  NeedleBenchTask Make(NeedleBenchOptions options) {
    return {Haystack::FromText("text", Sentences(2000)), StandardBenchNeedles(), std::move(options)};
  }
  TestDirectory directory_;
  std::unique_ptr<Engine> engine_ = TinyEngine(directory_, "full");
};

TEST_F(NeedleBenchTest, EachDepthHasANeedleAndAllAreAskedFor) {
  const std::vector<int64_t> depths = {0, 10, 50, 100};
  const NeedleBenchTask task = Make({.lengths = {4000}, .depths = depths, .n_repeats = 3});
  std::set<std::string> first;
  for (const Sample& sample : task.samples()) {
    const auto question = task.Ask(*engine_, PromptForm::kChat, sample, nullptr);
    ASSERT_TRUE(question) << question.error().message;
    const std::string& text = question->text.rest;
    const auto keywords = question->references.get<std::vector<std::string>>();
    ASSERT_EQ(keywords.size(), 4u);
    first.insert(keywords[0]);
    const double begin = static_cast<double>(text.find("\n\n")) + 2,
                 end = static_cast<double>(text.rfind("\n\nWhat "));
    const double n_needles = 4 * 75;  // bytes, about
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t at = text.find(" is the " + keywords[i] + ".");
      ASSERT_NE(at, std::string::npos);
      const double share = (static_cast<double>(at) - begin) / (end - begin - n_needles);
      EXPECT_NEAR(share, static_cast<double>(depths[i]) / 100, 0.12);
    }
    EXPECT_EQ(question->max_new, 160);
    const auto tokens = engine_->tokenizer().Encode(text.substr(0, static_cast<std::size_t>(end)), {});
    EXPECT_NEAR(static_cast<double>(tokens->size()), 3500, 120);
  }
  EXPECT_GT(first.size(), 1u) << "repeats have other needles";
}

TEST_F(NeedleBenchTest, ScoreIsTheShareOfKeywordsAndSaysWhichDepths) {
  const NeedleBenchTask task = Make({.lengths = {4000}, .depths = {10, 90}});
  Question question;
  question.references = {"Glass Compass", "Copper Crown"};
  const Score score = task.Judge(question, "It is the Copper Crown, not the glass compass.");
  EXPECT_DOUBLE_EQ(score.value, 0.5);
  EXPECT_EQ(score.values.at("depth_10"), 0.0);
  EXPECT_EQ(score.values.at("depth_90"), 1.0);
}

TEST_F(NeedleBenchTest, ReadsTheOfficialNeedles) {
  // A fixture in the official form, not official data.
  const std::string file = directory_.File("needles.jsonl");
  const auto line = [](const std::string& language, const std::string& subject, const std::string& item) {
    return Json{{"needle", "Hidden on " + subject + " is " + item + "."},
                {"retrieval_question", "What is hidden on " + subject +
                                           "? Please answer in the format 'Hidden on " + subject +
                                           " is ______.'"},
                {"gold_standard_answer", ""},
                {"arg1", subject},
                {"arg2", item},
                {"language", language}}
               .dump() +
           "\n";
  };
  AppendText(file, line("English", "A", "x1") + line("Chinese", "B", "x2") + line("English", "A", "x3") +
                       line("English", "C", "x1") + line("English", "D", "x4"));
  const auto needles = ReadBenchNeedles(file);
  ASSERT_TRUE(needles) << needles.error().message;
  ASSERT_EQ(needles->size(), 2u);
  EXPECT_EQ((*needles)[0].question, "What is hidden on A?");
  EXPECT_EQ((*needles)[0].format, "Hidden on A is ______");
  EXPECT_EQ((*needles)[1].keyword, "x4");
  const auto few = MakeTask(NeedleBenchKind(), {{"needles", file}});
  ASSERT_FALSE(few);
  EXPECT_NE(few.error().message.find("11 places, but there are 2 needles"), std::string::npos);
  AppendText(file, "{}\n");
  EXPECT_NE(ReadBenchNeedles(file).error().message.find("line 6"), std::string::npos);
}

TEST_F(NeedleBenchTest, ANeedleNestedTooDeeplyIsRefusedInASentence) {
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& line : {nested, "{\"language\": \"English\", \"needle\": " + nested + "}"}) {
    const std::string file = directory_.File("nested.jsonl");
    std::ofstream(file) << line << '\n';
    const auto needles = ReadBenchNeedles(file);
    ASSERT_FALSE(needles);
    EXPECT_TRUE(needles.error().message.starts_with(file + ", line 1 is no needle of NeedleBench"));
    EXPECT_NE(needles.error().message.find("nested too deeply"), std::string::npos)
        << needles.error().message;
  }
}

TEST_F(NeedleBenchTest, RefusesByName) {
  const auto refused = [](TaskOptions::Values values, const std::string& words) {
    const auto task = MakeTask(NeedleBenchKind(), std::move(values));
    ASSERT_FALSE(task) << words;
    EXPECT_NE(task.error().message.find(words), std::string::npos) << task.error().message;
  };
  refused({{"depths", "50,10"}}, "--depths must rise");
  refused({{"depths", "0,101"}}, "--depths has 101");
  refused({{"needles", "/nowhere/n.jsonl"}},
          "--needles /nowhere/n.jsonl: there is no such file; NeedleBench");
  refused({{"needles", "/nowhere/n.jsonl"}}, "needles.jsonl");
  const Status status =
      Make({.lengths = {800}, .depths = {0, 50, 100}}).Check(*engine_, PromptForm::kChat, nullptr);
  EXPECT_TRUE(status);
  EXPECT_FALSE(
      Make({.lengths = {800}, .depths = {0, 10, 50, 80, 100}}).Check(*engine_, PromptForm::kChat, nullptr));
}

}  // namespace
}  // namespace longheads
