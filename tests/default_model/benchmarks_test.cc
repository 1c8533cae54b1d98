// The benchmarks that come as files, end to end on real weights, from fixtures in the official formats
// (tests/fixtures). The texts are tiny: this shows that every data set runs and is judged by its own score,
// not how well a model does. Where a score is asked for, the fixture is easy enough that the default model
// gets it in float32, bfloat16 and int8 alike.
#include <gtest/gtest.h>
#include <zip.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "base/json.h"
#include "eval/task.h"
#include "scoring/infinitebench_scores.h"
#include "scoring/longbench_scores.h"
#include "scoring/retrieval_scores.h"
#include "scoring/rouge.h"
#include "scoring/token_f1.h"
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

// What an answer to a line of a data set's file is worth.
using Scorer = std::function<double(const std::string& answer, const Json& line)>;

double BestOf(const Json& references, const std::function<double(const std::string&)>& score) {
  double best = 0;
  for (const Json& reference : references) best = std::max(best, score(reference.get<std::string>()));
  return best;
}

// By the scoring function of each data set, called here as the published harness's table has it.
std::map<std::string, Scorer> LongBenchScorers() {
  const auto best = [](auto score) -> Scorer {
    return [score](const std::string& answer, const Json& line) {
      return BestOf(line.at("answers"), [&](const std::string& right) { return score(answer, right); });
    };
  };
  const auto first_line = [](const Scorer& score) -> Scorer {
    return [score](const std::string& answer, const Json& line) {
      return score(std::string(FirstLine(answer)), line);
    };
  };
  const Scorer qa = best(QaF1), rouge = best(RougeL);
  const Scorer code = best([](const std::string& answer, const std::string& right) {
    return CodeSimilarityScore(answer, right, LongBenchScoring::kOfficial);
  });
  const Scorer classes = [](const std::string& answer, const Json& line) {
    const auto names = line.at("all_classes").get<std::vector<std::string>>();
    return BestOf(line.at("answers"), [&](const std::string& right) {
      return ClassificationScore(answer, right, names, LongBenchScoring::kOfficial);
    });
  };
  return {{"narrativeqa", qa},
          {"qasper", qa},
          {"multifieldqa_en", qa},
          {"hotpotqa", qa},
          {"2wikimqa", qa},
          {"musique", qa},
          {"gov_report", rouge},
          {"qmsum", rouge},
          {"multi_news", rouge},
          {"trec", first_line(classes)},
          {"triviaqa", first_line(qa)},
          {"samsum", first_line(rouge)},
          {"passage_count", best(CountScore)},
          {"passage_retrieval_en", best(PassageRetrievalScore)},
          {"lcc", code},
          {"repobench-p", code}};
}

std::map<std::string, Scorer> InfiniteBenchScorers() {
  const auto best = [](auto score) -> Scorer {
    return [score](const std::string& answer, const Json& line) {
      return BestOf(line.at("answer"), [&](const std::string& right) { return score(answer, right); });
    };
  };
  const auto option = [](auto score) -> Scorer {
    return [score](const std::string& answer, const Json& line) {
      const std::string right = line.at("answer")[0];
      const auto options = line.at("options").get<std::vector<std::string>>();
      const auto place = std::ranges::find(options, right) - options.begin();
      return static_cast<double>(
          score(answer, static_cast<char>('A' + place), right, InfiniteBenchScoring::kOfficial));
    };
  };
  const auto number = [](auto score) -> Scorer {
    return [score](const std::string& answer, const Json& line) {
      return score(answer, line.at("answer")[0].get<int64_t>()) ? 1.0 : 0.0;
    };
  };
  const Scorer key =
      best([](const std::string& answer, const std::string& right) { return FirstInteger(answer) == right; });
  return {{"passkey", key},
          {"number_string", key},
          {"kv_retrieval", best(NamesValue)},
          {"longbook_choice_eng", option(ChoosesOption)},
          {"code_debug", option(CodeDebugScore)},
          {"math_find", number(FindsInteger)},
          {"code_run", number(ReturnsInteger)},
          {"math_calc",
           [](const std::string& answer, const Json& line) {
             return LeadingValuesScore(answer, line.at("answer").get<std::vector<int64_t>>());
           }},
          {"longbook_qa_eng", best(QaF1)},
          {"longbook_qa_chn", best(ChineseQaF1)},
          {"longbook_sum_eng", best(RougeLsum)},
          {"longdialogue_qa_eng", best(NamesCharacter)}};
}

