#include "eval/task_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <sstream>

#include "base/cores.h"
#include "engine/esa_for_test.h"
#include "engine/model_fingerprint.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

// Asks two questions each of some documents; what `fail` says of a sample's id is what becomes of it.
class EchoTask : public QuestionTask {
 public:
  explicit EchoTask(int n_documents) {
    for (int d = 0; d < n_documents; ++d) {
      for (int q = 0; q < 2; ++q) {
        samples_.push_back({.id = std::to_string(d) + "-" + std::to_string(q),
                            .document = "document " + std::to_string(d),
                            .cell = {{"length", 100 + d}},
                            .tokens = 100,
                            .number = d});
      }
    }
  }
  std::string name() const override { return "echo"; }
  MeasureName measure() const override { return {.name = "accuracy"}; }
  Json Setup() const override { return {{"version", version}}; }
  const std::vector<Sample>& samples() const override { return samples_; }
  Result<Question> Ask(const Engine&, PromptForm, const Sample& sample, const CancelToken*) const override {
    if (throws == sample.id) throw std::bad_alloc();
    if (fails == sample.id) return InvalidInput("no such line");
    std::string text;
    for (int i = 0; i < 40; ++i) text += std::to_string(sample.number * 17 + i) + " ";
    Question question{.text = {.shared = text, .rest = "Question " + sample.id}, .max_new = 3};
    question.references = {"42"};
    return question;
  }
  Score Judge(const Question& question, const std::string& answer) const override {
    EXPECT_EQ(question.references[0], "42");
    return {.value = answer.empty() ? 0.0 : 1.0, .values = {{"size", answer.size()}}};
  }

  int version = 1;
  std::string fails, throws;

 private:
  std::vector<Sample> samples_;
};

class TaskRunTest : public testing::Test {
 protected:
  TaskHooks Hooks() {
    return {.load = [this](const std::string& attention) { return LoadTiny(model_, attention); },
            .on_method = {},
            .on_prefill = {},
            .on_sample =
                [this](const TaskRecord&, bool from_file, const TaskProgress& progress) {
                  (from_file ? n_found_ : n_run_) += 1;
                  progress_ = progress;
                  if (progress.done == cancel_after_) cancel_.Cancel();
                },
            .cancel = &cancel_};
  }
  TaskRunOptions Options() const { return {.attention = {"full"}, .out_dir = directory_.File("out")}; }
  Status Run(const TaskRunOptions& options, Task& task) {
    records_.clear();
    n_found_ = n_run_ = 0;
    return RunTask(options, task, Hooks(), records_);
  }

  TestDirectory directory_;
  std::string model_ = TinyModelFile(directory_);
  CancelToken cancel_;
  int64_t cancel_after_ = -1;
  int n_found_ = 0, n_run_ = 0;
  TaskProgress progress_;
  std::vector<TaskRecord> records_;
};

TEST_F(TaskRunTest, EverySampleIsRunOnceKeptAndFoundAgain) {
  EchoTask task(3);
  TaskRunOptions options = Options();
  options.attention = {"full", "longheads,chunk=64,window=256", "full"};
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_run_, 2 * 6);
  EXPECT_EQ(progress_.total, 12);
  EXPECT_EQ(progress_.done, 12);
  EXPECT_NEAR(progress_.seconds_left, 0, 1e-9);
  EXPECT_EQ(records_[0].setup.options["form"], "chat");
  EXPECT_EQ(records_[0].measured.shared, 0);
  EXPECT_GT(records_[1].measured.shared, 0);
  EXPECT_EQ(records_[0].measured.generated, 3);
  const std::string answer = records_[5].measured.answer;
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_run_, 0);
  EXPECT_EQ(n_found_, 12);
  EXPECT_EQ(records_[5].measured.answer, answer);
  EXPECT_TRUE(std::filesystem::exists(directory_.File("out/echo.csv")));
  task.version = 2;
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_run_, 12);
}

