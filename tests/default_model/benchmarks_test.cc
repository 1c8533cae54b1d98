// The benchmarks that come as files, end to end on real weights, from fixtures in the official formats
// (tests/fixtures). The texts are tiny: this shows that every data set runs and is judged, not how well a
// model does. Where a score is asked for, the fixture is easy enough that the default model gets it in
// float32, bfloat16 and int8 alike.
#include <gtest/gtest.h>
#include <zip.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "eval/task.h"
#include "tests/default_model/task_on_default_model.h"
#include "tests/support/test_directory.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

const std::string kFixtures = LONGHEADS_SOURCE_DIR "/tests/fixtures/";

// A run of questions, all of which got an answer and a share.
std::vector<TaskRecord> AskAll(const DefaultModelTask& run) {
  std::vector<TaskRecord> records = RunOnDefaultModel(run);
  for (const TaskRecord& record : records) {
    EXPECT_GT(record.measured.generated, 0) << record.sample.id;
    EXPECT_GE(record.measured.score, 0);
    EXPECT_LE(record.measured.score, 1);
  }
  return records;
}

// The score of the first sample whose cell has `name` in `column`.
double ScoreOf(const std::vector<TaskRecord>& records, const std::string& column, const std::string& name) {
  for (const TaskRecord& record : records) {
    if (record.sample.cell.at(column) == name) return record.measured.score;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

TEST(Benchmarks, LongBenchRuns) {
  const auto records =
      AskAll({.kind = "longbench", .options = {{"data", kFixtures + "longbench"}, {"samples", "1"}}});
  EXPECT_EQ(records.size(), 16U);
  EXPECT_EQ(ScoreOf(records, "dataset", "triviaqa"), 1);
}

TEST(Benchmarks, LongBenchERuns) {
  const auto records = AskAll(
      {.kind = "longbench", .options = {{"data", kFixtures + "longbench"}, {"set", "e"}, {"samples", "1"}}});
  EXPECT_EQ(records.size(), 13U);
  EXPECT_EQ(ScoreOf(records, "dataset", "triviaqa"), 1);
}

// As published: data/*.jsonl in data.zip, the prompts and lengths in config/ beside it.
void WriteLongBenchAsPublished(const fs::path& folder) {
  const fs::path fixture = kFixtures + "longbench";
  zip_t* const archive = zip_open((folder / "data.zip").c_str(), ZIP_CREATE, nullptr);
  ASSERT_NE(archive, nullptr);
  for (const auto& file : fs::directory_iterator(fixture / "data")) {
    const std::string name = "data/" + file.path().filename().string();
    zip_source_t* const source = zip_source_file(archive, file.path().c_str(), 0, -1);
    ASSERT_GE(zip_file_add(archive, name.c_str(), source, 0), 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
  fs::create_directory(folder / "config");
  for (const char* const name : {"dataset2prompt.json", "dataset2maxlen.json"})
    fs::copy_file(fixture / name, folder / "config" / name);
}

TEST(Benchmarks, LongBenchsArchiveGivesTheAnswersOfItsFolder) {
  const TestDirectory folder;
  ASSERT_NO_FATAL_FAILURE(WriteLongBenchAsPublished(folder.path()));
  const auto ask = [](const std::string& data) {
    std::map<std::string, std::string> answers;
    for (const TaskRecord& record :
         AskAll({.kind = "longbench",
         .options = {{"data", data}, {"set", "longheads"}, {"tasks", "musique,triviaqa,trec"}}})) {
      answers[record.sample.id] = record.measured.answer;
    }
    return answers;
  };
  const auto from_archive = ask((folder.path() / "data.zip").string());
  EXPECT_EQ(from_archive.size(), 3U);
  EXPECT_EQ(from_archive, ask(kFixtures + "longbench"));
}

TEST(Benchmarks, InfiniteBenchRunsAndAPassKeyInTheWindowIsFound) {
  const auto records = AskAll({.kind = "infinitebench",
                               .options = {{"data", kFixtures + "infinitebench"},
                                           {"samples", "1"},
                                           {"tasks", "all"},
                                           {"limits", kFixtures + "infinitebench/dataset2maxlen.json"}},
                               .form = "plain"});
  EXPECT_EQ(records.size(), 12U);
  EXPECT_EQ(ScoreOf(records, "dataset", "passkey"), 1);
}

TEST(Benchmarks, RulersFilesAreAskedInBothOfTheirForms) {
  const auto records = AskAll({.kind = "ruler",
                               .options = {{"data", kFixtures + "ruler"},
                                           {"lengths", "512"},
                                           {"tasks", "niah_single_1,vt,cwe,qa_1"},
                                           {"samples", "0"}},
                               .form = "plain"});
  ASSERT_EQ(records.size(), 5U);
  EXPECT_EQ(ScoreOf(records, "task", "niah_single_1"), 1);
  EXPECT_EQ(ScoreOf(records, "task", "qa_1"), 1);
  // Shares of five variables and of ten words: one of them may be missed.
  EXPECT_GE(ScoreOf(records, "task", "vt"), 0.8);
  EXPECT_GE(ScoreOf(records, "task", "cwe"), 0.9);
  // qa_1 has one question twice: with the beginning of its answer apart, and as files were before.
  const TaskRecord &apart = records[3], &whole = records[4];
  EXPECT_NE(apart.sample.id, whole.sample.id);
  EXPECT_EQ(apart.measured.tokens, whole.measured.tokens);
  EXPECT_EQ(apart.measured.answer, whole.measured.answer);
}

TEST(Benchmarks, CountingStarsFileIsAskedAndItsNumbersAreFound) {
  const auto records = AskAll(
      {.kind = "counting-stars",
       .options = {{"data", kFixtures + "counting-stars/Counting_Stars_EN_acquisition_fixture.jsonl"}}});
  ASSERT_EQ(records.size(), 2U);
  for (const TaskRecord& record : records) {
    EXPECT_EQ(record.sample.cell.at("stars"), 4);
    EXPECT_GE(record.measured.score, 0.75) << record.measured.answer;  // one of the four may be missed
  }
  EXPECT_EQ(records[0].sample.cell.at("length"), 25);  // 20 words, of which 0.8 are a token
  EXPECT_EQ(records[1].sample.cell.at("length"), 40);
}

std::vector<TaskRecord> AskNeedleBench(const std::string& depths,
                                       const std::string& haystack = "texts/harbour.txt") {
  return AskAll({.kind = "needlebench",
                 .options = {{"needles", kFixtures + "needlebench/needles.jsonl"},
                             {"haystack", kFixtures + haystack},
                             {"depths", depths},
                             {"lengths", "800"},
                             {"buffer", "300"},
                             {"repeats", "1"}}});
}

TEST(Benchmarks, NeedleBenchsNeedlesAreHiddenAndFound) {
  const auto one = AskNeedleBench("50");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].measured.score, 1) << one[0].measured.answer;

  const auto both = AskNeedleBench("20,80");
  ASSERT_EQ(both.size(), 1U);
  // Of the file's four needles, those in English that say something new.
  const auto keywords = both[0].measured.references.get<std::vector<std::string>>();
  EXPECT_EQ(std::set(keywords.begin(), keywords.end()), (std::set<std::string>{"Rex", "Bruno"}));
  EXPECT_GE(both[0].measured.score, 0.5) << both[0].measured.answer;
  const Json& found = both[0].measured.values;
  EXPECT_EQ(both[0].measured.score,
            (found.at("depth_20").get<double>() + found.at("depth_80").get<double>()) / 2);
}

// The essays of the fixture are the harbour in three lines.
TEST(Benchmarks, NeedleBenchsEssaysAreTheTextOfTheirLines) {
  const auto essays = AskNeedleBench("50", "needlebench/PaulGrahamEssays.jsonl");
  const auto text = AskNeedleBench("50");
  ASSERT_EQ(essays.size(), 1U);
  ASSERT_EQ(text.size(), 1U);
  EXPECT_EQ(essays[0].setup.options.at("haystack"), "PaulGrahamEssays.jsonl");
  EXPECT_EQ(essays[0].setup.options.at("haystack_hash"), text[0].setup.options.at("haystack_hash"));
  EXPECT_EQ(essays[0].measured.tokens, text[0].measured.tokens);
  EXPECT_EQ(essays[0].measured.answer, text[0].measured.answer);
  EXPECT_EQ(essays[0].measured.score, 1) << essays[0].measured.answer;
}

TEST(Benchmarks, NeedleIsFoundAndItsOfficialResultsAreWritten) {
  const TestDirectory folder;
  const auto records =
      AskAll({.kind = "needle",
              .options = {{"haystack", kFixtures + "texts/harbour.txt"}, {"lengths", "500"}, {"depths", "3"}},
              .out_dir = folder.path()});
  ASSERT_EQ(records.size(), 3U);
  std::map<double, Json> results;  // by depth
  for (const auto& file : fs::directory_iterator(folder.path() / "needle-results")) {
    std::ifstream in(file.path());
    const Json json = Json::parse(in);
    EXPECT_EQ(file.path().filename().string(), json.at("file_name").get<std::string>() + "_results.json");
    results[json.at("depth_percent").get<double>()] = json;
  }
  ASSERT_EQ(results.size(), 3U);
  for (const TaskRecord& record : records) {
    EXPECT_EQ(record.measured.score, 1) << record.measured.answer;
    const Json& json = results.at(record.sample.cell.at("depth").get<double>());
    std::set<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.insert(key);
    EXPECT_EQ(keys, (std::set<std::string>{"model", "context_length", "depth_percent", "version", "needle",
                                           "model_response", "score", "test_duration_seconds",
                                           "test_timestamp_utc", "file_name"}));
    EXPECT_EQ(json.at("context_length"), 500);
    EXPECT_EQ(json.at("model_response"), record.measured.answer);
    EXPECT_EQ(json.at("score"), 10);
  }
}

}  // namespace
}  // namespace longheads
