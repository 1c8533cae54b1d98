// LongBench and InfiniteBench as tasks, from fixtures in the official formats (tests/fixtures).
#include "eval/benchmark_task.h"

#include <gtest/gtest.h>
#include <zip.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "eval/infinitebench.h"
#include "eval/longbench.h"
#include "eval/task_registry.h"
#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

const std::string kLongBench = LONGHEADS_SOURCE_DIR "/tests/fixtures/longbench";
const std::string kInfiniteBench = LONGHEADS_SOURCE_DIR "/tests/fixtures/infinitebench";

Result<std::unique_ptr<Task>> Make(const std::string& kind, TaskOptions::Values options) {
  return MakeTask(*FindTaskKind(kind), std::move(options));
}

std::unique_ptr<Task> Made(const std::string& kind, TaskOptions::Values options) {
  Result<std::unique_ptr<Task>> task = Make(kind, std::move(options));
  EXPECT_TRUE(task) << task.error().message;
  return task ? std::move(*task) : nullptr;
}

std::string Problem(const std::string& kind, TaskOptions::Values options) {
  const auto task = Make(kind, std::move(options));
  return task ? "" : task.error().message;
}

const QuestionTask& AsQuestions(const Task& task) { return dynamic_cast<const QuestionTask&>(task); }

class BenchmarkTaskTest : public testing::Test {
 protected:
  Question Ask(const Task& task, const Sample& sample, PromptForm form = PromptForm::kPlain) {
    Result<Question> question = AsQuestions(task).Ask(*engine_, form, sample, nullptr);
    EXPECT_TRUE(question) << question.error().message;
    return question ? std::move(*question) : Question{};
  }
  std::string AskedText(const Task& task, const Sample& sample) {
    const Question question = Ask(task, sample);
    return question.text.shared + question.text.rest;
  }

  // Every sample's first reference must be worth the whole score; which data sets there were.
  std::set<std::string> JudgeReferences(const Task& task) {
    std::set<std::string> datasets;
    for (const Sample& sample : task.samples()) {
      const Question question = Ask(task, sample);
      const Json& references = question.references;
      datasets.insert(references.at("dataset").get<std::string>());
      std::string answer = references.contains("letter") ? references.at("letter").get<std::string>() + "."
                           : references.at("answers")[0].is_string()
                               ? references.at("answers")[0].get<std::string>()
                               : references.at("answers").dump();
      if (references.at("dataset") == "code_run") answer = references.at("answers")[0].dump();
      EXPECT_NEAR(AsQuestions(task).Judge(question, answer).value, 1, 1e-7) << sample.id;
      // InfLLM's scorer of code_debug guesses then.
      EXPECT_LE(AsQuestions(task).Judge(question, "zzz").value, 0.25) << sample.id;
    }
    return datasets;
  }

  TestDirectory directory_;
  std::unique_ptr<Engine> engine_ = TinyEngine(directory_, "full");
};

TEST_F(BenchmarkTaskTest, EveryLongBenchDataSetIsAskedAndJudged) {
  EXPECT_EQ(JudgeReferences(*Made("longbench", {{"data", kLongBench}})).size(), 16U);
  EXPECT_EQ(JudgeReferences(*Made("longbench", {{"data", kLongBench}, {"set", "e"}})).size(), 13U);
  EXPECT_EQ(JudgeReferences(*Made("longbench", {{"data", kLongBench}, {"set", "longheads"}})).size(), 16U);
}

TEST_F(BenchmarkTaskTest, EveryInfiniteBenchTaskIsAskedAndJudged) {
  EXPECT_EQ(JudgeReferences(*Made("infinitebench", {{"data", kInfiniteBench}})).size(), 6U);
  EXPECT_EQ(JudgeReferences(*Made("infinitebench", {{"data", kInfiniteBench}, {"tasks", "all"}})).size(),
            12U);
  EXPECT_EQ(JudgeReferences(*Made("infinitebench", {{"data", kInfiniteBench},
                                                    {"tasks", "all"},
                                                    {"prompts", kInfiniteBench + "/dataset2prompt.json"},
                                                    {"limits", kInfiniteBench + "/dataset2maxlen.json"},
                                                    {"scoring", "infllm"}}))
                .size(),
            12U);
}