TEST_F(TaskRunTest, RecordsSayByWhatTheyWereMeasured) {
  EchoTask task(2);
  ASSERT_TRUE(Run(Options(), task));
  const Provenance by = records_[0].by;
  EXPECT_EQ(by.threads, 1);
  EXPECT_EQ(by.program, ProgramAndCommit());
  EXPECT_TRUE(by.machine.starts_with(ProcessorName())) << by.machine;
  EXPECT_NE(by.machine.find(std::to_string(PhysicalCores()) + " core"), std::string::npos) << by.machine;
  EXPECT_EQ(records_[0].setup.model.fingerprint, FingerprintText(FingerprintModel(*GgufFile::Open(model_))));
  const std::string fingerprint = records_[0].fingerprint;

  // Results of another file of weights stay as they are, beside those of this one.
  const std::string path = directory_.File("out/echo.jsonl");
  const auto rewrite = [&](const auto& change) {
    std::string lines;
    std::istringstream in(ReadAll(path));
    for (std::string line; std::getline(in, line);) {
      Json json = Json::parse(line);
      change(json);
      lines += json.dump() + "\n";
    }
    std::ofstream(path) << lines;
  };
  rewrite([](Json& json) {
    TaskSetup other = ParseTaskJson(json.dump())->setup;
    other.model.fingerprint = "0123456789abcdef";
    json["model_fingerprint"] = other.model.fingerprint;
    json["fingerprint"] = other.Fingerprint();
  });
  ASSERT_TRUE(Run(Options(), task));
  EXPECT_EQ(n_found_, 0);
  EXPECT_EQ(n_run_, 4);
  EXPECT_EQ(records_[0].fingerprint, fingerprint);
  const std::string csv = ReadAll(directory_.File("out/echo.csv"));
  EXPECT_NE(csv.find(",0123456789abcdef,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("," + records_[0].setup.model.fingerprint + ","), std::string::npos) << csv;

  // Lines of before weights were named are of weights nobody knows.
  rewrite([](Json& json) {
    TaskSetup older = ParseTaskJson(json.dump())->setup;
    older.model.fingerprint = "";
    for (const char* const name : {"program", "machine", "model_fingerprint"}) json.erase(name);
    json["fingerprint"] = older.Fingerprint();
  });
  ASSERT_TRUE(Run(Options(), task));
  EXPECT_EQ(n_found_, 0);
}

TEST(Provenance, MachineIsMoreThanABrand) {
  const std::string cpuinfo =
      "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD "
      "EPYC\nstepping\t: 1\nprocessor\t: 1\nmodel\t\t: 3\n";
  EXPECT_EQ(DescribeMachine("AMD EPYC", cpuinfo, 2), "AMD EPYC (family 26, model 2, stepping 1), 2 cores");
  EXPECT_EQ(DescribeMachine("Neoverse-N1", "processor\t: 0\nBogoMIPS\t: 50.00\n", 1), "Neoverse-N1, 1 core");
  EXPECT_EQ(DescribeMachine("x", "model name\t: x\nmodel\t:", 4), "x, 4 cores");
  // What older programs wrote is read as it stands.
  EXPECT_EQ(ParseProvenance({{"threads", 2}, {"machine", "AMD EPYC"}}).machine, "AMD EPYC");
}

// Samples of the compression that is gone stay beside those of the new one; methods without one go on.
TEST_F(TaskRunTest, RefitOfEsaMakesNewSamples) {
  const auto cache = SaveRandomEsaCompression(model_, TinyLlamaOptions{});
  EchoTask task(2);
  TaskRunOptions options = Options();
  options.attention = {"full", kCompressedEsa};
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_run_, 8);
  EXPECT_FALSE(records_[0].setup.options.contains(kEsaCompressionOption));
  const Json first = records_[4].setup.options.at(kEsaCompressionOption);
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_found_, 8);

  const uint64_t fingerprint = FingerprintModel(*GgufFile::Open(model_));
  const std::string path = EsaCompressionPath(fingerprint, 256);
  EsaProjections other = **LoadEsaProjections(path, fingerprint, 256, 32, 2);
  other.layers[1].k[5] += 0.5f;
  ASSERT_TRUE(SaveEsaProjections(path, fingerprint, other));
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_found_, 4);
  EXPECT_EQ(n_run_, 4);
  EXPECT_NE(records_[4].setup.options.at(kEsaCompressionOption), first);
  EXPECT_NE(ReadAll(directory_.File("out/echo.csv")).find(first.get<std::string>()), std::string::npos);
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_found_, 8);
}

// Killed at any byte: what is whole is kept, the rest is run again, and the file ends up the same but for
// times.
TEST_F(TaskRunTest, TornFileIsMendedAndGoneOnFrom) {
  EchoTask task(2);
  ASSERT_TRUE(Run(Options(), task));
  const std::string whole = ReadAll(directory_.File("out/echo.jsonl"));
  const std::vector<TaskRecord> first = records_;
  for (const std::size_t cut : {whole.size() - 1, whole.size() / 2, std::size_t{10}, std::size_t{0}}) {
    std::filesystem::resize_file(directory_.File("out/echo.jsonl"), cut);
    const auto n_whole = std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
    ASSERT_TRUE(Run(Options(), task));
    EXPECT_EQ(n_found_, n_whole);
    EXPECT_EQ(n_run_, 4 - n_whole);
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(records_[i].measured.answer, first[i].measured.answer);
    }
  }
}

