#include "eval/needle.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

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
  std::vector<TaskRecord> Run(NeedleTask& task, const TaskRunOptions& options, const std::string& model) {
    std::vector<TaskRecord> records;
    const TaskHooks hooks{.load = [&](const std::string& attention) { return LoadTiny(model, attention); }};
    const Status status = RunTask(options, task, hooks, records);
    EXPECT_TRUE(status) << status.error().message;
    return records;
  }

  // Of a setup, those in its folder alone; every one must be of that setup's needle.
  static std::map<std::string, Json> OfficialFiles(const std::string& out, const TaskRecord& of,
                                                   const std::string& model_and_method) {
    std::map<std::string, Json> files;
    const std::string folder = out + "/needle-results/" + model_and_method + "-" + of.fingerprint;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      files[file.path().filename().string()] = Json::parse(ReadAll(file.path().string()));
    }
    return files;
  }

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
  const std::string out = directory_.File("out");
  const std::vector<TaskRecord> records =
      Run(task_, {.attention = {"full"}, .out_dir = out}, TinyModelFile(directory_));
  ASSERT_EQ(records.size(), 6u);
  std::map<std::string, Json> files = OfficialFiles(out, records[0], "tiny_full");
  EXPECT_EQ(files.size(), 6u);
  const Json json = files["tiny_full_len_1500_depth_5000_results.json"];
  EXPECT_EQ(json.at("model"), "tiny_full");
  EXPECT_EQ(json.at("context_length"), 1500);
  EXPECT_EQ(json.at("depth_percent"), 50.0);
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("needle"), "The NEEDLE lies in Kiel.");
  EXPECT_EQ(json.at("score"), records[4].measured.score == 1 ? 10 : 1);
  EXPECT_TRUE(json.contains("model_response") && json.contains("test_timestamp_utc"));
}

// int(depth * 100) of Python: 1.799 percent are 179 hundredths, and 73.106 are 7310.
TEST_F(NeedleTest, FilesAreNamedByHundredthsThatAreCutOff) {
  NeedleOptions options = Options();
  options.lengths = {400};
  options.depths = NeedleDepths(11, true);
  NeedleTask task(Haystack::FromText("text", Sentences(500)), options);
  const std::string out = directory_.File("out");
  const std::vector<TaskRecord> records =
      Run(task, {.attention = {"full"}, .out_dir = out}, TinyModelFile(directory_));
  ASSERT_EQ(records.size(), 11u);
  std::map<std::string, Json> files = OfficialFiles(out, records[0], "tiny_full");
  EXPECT_EQ(files.size(), 11u);
  const std::vector<std::string> hundredths = {"0",    "179",  "474",  "1192", "2689", "5000",
                                               "7310", "8808", "9525", "9820", "10000"};
  for (std::size_t d = 0; d < hundredths.size(); ++d) {
    const std::string name = "tiny_full_len_400_depth_" + hundredths[d];
    const Json json = files[name + "_results.json"];
    ASSERT_TRUE(json.is_object()) << name;
    EXPECT_EQ(json.at("depth_percent"), options.depths[d]);
    EXPECT_EQ(json.at("file_name"), name);
  }
}

// Two needles, two methods, two models and two parts of the samples in one folder, one run after the other.
TEST_F(NeedleTest, NoExperimentTakesAnothersOfficialFiles) {
  NeedleOptions options = Options();
  options.lengths = {400};
  NeedleTask first(Haystack::FromText("text", Sentences(500)), options);
  options.needle = "The SPOON lies in Bonn.";
  options.expected = {"Bonn"};
  NeedleTask second(Haystack::FromText("text", Sentences(500)), options);
  const std::string model = TinyModelFile(directory_), out = directory_.File("out");
  const std::string other_model = directory_.File("tiny.other");  // the same stem
  ASSERT_TRUE(TinyLlamaBuilder({.seed = 8}).Write(other_model));

  const auto run = [&](NeedleTask& task, const std::string& method, const std::string& part,
                       const std::string& file) {
    return Run(task, {.attention = {method}, .form = "plain", .out_dir = out, .shard = *ParseShard(part)},
               file)
        .front();
  };
  const std::string other_method = "streaming-llm,start=4,recent=64";
  const TaskRecord full = run(first, "full", "1/2", model);
  const TaskRecord streaming = run(first, other_method, "1/1", model);
  const TaskRecord spoon = run(second, "full", "1/1", model);
  const TaskRecord of_other_model = run(first, "full", "1/1", other_model);
  run(first, "full", "2/2", model);

  const std::string streaming_name = "tiny_" + other_method;
  for (const auto& [record, name, needle] :
       {std::tuple(full, std::string("tiny_full"), "NEEDLE"), std::tuple(streaming, streaming_name, "NEEDLE"),
        std::tuple(spoon, std::string("tiny_full"), "SPOON"),
        std::tuple(of_other_model, std::string("tiny_full"), "NEEDLE")}) {
    const std::map<std::string, Json> files = OfficialFiles(out, record, name);
    EXPECT_EQ(files.size(), 3u) << name << " " << needle;
    for (const auto& [file, json] : files) {
      EXPECT_NE(json.at("needle").get<std::string>().find(needle), std::string::npos) << file;
      EXPECT_EQ(json.at("model"), name);
    }
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out + "/needle-results"), {}), 4);
}

// A name of a file has at most 255 bytes; where it is cut, no character is.
TEST_F(NeedleTest, OfficialFilesOfLongNamesHaveTheirBeginnings) {
  std::string stem = "m";
  for (int i = 0; i < 120; ++i) stem += "\u00e4";
  const std::string model = directory_.File(stem + ".gguf"), out = directory_.File("out");
  ASSERT_TRUE(TinyLlamaBuilder({.seed = 8}).Write(model));
  const std::string method = "streaming-llm,start=" + std::string(200, '0') + "4,recent=64";
  const TaskRecord first =
      Run(task_, {.attention = {method}, .form = "plain", .out_dir = out}, model).front();
  const std::string cut = stem.substr(0, 79) + "_" + method.substr(0, 100);
  const std::map<std::string, Json> files = OfficialFiles(out, first, cut);
  ASSERT_EQ(files.size(), 6u);
  for (const auto& [file, json] : files) {
    EXPECT_TRUE(file.starts_with(cut + "_len_")) << file;
    EXPECT_EQ(json.at("model"), stem + "_" + method);
  }
}

// A run that finds all its samples in the journal writes what was removed.
TEST_F(NeedleTest, ExportsAreWrittenAgainFromTheJournal) {
  const std::string model = TinyModelFile(directory_), out = directory_.File("out");
  const TaskRunOptions options{.attention = {"full"}, .out_dir = out};
  const TaskRecord first = Run(task_, options, model).front();
  const std::map<std::string, Json> files = OfficialFiles(out, first, "tiny_full");
  std::filesystem::remove_all(out + "/needle-results");
  Run(task_, options, model);
  EXPECT_EQ(OfficialFiles(out, first, "tiny_full"), files);
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
