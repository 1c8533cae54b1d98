#include "eval/ruler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

int64_t CountOf(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(RulerPrompt, OneLineHasTheKeyThatIsAskedFor) {
  for (const std::string task : {"niah_single_1", "niah_multikey_2", "niah_multikey_3"}) {
    for (int64_t repeat = 0; repeat < 20; ++repeat) {
      const RulerPrompt needles = MakeRulerPrompt(task, 50, 1, 4096, repeat);
      EXPECT_EQ(CountOf(needles.text, "\n"), 1 + 51);
      EXPECT_EQ(CountOf(needles.text, needles.values[0]), 1);
      const std::size_t of = needles.question.find(" of ") + 4;
      const std::string key = needles.question.substr(of, needles.question.find(" in the text") - of);
      EXPECT_EQ(CountOf(needles.text, " of " + key + " is " + needles.values[0] + "."), 1) << needles.text;
      EXPECT_EQ(CountOf(needles.text, " of " + key + " is "), 1);
      EXPECT_EQ(CountOf(needles.text, " is "), (task == "niah_single_1" ? 3 * 50 : 50) + 2);
      const std::size_t size = task == "niah_multikey_3" ? 36 : 7;
      EXPECT_EQ(needles.values[0].size(), size);
    }
  }
}

TEST(RulerPrompt, KeyValueAndDepthDoNotDependOnTheNumberOfLines) {
  const RulerPrompt few = MakeRulerPrompt("niah_multikey_2", 10, 1, 4096, 3);
  const RulerPrompt many = MakeRulerPrompt("niah_multikey_2", 1000, 1, 4096, 3);
  EXPECT_EQ(few.values, many.values);
  EXPECT_EQ(few.question, many.question);
  EXPECT_NEAR(static_cast<double>(few.places[0]) / 11, static_cast<double>(many.places[0]) / 1001, 0.1);
  EXPECT_NE(few.values, MakeRulerPrompt("niah_multikey_2", 10, 2, 4096, 3).values);
  EXPECT_NE(few.values, MakeRulerPrompt("niah_multikey_2", 10, 1, 8192, 3).values);
  EXPECT_NE(few.values, MakeRulerPrompt("niah_multikey_2", 10, 1, 4096, 4).values);
}

TEST(RulerPrompt, PlacesAreSpreadOverTheText) {
  std::set<int64_t> tenths;
  for (int64_t repeat = 0; repeat < 100; ++repeat) {
    const int64_t place = MakeRulerPrompt("niah_single_1", 99, 0, 4096, repeat).places[0];
    ASSERT_GE(place, 0);
    ASSERT_LE(place, 99);
    tenths.insert(place / 10);
  }
  EXPECT_EQ(tenths.size(), 10u);
}

TEST(RulerPrompt, AChainOfNamesLeadsToTheNumber) {
  for (int64_t repeat = 0; repeat < 20; ++repeat) {
    const RulerPrompt tracking = MakeRulerPrompt("vt", 40, 1, 4096, repeat);
    ASSERT_EQ(tracking.values.size(), 5u);
    EXPECT_EQ(std::set(tracking.values.begin(), tracking.values.end()).size(), 5u);
    EXPECT_TRUE(std::ranges::is_sorted(tracking.places));
    // Behind the example that is done.
    const std::string text = tracking.text.substr(tracking.text.rfind("Remember them."));
    EXPECT_EQ(CountOf(text, "\n"), 1 + 40 + 5);
    const std::string number = tracking.question.substr(tracking.question.find(" for ") + 5, 5);
    std::string before = number;
    std::size_t at = 0;
    for (const std::string& name : tracking.values) {
      at = text.find("Let " + name + " = " + before + ".\n", at);
      ASSERT_NE(at, std::string::npos) << name << " in " << text;
      EXPECT_EQ(CountOf(tracking.text, "Let " + name + " = "), 1);
      before = name;
    }
    EXPECT_EQ(CountOf(tracking.text, "Let "), 10);
    EXPECT_NE(tracking.answer_begin.find("5 names that stand for " + number), std::string::npos);
  }
  EXPECT_EQ(MakeRulerPrompt("vt", 10, 1, 4096, 3).values, MakeRulerPrompt("vt", 1000, 1, 4096, 3).values);
  EXPECT_NE(MakeRulerPrompt("vt", 10, 1, 4096, 3).values, MakeRulerPrompt("vt", 10, 1, 4096, 4).values);
}

class RulerTest : public testing::Test {
 protected:
  Result<Question> Ask(Task& task, std::size_t i, PromptForm form = PromptForm::kChat) {
    return static_cast<RulerTask&>(task).Ask(*engine_, form, task.samples()[i], nullptr);
  }
  TestDirectory directory_;
  std::unique_ptr<Engine> engine_ = TinyEngine(directory_, "full");
};

TEST_F(RulerTest, PromptAndAnswerFillTheLength) {
  const auto task = MakeTask(RulerKind(), {{"lengths", "1500,4000"}, {"samples", "3"}});
  ASSERT_TRUE(task) << task.error().message;
  ASSERT_EQ((*task)->samples().size(), 2u * 2 * 3);
  for (std::size_t i = 0; i < 12; ++i) {
    for (const PromptForm form : {PromptForm::kPlain, PromptForm::kChat}) {
      const auto question = Ask(**task, i, form);
      ASSERT_TRUE(question) << question.error().message;
      EXPECT_EQ(question->max_new, 128);
      const auto prompt = EncodePromptText(*engine_, form, question->text);
      ASSERT_TRUE(prompt);
      const int64_t n = static_cast<int64_t>(prompt->tokens.size()) + 128;
      EXPECT_LE(n, (*task)->samples()[i].tokens);
      EXPECT_GT(n, (*task)->samples()[i].tokens - 150);  // a line of bytes
    }
  }
}

TEST_F(RulerTest, AChainFillsTheLengthAndIsJudgedByItsNames) {
  const auto task = MakeTask(RulerKind(), {{"tasks", "vt"}, {"lengths", "3000"}, {"samples", "1"}});
  ASSERT_TRUE(task) << task.error().message;
  const auto question = Ask(**task, 0);
  ASSERT_TRUE(question) << question.error().message;
  EXPECT_EQ(question->max_new, 30);
  const auto prompt = EncodePromptText(*engine_, PromptForm::kChat, question->text);
  ASSERT_TRUE(prompt);
  const int64_t n = static_cast<int64_t>(prompt->tokens.size()) + 30;
  EXPECT_LE(n, 3000);
  EXPECT_GT(n, 3000 - 150);
  const auto names = MakeRulerPrompt("vt", 1, 0, 3000, 0).values;
  const RulerTask& ruler = static_cast<RulerTask&>(**task);
  EXPECT_DOUBLE_EQ(ruler.Judge(*question, names[0] + ", " + names[3]).value, 0.4);
}

TEST_F(RulerTest, ReadsTheOfficialFiles) {
  // Fixtures in the official form, not official data.
  for (const std::string name : {"vt", "qa_1"}) {
    const std::string folder = directory_.File("ruler/4096/data/" + name);
    std::filesystem::create_directories(folder);
    AppendText(
        folder + "/validation.jsonl",
        "{\"index\": 0, \"input\": \"Some text. Which?\", \"outputs\": [\"AB\", \"CD\"], \"length\": 4000, "
        "\"answer_prefix\": \" They are\"}\n"
        "{\"index\": 1, \"input\": \"Older form\", \"outputs\": [\"EF\"], \"length\": 4000}\n");
  }
  const auto task = MakeTask(
      RulerKind(),
      {{"data", directory_.File("ruler")}, {"tasks", "vt,qa_1"}, {"lengths", "4k"}, {"samples", "0"}});
  ASSERT_TRUE(task) << task.error().message;
  ASSERT_EQ((*task)->samples().size(), 4u);
  const auto vt = Ask(**task, 0), old = Ask(**task, 1), qa = Ask(**task, 2);
  ASSERT_TRUE(vt && old && qa);
  EXPECT_EQ(vt->text.rest, "Some text. Which?");
  EXPECT_EQ(vt->text.answer_begin, " They are");
  EXPECT_EQ(old->text.answer_begin, "");
  EXPECT_EQ(vt->max_new, 30);
  EXPECT_EQ(qa->max_new, 32);
  const RulerTask& ruler = static_cast<RulerTask&>(**task);
  EXPECT_DOUBLE_EQ(ruler.Judge(*vt, "only ab").value, 0.5);
  EXPECT_DOUBLE_EQ(ruler.Judge(*vt, "AB and CD").value, 1);
  EXPECT_DOUBLE_EQ(ruler.Judge(*qa, "only cd").value, 1);
  EXPECT_DOUBLE_EQ(ruler.Judge(*qa, "neither").value, 0);
  // The ids hold the file: one task's file does not bear on the samples of others.
  const auto alone =
      MakeTask(RulerKind(), {{"data", directory_.File("ruler")}, {"tasks", "qa_1"}, {"lengths", "4k"}});
  ASSERT_TRUE(alone);
  EXPECT_EQ((*alone)->samples()[0].id, (*task)->samples()[2].id);
  EXPECT_EQ((*alone)->Setup(), (*task)->Setup());
}

TEST_F(RulerTest, ALineNestedTooDeeplyFailsInASentence) {
  const std::string folder = directory_.File("nested/4096/data/vt");
  std::filesystem::create_directories(folder);
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  AppendText(folder + "/validation.jsonl", nested + "\n{\"input\": \"text\", \"outputs\": " + nested + "}\n");
  const auto task =
      MakeTask(RulerKind(),
               {{"data", directory_.File("nested")}, {"tasks", "vt"}, {"lengths", "4k"}, {"samples", "0"}});
  ASSERT_TRUE(task) << task.error().message;
  for (const std::size_t i : {0U, 1U}) {
    const auto question = Ask(**task, i);
    ASSERT_FALSE(question);
    EXPECT_NE(question.error().message.find("is no sample of RULER"), std::string::npos);
    EXPECT_NE(question.error().message.find("nested too deeply"), std::string::npos);
  }
}

TEST_F(RulerTest, RefusesByName) {
  const auto refused = [](TaskOptions::Values values, const std::string& words) {
    const auto task = MakeTask(RulerKind(), std::move(values));
    ASSERT_FALSE(task) << words;
    EXPECT_NE(task.error().message.find(words), std::string::npos) << task.error().message;
  };
  refused({{"tasks", "niah_single_9"}}, "niah_single_9");
  refused({{"tasks", "cwe"}}, "cwe is not made here");
  refused({{"samples", "0"}}, "--samples is 0");
  refused({{"data", "/no/such"}, {"lengths", "4k"}},
          "/no/such/4096/data/niah_single_1/validation.jsonl is not there");
  AppendText((std::filesystem::create_directories(directory_.File("bad/4096/data/vt")),
              directory_.File("bad/4096/data/vt/validation.jsonl")),
             "{\"input\": 1}\n");
  const auto bad =
      MakeTask(RulerKind(), {{"data", directory_.File("bad")}, {"tasks", "vt"}, {"lengths", "4k"}});
  ASSERT_TRUE(bad);
  const auto question = Ask(**bad, 0);
  ASSERT_FALSE(question);
  EXPECT_NE(question.error().message.find("line 1"), std::string::npos) << question.error().message;
  EXPECT_TRUE((*bad)->Check(*engine_, PromptForm::kChat, nullptr)) << "a damaged line fails alone";
  std::filesystem::create_directories(directory_.File("bad/4096/data/cwe"));
  AppendText(directory_.File("bad/4096/data/cwe/validation.jsonl"), "\n");
  refused({{"data", directory_.File("bad")}, {"tasks", "cwe"}, {"lengths", "4k"}},
          "validation.jsonl is empty");
}

}  // namespace
}  // namespace longheads
