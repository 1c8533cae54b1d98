#include "eval/needle.h"

#include <gtest/gtest.h>

#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

std::string Sentences(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "Sentence number " + std::to_string(i) + " is here. ";
  return text;
}

NeedleOptions Options() {
  return {.lengths = {1000, 1500},
          .depths = {0, 50, 100},
          .needle = "The NEEDLE lies in Kiel.",
          .question = "Where does it lie?",
          .expected = {"Kiel"},
          .max_new = 4};
}

class NeedleTest : public testing::Test {
 protected:
  std::string AskedText(const Sample& sample) {
    const auto question = task_.Ask(*engine_, PromptForm::kChat, sample, nullptr);
    EXPECT_TRUE(question) << question.error().message;
    return question->text.shared + question->text.rest;
  }

  TestDirectory directory_;
  std::unique_ptr<Engine> engine_ = TinyEngine(directory_, "full");
  NeedleTask task_{Haystack::FromText("text", Sentences(500)), Options()};
};

TEST_F(NeedleTest, NeedleStandsBehindASentenceAtItsDepth) {
  ASSERT_EQ(task_.samples().size(), 6u);
  for (const Sample& sample : task_.samples()) {
    const std::string text = AskedText(sample);
    const std::size_t at = text.find("The NEEDLE lies in Kiel.");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(text.find("NEEDLE", at + 10), std::string::npos);
    const double depth = sample.cell.at("depth").get<double>();
    // Where the haystack ends and the question begins.
    const double end = static_cast<double>(text.find("\n\nAnswer from"));
    // A byte-level vocabulary: a token is a byte, and a sentence is at most 29 of them.
    if (depth == 100) {
      EXPECT_EQ(at + 24, static_cast<std::size_t>(end));
    } else {
      EXPECT_LE(static_cast<double>(at), (end - 24) * depth / 100 + 2);
      EXPECT_GE(static_cast<double>(at), (end - 24) * depth / 100 - 30);
      if (at > 1) {
        EXPECT_EQ(text.substr(at - 2, 2), ". ");
      }
    }
  }
}

TEST_F(NeedleTest, TextWithTheNeedleLeavesTwoHundredTokensOfItsLength) {
  for (const Sample& sample : task_.samples()) {
    const std::string text = AskedText(sample);
    const auto tokens = engine_->tokenizer().Encode(text.substr(0, text.find("\n\nAnswer from")), {});
    ASSERT_TRUE(tokens);
    EXPECT_NEAR(static_cast<double>(tokens->size()), sample.cell.at("length").get<double>() - 200, 2);
  }
}

TEST_F(NeedleTest, AnswerIsRightWithAllPhrasesWhateverTheirCase) {
  NeedleOptions options = Options();
  options.expected = {"blue stone", "Kiel"};
  const NeedleTask task(Haystack::FromText("text", Sentences(500)), options);
  EXPECT_EQ(task.Judge({}, "Under the Blue Stone, in KIEL.").value, 1);
  EXPECT_EQ(task.Judge({}, "Under the blue stone.").value, 0);
  EXPECT_EQ(task.Judge({}, "").value, 0);
}

// numpy.round(numpy.linspace(0, 100, 7)) and the published program's logistic at 5 depths.
TEST(NeedleDepths, AreThePublishedProgramsDepths) {
  EXPECT_EQ(NeedleDepths(7, false), (std::vector<double>{0, 17, 33, 50, 67, 83, 100}));
  EXPECT_EQ(NeedleDepths(5, true), (std::vector<double>{0, 7.586, 50, 92.414, 100}));
  EXPECT_EQ(NeedleDepths(11, true),
            (std::vector<double>{0, 1.799, 4.743, 11.92, 26.894, 50, 73.106, 88.08, 95.257, 98.201, 100}));
  // linspace gives 62.50000000000001 where the quotient is 62.5, which would be rounded to 62.
  EXPECT_EQ(NeedleDepths(25, false)[15], 63);
  EXPECT_EQ(NeedleDepths(1, false), (std::vector<double>{50}));
}

TEST_F(NeedleTest, WritesTheOfficialResultFiles) {
  std::vector<TaskRecord> records;
  const std::string model = TinyModelFile(directory_);
  const TaskHooks hooks{.load = [&](const std::string& attention) { return LoadTiny(model, attention); },
                        .on_method = {},
                        .on_prefill = {},
                        .on_sample = {}};
  const std::string out = directory_.File("out");
  ASSERT_TRUE(RunTask({.attention = {"full"}, .out_dir = out}, task_, hooks, records));
  EXPECT_EQ(records.size(), 6u);
  const Json json = Json::parse(ReadAll(out + "/needle-results/tiny_full_len_1500_depth_5000_results.json"));
  EXPECT_EQ(json.at("model"), "tiny_full");
  EXPECT_EQ(json.at("context_length"), 1500);
  EXPECT_EQ(json.at("depth_percent"), 50.0);
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("needle"), "The NEEDLE lies in Kiel.");
  EXPECT_EQ(json.at("score"), records[4].measured.score == 1 ? 10 : 1);
  EXPECT_TRUE(json.contains("model_response") && json.contains("test_timestamp_utc"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out + "/needle-results"), {}), 6);
}

// int(depth * 100) of Python: 1.799 percent are 179 hundredths, and 73.106 are 7310.
TEST_F(NeedleTest, FilesAreNamedByHundredthsThatAreCutOff) {
  NeedleOptions options = Options();
  options.lengths = {400};
  options.depths = NeedleDepths(11, true);
  NeedleTask task(Haystack::FromText("text", Sentences(500)), options);
  std::vector<TaskRecord> records;
  const std::string model = TinyModelFile(directory_);
  const TaskHooks hooks{.load = [&](const std::string& attention) { return LoadTiny(model, attention); }};
  const std::string out = directory_.File("out");
  ASSERT_TRUE(RunTask({.attention = {"full"}, .out_dir = out}, task, hooks, records));
  const std::vector<std::string> hundredths = {"0",    "179",  "474",  "1192", "2689", "5000",
                                               "7310", "8808", "9525", "9820", "10000"};
  for (std::size_t d = 0; d < hundredths.size(); ++d) {
    const std::string name = "tiny_full_len_400_depth_" + hundredths[d];
    const Json json = Json::parse(ReadAll(out + "/needle-results/" + name + "_results.json"));
    EXPECT_EQ(json.at("depth_percent"), options.depths[d]);
    EXPECT_EQ(json.at("file_name"), name);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out + "/needle-results"), {}), 11);
}

TEST(NeedleKind, RefusesByName) {
  const auto refused = [](TaskOptions::Values values, const std::string& words) {
    const auto task = MakeTask(NeedleKind(), std::move(values));
    ASSERT_FALSE(task);
    EXPECT_NE(task.error().message.find(words), std::string::npos) << task.error().message;
  };
  refused({{"lengths", "100"}}, "--lengths has 100");
  refused({{"depths", "0"}}, "--depths");
  refused({{"spacing", "cubic"}}, "--spacing");
  refused({{"needle", "A sentence."}}, "--expect belong together");
  refused({{"haystack", "/no/such"}}, "/no/such");
}

}  // namespace
}  // namespace longheads