// Every data set once, each with the score of its answer to the first line of its file, FOLDER/NAME`behind`.
// So many at least are above 0: a score that is 0 whatever the answer shows nothing.
void ExpectScores(const std::vector<TaskRecord>& records, const std::map<std::string, Scorer>& scorers,
                  const std::string& folder, const std::string& behind, int64_t least_above_0) {
  std::set<std::string> datasets;
  int64_t n_above_0 = 0;
  for (const TaskRecord& record : records) {
    const std::string name = record.sample.cell.at("dataset");
    datasets.insert(name);
    std::ifstream file(kFixtures + folder + "/" + name + behind);
    std::string line;
    ASSERT_TRUE(static_cast<bool>(std::getline(file, line))) << name;
    EXPECT_DOUBLE_EQ(record.measured.score, scorers.at(name)(record.measured.answer, ParseJson(line)))
        << name << ": " << record.measured.answer;
    if (record.measured.score > 0) ++n_above_0;
  }
  EXPECT_EQ(datasets.size(), records.size());
  EXPECT_GE(n_above_0, least_above_0);
}

TEST(Benchmarks, LongBenchRunsAndEveryAnswerHasItsDataSetsScore) {
  const auto records =
      AskAll({.kind = "longbench", .options = {{"data", kFixtures + "longbench"}, {"samples", "1"}}});
  EXPECT_EQ(records.size(), 16U);
  ExpectScores(records, LongBenchScorers(), "longbench/data", ".jsonl", 8);
  EXPECT_EQ(ScoreOf(records, "dataset", "triviaqa"), 1);
}

TEST(Benchmarks, LongBenchERunsAndEveryAnswerHasItsDataSetsScore) {
  const auto records = AskAll(
      {.kind = "longbench", .options = {{"data", kFixtures + "longbench"}, {"set", "e"}, {"samples", "1"}}});
  EXPECT_EQ(records.size(), 13U);
  ExpectScores(records, LongBenchScorers(), "longbench/data", "_e.jsonl", 6);
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

TEST(Benchmarks, InfiniteBenchRunsAndEveryAnswerHasItsTasksScore) {
  const auto records = AskAll({.kind = "infinitebench",
                               .options = {{"data", kFixtures + "infinitebench"},
                                           {"samples", "1"},
                                           {"tasks", "all"},
                                           {"limits", kFixtures + "infinitebench/dataset2maxlen.json"}},
                               .form = "plain"});
  EXPECT_EQ(records.size(), 12U);
  ExpectScores(records, InfiniteBenchScorers(), "infinitebench", ".jsonl", 4);
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

std::vector<fs::path> FilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
  return files;
}

TEST(Benchmarks, NeedleIsFoundAndItsOfficialResultsAreWritten) {
  const TestDirectory folder;
  const auto records =
      AskAll({.kind = "needle",
              .options = {{"haystack", kFixtures + "texts/harbour.txt"}, {"lengths", "500"}, {"depths", "3"}},
              .out_dir = folder.path()});
  ASSERT_EQ(records.size(), 3U);
  std::map<double, Json> results;  // by depth
  const std::vector<fs::path> setups = FilesIn(folder.path() / "needle-results");
  ASSERT_EQ(setups.size(), 1U);
  for (const fs::path& file : FilesIn(setups[0])) {
    std::ifstream in(file);
    const Json json = Json::parse(in);
    EXPECT_EQ(file.filename().string(), json.at("file_name").get<std::string>() + "_results.json");
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