TEST_F(BenchmarkTaskTest, QuestionsToOneTextStandTogetherAndShareIt) {
  const auto task = Made("longbench", {{"data", kLongBench}, {"tasks", "qasper"}});
  const std::vector<Sample>& samples = task->samples();
  ASSERT_EQ(samples.size(), 3U);  // lines 1 and 3 of the file have one text, line 2 another
  EXPECT_TRUE(samples[0].id.starts_with("qasper-0-"));
  EXPECT_TRUE(samples[1].id.starts_with("qasper-2-"));
  EXPECT_EQ(samples[0].document, samples[1].document);
  EXPECT_FALSE(samples[0].document.empty());
  EXPECT_FALSE(samples[2].document.empty());
  EXPECT_NE(samples[2].document, samples[0].document);
  EXPECT_EQ(Ask(*task, samples[0]).text.shared, Ask(*task, samples[1]).text.shared);
  EXPECT_TRUE(Ask(*task, samples[0]).text.shared.ends_with("replaced by a motor."));
  EXPECT_TRUE(Ask(*task, samples[1]).text.rest.ends_with("Question: What replaced the clock?\nAnswer:"));
  // A text that only one asks about is not kept for others.
  EXPECT_EQ(Ask(*task, samples[2]).text.shared, "");
  EXPECT_TRUE(Ask(*task, samples[2]).text.rest.ends_with("Answer:"));
}

TEST_F(BenchmarkTaskTest, ATextCountsOnceAlsoWhereItsQuestionsCameLater) {
  const std::string model = directory_.File("tiny.gguf"), out = directory_.File("out");
  const auto run = [&](const std::string& n_samples) {
    std::vector<TaskRecord> records;
    const TaskHooks hooks{.load = [&](const std::string& spec) { return LoadTiny(model, spec); }};
    const auto task = Made("longbench", {{"data", kLongBench}, {"tasks", "qasper"}, {"samples", n_samples}});
    const Status status = RunTask({.attention = {"full"}, .out_dir = out}, *task, hooks, records);
    EXPECT_TRUE(status) << status.error().message;
    return records;
  };
  ASSERT_EQ(run("1").size(), 1U);
  const std::vector<TaskRecord> records = run("3");  // the first of them is found
  ASSERT_EQ(records.size(), 3U);
  const auto lines = ReadAll(out + "/longbench.jsonl");
  EXPECT_EQ(std::ranges::count(lines, '\n'), 3);
  EXPECT_EQ(records[0].sample.document, records[1].sample.document);
  EXPECT_NE(records[0].sample.document, records[2].sample.document);
  const std::string csv = ReadAll(out + "/longbench.csv");
  EXPECT_NE(csv.find(",qasper,score,share,3,2,0,"), std::string::npos) << csv;  // samples, documents, failed
}

TEST_F(BenchmarkTaskTest, FewShotTasksAndCodeNeverGetATemplateAndSamsumEndsWithItsLine) {
  std::set<std::string> plain, stopped;
  const auto task = Made("longbench", {{"data", kLongBench}});
  for (const Sample& sample : task->samples()) {
    const Question question = Ask(*task, sample, PromptForm::kChat);
    if (question.plain) plain.insert(sample.cell.at("dataset"));
    if (question.stops == std::vector<std::string>{"\n"}) stopped.insert(sample.cell.at("dataset"));
  }
  EXPECT_EQ(plain, (std::set<std::string>{"trec", "triviaqa", "samsum", "lcc", "repobench-p"}));
  EXPECT_EQ(stopped, std::set<std::string>{"samsum"});
}

TEST_F(BenchmarkTaskTest, MiddleIsDroppedAndSaid) {
  const auto whole = Made("longbench", {{"data", kLongBench}, {"tasks", "gov_report"}});
  const auto cut =
      Made("longbench",
           {{"data", kLongBench}, {"tasks", "gov_report"}, {"truncation", "middle"}, {"max-length", "100"}});
  const std::string text = AskedText(*whole, whole->samples()[0]);
  const Tokenizer& tokenizer = engine_->tokenizer();
  const std::vector<TokenId> tokens = *tokenizer.Encode(text, {.add_special = true});
  ASSERT_GT(tokens.size(), 150U);
  const std::span<const TokenId> all(tokens);
  EXPECT_EQ(AskedText(*cut, cut->samples()[0]),
            tokenizer.Decode(all.first(50), false) + tokenizer.Decode(all.last(50), false));
  const Score score = AsQuestions(*cut).Judge(Ask(*cut, cut->samples()[0]), "");
  EXPECT_EQ(score.values.at("dropped_tokens"), tokens.size() - 100);
  EXPECT_EQ(AsQuestions(*whole).Judge(Ask(*whole, whole->samples()[0]), "").values.at("dropped_tokens"), 0);
  EXPECT_NE(whole->Setup(), cut->Setup());
}

