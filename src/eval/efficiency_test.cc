#include "eval/efficiency.h"

#include <gtest/gtest.h>

#include "eval/task_run.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

TEST(Efficiency, EverySampleHasTimesMemoryAndWhetherTheKeyWasFound) {
  const TestDirectory directory;
  const std::string model = TinyModelFile(directory);
  EfficiencyTask task({.lengths = {600, 1200}, .n_repeats = 2, .n_decode = 5});
  std::vector<TaskRecord> records;
  const TaskHooks hooks{.load = [&](const std::string& spec) { return LoadTiny(model, spec); }};
  const Status status =
      RunTask({.attention = {"full"}, .out_dir = directory.File("out")}, task, hooks, records);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(records.size(), 4u);
  for (const TaskRecord& record : records) {
    EXPECT_EQ(record.failed, "");
    EXPECT_GT(record.measured.score, 0);
    EXPECT_EQ(record.measured.generated, 5);
    const Json& values = record.measured.values;
    EXPECT_GT(values.at("prefill_seconds").get<double>(), 0);
    EXPECT_GT(values.at("kv_gib").get<double>(), 0);
    EXPECT_GE(values.at("peak_gib").get<double>(), values.at("kv_gib").get<double>());
    EXPECT_TRUE(values.at("accuracy") == 0.0 || values.at("accuracy") == 1.0);
  }
  // The program, the machine and the threads are part of what was asked, as they turned out to be.
  const Json& setup = records[0].setup.options;
  EXPECT_EQ(setup.at("threads"), 1);
  EXPECT_EQ(setup.at("machine"), records[0].by.machine);
  EXPECT_EQ(setup.at("program"), records[0].by.program);
  EXPECT_NE(records[0].by.machine.find(" core"), std::string::npos) << records[0].by.machine;
  // Twice the text takes twice the keys and values, but for whole pages.
  EXPECT_NEAR(records[2].measured.values.at("kv_gib").get<double>() /
                  records[0].measured.values.at("kv_gib").get<double>(),
              2, 0.5);
  // Values are columns of the table and of the CSV.
  const std::string table = TaskTable(records, std::vector<std::string>{"full"}, task.shown());
  EXPECT_NE(table.find("; prefill_seconds "), std::string::npos) << table;
  EXPECT_NE(table.find("; accuracy "), std::string::npos) << table;
  const std::string csv = ReadAll(directory.File("out/efficiency.csv"));
  EXPECT_NE(csv.find(",fingerprint,prefill_seconds,prefill_tokens_per_second,peak_gib,"), std::string::npos)
      << csv;
}

}  // namespace
}  // namespace longheads
