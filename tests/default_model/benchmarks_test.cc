// LongBench and InfiniteBench end to end on real weights, from fixtures in the official formats
// (tests/fixtures). The texts are tiny: this shows that every data set runs, not how well a model does.
#include <gtest/gtest.h>

#include <set>

#include "eval/task_registry.h"
#include "eval/task_run.h"
#include "tests/default_model/default_model.h"

namespace longheads {
namespace {

const std::string kFixtures = LONGHEADS_SOURCE_DIR "/tests/fixtures/";

// One sample of each data set, all of them answered.
std::vector<TaskRecord> RunAll(const std::string& kind, TaskOptions::Values options,
                               const std::string& form) {
  options["data"] = kFixtures + kind;
  options["samples"] = "1";
  Result<std::unique_ptr<Task>> task = MakeTask(*FindTaskKind(kind), std::move(options));
  EXPECT_TRUE(task) << task.error().message;
  if (!task) return {};
  std::vector<TaskRecord> records;
  const TaskHooks hooks{.load = [](const std::string& spec) -> Result<std::unique_ptr<Engine>> {
    return LoadDefaultModel(spec, "f32");
  }};
  const Status run = RunTask({.attention = {"longheads"}, .form = form}, **task, hooks, records);
  EXPECT_TRUE(run) << run.error().message;
  EXPECT_EQ(records.size(), (*task)->samples().size());
  for (const TaskRecord& record : records) {
    EXPECT_EQ(record.failed, "") << record.sample.id;
    EXPECT_GT(record.measured.generated, 0) << record.sample.id;
    EXPECT_GE(record.measured.score, 0);
    EXPECT_LE(record.measured.score, 1);
  }
  return records;
}

double ScoreOf(const std::vector<TaskRecord>& records, const std::string& dataset) {
  for (const TaskRecord& record : records) {
    if (record.sample.cell.at("dataset") == dataset) return record.measured.score;
  }
  ADD_FAILURE() << "no " << dataset;
  return 0;
}

TEST(Benchmarks, LongBenchRuns) { EXPECT_EQ(RunAll("longbench", {}, "auto").size(), 16U); }

TEST(Benchmarks, LongBenchERuns) { EXPECT_EQ(RunAll("longbench", {{"set", "e"}}, "auto").size(), 13U); }

TEST(Benchmarks, InfiniteBenchRunsAndAPassKeyInTheWindowIsFound) {
  const std::vector<TaskRecord> records =
      RunAll("infinitebench", {{"tasks", "all"}, {"limits", kFixtures + "infinitebench/dataset2maxlen.json"}},
             "plain");
  EXPECT_EQ(records.size(), 12U);
  EXPECT_EQ(ScoreOf(records, "passkey"), 1);
}

}  // namespace
}  // namespace longheads