TEST_F(TaskRunTest, FailedSampleIsKeptWithItsReasonAndTheOthersGoOn) {
  EchoTask task(2);
  task.fails = "0-1";
  task.throws = "1-0";
  ASSERT_TRUE(Run(Options(), task));
  EXPECT_EQ(n_run_, 4);
  EXPECT_EQ(records_[1].failed, "no such line");
  EXPECT_EQ(records_[2].failed, "out of memory");
  EXPECT_EQ(records_[3].failed, "");
  task.fails = task.throws = "";
  ASSERT_TRUE(Run(Options(), task));
  EXPECT_EQ(n_run_, 0) << "a failed sample is done until it is asked for";
  TaskRunOptions retry = Options();
  retry.retry_failed = true;
  ASSERT_TRUE(Run(retry, task));
  EXPECT_EQ(n_run_, 2);
  for (const TaskRecord& record : records_) EXPECT_EQ(record.failed, "");
  ASSERT_TRUE(Run(retry, task));
  EXPECT_EQ(n_run_, 0);
}

TEST_F(TaskRunTest, ShardsAreDisjointWholeDocumentsAndTogetherAll) {
  EchoTask task(5);
  std::vector<std::string> ids;
  for (const char* const shard : {"1/3", "2/3", "3/3"}) {
    TaskRunOptions options = Options();
    options.shard = *ParseShard(shard);
    ASSERT_TRUE(Run(options, task));
    EXPECT_EQ(n_run_ % 2, 0);
    EXPECT_EQ(n_found_, 0);
    for (const TaskRecord& record : records_) ids.push_back(record.sample.id);
  }
  std::ranges::sort(ids);
  EXPECT_EQ(ids.size(), 10u);
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
  EXPECT_TRUE(std::filesystem::exists(directory_.File("out/echo-2of3.jsonl")));
  for (const char* const bad : {"", "1", "0/2", "3/2", "a/2", "1/2/3", "1/", "/2", "-1/2", "1/99999"}) {
    EXPECT_FALSE(ParseShard(bad)) << bad;
  }
}

TEST_F(TaskRunTest, InterruptKeepsWhatIsDone) {
  EchoTask task(2);
  cancel_after_ = 3;
  const Status status = Run(Options(), task);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(records_.size(), 3u);
  cancel_after_ = -1;
  cancel_.Reset();
  ASSERT_TRUE(Run(Options(), task));
  EXPECT_EQ(n_found_, 3);
  EXPECT_EQ(n_run_, 1);
}

TEST_F(TaskRunTest, WhatIsWrongIsSaidBeforeTheFirstSample) {
  EchoTask task(2);
  TaskRunOptions options = Options();
  options.attention = {"full", "longhead"};
  EXPECT_FALSE(Run(options, task));
  options.attention = {};
  EXPECT_FALSE(Run(options, task));
  options.attention = {"full"};
  task.fails = "0-0";
  EXPECT_FALSE(Run(options, task));
  EXPECT_TRUE(records_.empty());
}

TEST_F(TaskRunTest, MethodThatCannotBeLoadedFailsAloneForWhoKeepsGoing) {
  EchoTask task(2);
  TaskRunOptions options = Options();
  options.attention = {"longhead", "full"};
  options.keep_going = true;
  ASSERT_TRUE(Run(options, task));
  ASSERT_EQ(records_.size(), 8u);
  for (const TaskRecord& record : records_) {
    const bool refused = record.setup.attention == "longhead";
    EXPECT_EQ(record.failed.find("longheads") != std::string::npos, refused) << record.failed;
    EXPECT_EQ(record.failed.empty(), !refused);
  }
  EXPECT_NEAR(progress_.seconds_left, 0, 1e-9);
  ASSERT_TRUE(Run(options, task));
  EXPECT_EQ(n_found_, 8);
  // With none of them there is no model to speak of.
  options.attention = {"longhead", "fulls"};
  EXPECT_FALSE(Run(options, task));
  EXPECT_TRUE(records_.empty());
}

TEST_F(TaskRunTest, ModelThatCannotBeLoadedAgainFailsWhatIsLeftForWhoKeepsGoing) {
  EchoTask task(2);
  TaskRunOptions options = Options();
  options.attention = {"full", "streaming-llm"};
  int n_loads = 0;
  TaskHooks hooks = Hooks();
  hooks.load = [&](const std::string& attention) -> Result<std::unique_ptr<Engine>> {
    if (++n_loads == 3) return MakeError(ErrorKind::kOutOfMemory, "no memory");  // both have been checked
    return LoadTiny(model_, attention);
  };
  ASSERT_FALSE(RunTask(options, task, hooks, records_));
  EXPECT_TRUE(records_.empty());
  options.keep_going = true;
  n_loads = 0;
  ASSERT_TRUE(RunTask(options, task, hooks, records_));
  ASSERT_EQ(records_.size(), 8u);
  for (const TaskRecord& record : records_) {
    EXPECT_EQ(record.failed, record.setup.attention == "full" ? "no memory" : "");
  }
}

}  // namespace
}  // namespace longheads