TEST_F(BenchmarkTaskTest, SuffixCountsTheTemplate) {
  constexpr int64_t kLength = 220;
  const auto task = Made("infinitebench", {{"data", kInfiniteBench},
                                           {"tasks", "kv_retrieval"},
                                           {"truncation", "suffix"},
                                           {"max-length", std::to_string(kLength)}});
  const auto dropped = [&](PromptForm form) {
    return Ask(*task, task->samples()[0], form).references.at("dropped_tokens").get<int64_t>();
  };
  const int64_t n_answer = 50;
  const int64_t n_tokens = static_cast<int64_t>(
      engine_
          ->EncodePrompt(
              AskedText(*Made("infinitebench", {{"data", kInfiniteBench}, {"tasks", "kv_retrieval"}}),
                        task->samples()[0]),
              /*chat=*/false)
          ->size());
  EXPECT_EQ(dropped(PromptForm::kPlain), n_tokens - (kLength - n_answer));
  const int64_t around = static_cast<int64_t>(engine_->EncodePrompt("x", true)->size()) - 1;
  EXPECT_GT(around, 2);
  EXPECT_EQ(dropped(PromptForm::kChat), n_tokens - (kLength - n_answer - around));
}

TEST_F(BenchmarkTaskTest, LongBenchEIsLaidOutByLength) {
  const auto task = Made("longbench", {{"data", kLongBench}, {"set", "e"}, {"tasks", "hotpotqa"}});
  std::vector<std::string> cells;
  for (const Sample& sample : task->samples()) cells.push_back(sample.cell.dump());
  EXPECT_EQ(cells, (std::vector<std::string>{R"({"dataset":"hotpotqa","words":"0-4k"})",
                                             R"({"dataset":"hotpotqa","words":"4-8k"})",
                                             R"({"dataset":"hotpotqa","words":"8k+"})"}));
}

TEST_F(BenchmarkTaskTest, MixtureTakesEWhereItHasTheDataSet) {
  const auto task =
      Made("longbench", {{"data", kLongBench}, {"set", "longheads"}, {"tasks", "musique,trec"}});
  ASSERT_EQ(task->samples().size(), 2U);
  EXPECT_TRUE(task->samples()[0].id.starts_with("musique-0-"));
  EXPECT_TRUE(task->samples()[1].id.starts_with("trec_e-0-"));
  EXPECT_EQ(task->samples()[1].cell.dump(), R"({"dataset":"trec"})");
}

TEST_F(BenchmarkTaskTest, IdsChangeWithThePromptAndTheAnswersLengthAlone) {
  const auto ids = [](TaskOptions::Values options) {
    options.insert({"data", kInfiniteBench});
    std::vector<std::string> all;
    const auto task = Made("infinitebench", std::move(options));
    for (const Sample& sample : task->samples()) all.push_back(sample.id);
    return all;
  };
  const std::vector<std::string> passkey = ids({{"tasks", "passkey"}});
  EXPECT_EQ(ids({{"tasks", "math_find,passkey"}}).back(), passkey[0]);
  EXPECT_NE(ids({{"tasks", "passkey"}, {"templates", "gpt4_templates"}}), passkey);
  EXPECT_NE(ids({{"tasks", "passkey"}, {"limits", kInfiniteBench + "/dataset2maxlen.json"}}), passkey);
  EXPECT_EQ(ids({{"tasks", "longbook_choice_eng"}, {"samples", "2"}}).size(), 2U);
}

TEST_F(BenchmarkTaskTest, AZipArchiveReadsAsItsFolder) {
  const std::string path = directory_.File("data.zip");
  zip_t* const archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  ASSERT_NE(archive, nullptr);
  const std::string file = kLongBench + "/data/qasper.jsonl";
  ASSERT_GE(zip_file_add(archive, "data/qasper.jsonl", zip_source_file(archive, file.c_str(), 0, -1), 0), 0);
  ASSERT_EQ(zip_close(archive), 0);
  fs::copy_file(kLongBench + "/dataset2prompt.json", directory_.File("dataset2prompt.json"));
  fs::create_directory(directory_.File("config"));
  fs::copy_file(kLongBench + "/dataset2maxlen.json", directory_.File("config/dataset2maxlen.json"));
  const auto unzipped = Made("longbench", {{"data", kLongBench}, {"tasks", "qasper"}});
  for (const std::string& data : {path, directory_.File("")}) {  // the archive, and the folder that holds it
    const auto task = Made("longbench", {{"data", data}, {"tasks", "qasper"}});
    ASSERT_EQ(task->samples().size(), 3U);
    EXPECT_EQ(task->samples()[2].id, unzipped->samples()[2].id);
    EXPECT_EQ(AskedText(*task, task->samples()[1]), AskedText(*unzipped, unzipped->samples()[1]));
  }
  EXPECT_NE(Problem("longbench", {{"data", path}, {"tasks", "trec"}}).find("has no trec.jsonl"),
            std::string::npos);
}

TEST_F(BenchmarkTaskTest, WhatIsMissingIsNamedWithWhereItIsToBeHad) {
  EXPECT_NE(Problem("longbench", {}).find("--data is missing"), std::string::npos);
  EXPECT_NE(Problem("longbench", {}).find("THUDM/LongBench"), std::string::npos);
  EXPECT_NE(Problem("longbench", {{"data", "/nowhere"}}).find("no such folder"), std::string::npos);
  const std::string empty = Problem("longbench", {{"data", directory_.File("")}});
  EXPECT_NE(empty.find("has no dataset2prompt.json"), std::string::npos) << empty;
  EXPECT_NE(empty.find("--prompts"), std::string::npos) << empty;
  const std::string no_file = Problem(
      "infinitebench",
      {{"data", directory_.File("")}, {"tasks", "passkey"}, {"prompts", kInfiniteBench + "/src/prompt.py"}});
  EXPECT_NE(no_file.find("has no passkey.jsonl"), std::string::npos) << no_file;
  EXPECT_NE(no_file.find("OpenBMB/InfiniteBench"), std::string::npos) << no_file;
  EXPECT_NE(
      Problem("infinitebench", {{"data", kInfiniteBench}, {"prompts", "/nowhere"}}).find("no such file"),
      std::string::npos);
}

TEST_F(BenchmarkTaskTest, WrongOptionsAreRefused) {
  EXPECT_NE(Problem("longbench", {{"data", kLongBench}, {"tasks", "vcsum"}}).find("vcsum"),
            std::string::npos);
  EXPECT_NE(Problem("longbench", {{"data", kLongBench}, {"set", "e"}, {"tasks", "qmsum"}}).find("qmsum"),
            std::string::npos);
  EXPECT_NE(Problem("longbench", {{"data", kLongBench}, {"truncation", "middle"}}).find("--max-length"),
            std::string::npos);
  EXPECT_NE(Problem("longbench", {{"data", kLongBench}, {"max-length", "1k"}}).find("--truncation"),
            std::string::npos);
  EXPECT_NE(
      Problem("infinitebench", {{"data", kInfiniteBench}, {"templates", "kimi_templates"}}).find("kimi"),
      std::string::npos);
}

TEST_F(BenchmarkTaskTest, ADamagedLineFailsAloneAndIsNamed) {
  fs::copy(kLongBench, directory_.File("longbench"), fs::copy_options::recursive);
  const std::string file = directory_.File("longbench/data/qasper.jsonl");
  AppendText(file, "\n{\"input\": \"q\"}\nhalf a li");
  const auto task = Made("longbench", {{"data", directory_.File("longbench")}, {"tasks", "qasper"}});
  ASSERT_EQ(task->samples().size(), 5U);
  const auto sound = Made("longbench", {{"data", kLongBench}, {"tasks", "qasper"}});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(task->samples()[i].id, sound->samples()[i].id);
  std::vector<TaskRecord> records;
  const std::string model = directory_.File("tiny.gguf");
  const TaskHooks hooks{.load = [&](const std::string& spec) { return LoadTiny(model, spec); }};
  const Status run = RunTask({.attention = {"full"}}, *task, hooks, records);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(records.size(), 5U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(records[i].failed, "");
  EXPECT_EQ(records[3].failed, file + ", line 5: has no \"context\"");
  EXPECT_EQ(records[3].sample.id, "qasper-3-damaged");
  EXPECT_TRUE(records[4].failed.starts_with(file + ", line 6: is no JSON object (")) << records[4].failed;
}

TEST_F(BenchmarkTaskTest, ALineNestedTooDeeplyFailsAloneInASentence) {
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string kind : {"longbench", "infinitebench"}) {
    const std::string data = directory_.File(kind);
    fs::copy(kind == "longbench" ? kLongBench : kInfiniteBench, data, fs::copy_options::recursive);
    const std::string member = kind == "longbench" ? "answers" : "answer";
    for (const auto& file : fs::recursive_directory_iterator(data)) {
      if (file.path().extension() != ".jsonl") continue;
      AppendText(file.path().string(), "\n" + nested + "\n{\"context\": \"c\", \"input\": \"q\", \"" +
                                           member + "\": " + nested + "}");
    }
    const auto task = Made(kind, {{"data", data}, {"tasks", "all"}});
    int64_t n_damaged = 0;
    for (const Sample& sample : task->samples()) {
      const Result<Question> question = AsQuestions(*task).Ask(*engine_, PromptForm::kPlain, sample, nullptr);
      if (question) continue;
      ++n_damaged;
      EXPECT_NE(question.error().message.find("is no JSON object"), std::string::npos);
      EXPECT_NE(question.error().message.find("nested too deeply"), std::string::npos);
    }
    EXPECT_EQ(n_damaged, 2 * (kind == "longbench" ? 16 : 12));
  }
}

TEST_F(BenchmarkTaskTest, PromptsAndLimitsNestedTooDeeplyAreRefusedInASentence) {
  const std::string file = directory_.File("nested.json");
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text : {nested, "{\"qasper\": " + nested + "}"}) {
    std::ofstream(file) << text;
    for (const char* const option : {"prompts", "limits"}) {
      const std::string problem = Problem("longbench", {{"data", kLongBench}, {option, file}});
      EXPECT_TRUE(problem.starts_with(file + ": ")) << problem;
    }
  }
}

TEST_F(BenchmarkTaskTest, AnEmptyFileIsRefused) {
  fs::copy(kLongBench, directory_.File("longbench"), fs::copy_options::recursive);
  const std::string file = directory_.File("longbench/data/qasper.jsonl");
  std::ofstream(file) << "\n  \n";
  EXPECT_EQ(Problem("longbench", {{"data", directory_.File("longbench")}, {"tasks", "qasper"}}),
            file + " is empty: it has no sample of longbench");
}

TEST_F(BenchmarkTaskTest, ARunGoesThroughEveryDataSet) {
  const std::string model = directory_.File("tiny.gguf");
  for (const auto& [kind, options, n] :
       {std::tuple{"longbench", TaskOptions::Values{{"data", kLongBench}, {"set", "e"}}, 15U},
        std::tuple{"infinitebench",
                   TaskOptions::Values{{"data", kInfiniteBench},
                                       {"tasks", "all"},
                                       {"limits", kInfiniteBench + "/dataset2maxlen.json"}},
                   14U}}) {
    std::vector<TaskRecord> records;
    const TaskHooks hooks{.load = [&](const std::string& spec) { return LoadTiny(model, spec); }};
    const auto task = Made(kind, options);
    const Status run = RunTask({.attention = {"full"}}, *task, hooks, records);
    ASSERT_TRUE(run) << run.error().message;
    ASSERT_EQ(records.size(), n);
    for (const TaskRecord& record : records) {
      EXPECT_EQ(record.failed, "") << record.sample.id;
      EXPECT_LE(record.measured.generated, 24);
      EXPECT_GT(record.measured.tokens, 20);
    }
  }
}

}  // namespace
}  // namespace longheads
