#include "eval/task_record.h"

#include <gtest/gtest.h>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

TaskRecord Example() {
  TaskRecord r{.setup = {.model = ExampleModelSetup(),
                         .attention = "longheads,chunk=128",
                         .task = "needle",
                         .options = {{"version", 1}, {"zeta", "a\"b"}, {"alpha", {1, 2}}}},
               .fingerprint = {},
               .sample = {.id = "4096-50-0", .document = "d", .cell = {{"length", 4096}, {"depth", 12.5}}},
               .measure = {.name = "accuracy"},
               .measured = {.score = 0.25,
                            .values = {{"x", 1.5}},
                            .answer = "line\n\"quoted\" \xe2\x98\x85",
                            .references = {"a", "b"},
                            .tokens = 4000,
                            .shared = 100,
                            .generated = 7},
               .seconds = 1.25,
               .by = ExampleProvenance(),
               .time = "2026-01-02 03:04:05+0000"};
  r.fingerprint = r.setup.Fingerprint();
  return r;
}

TaskRecord At(int64_t length, const std::string& id, double score) {
  TaskRecord r = Example();
  r.sample = {.id = id, .cell = {{"length", length}}};
  r.measured.score = score;
  return r;
}

TEST(TaskRecord, LineGivesTheRecordBack) {
  const TaskRecord r = Example();
  const std::string line = TaskJson(r);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto back = ParseTaskJson(line);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(TaskJson(*back), line);
  EXPECT_EQ(back->sample.id, r.sample.id);
  EXPECT_EQ(back->sample.document, r.sample.document);
  EXPECT_EQ(back->sample.cell, r.sample.cell);
  EXPECT_EQ(back->measured.answer, r.measured.answer);
  EXPECT_EQ(back->measured.references, r.measured.references);
  EXPECT_EQ(back->measured.score, r.measured.score);
}

TEST(TaskRecord, FailedSampleHasAReasonAndNoScore) {
  TaskRecord r = Example();
  r.failed = "out of memory";
  const std::string line = TaskJson(r);
  EXPECT_EQ(line.find("\"score\""), std::string::npos);
  const auto back = ParseTaskJson(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->failed, "out of memory");
}

TEST(TaskRecord, RefusesLinesThatAreNone) {
  const std::string line = TaskJson(Example());
  EXPECT_FALSE(ParseTaskJson("{}"));
  EXPECT_FALSE(ParseTaskJson("[1]"));
  EXPECT_FALSE(ParseTaskJson(line.substr(0, line.size() - 1)));
  std::string other = line;
  other.replace(other.find("chunk=128"), 9, "chunk=256");
  const auto changed = ParseTaskJson(other);
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().message.find("fingerprint"), std::string::npos);
}

TEST(TaskRecord, EverythingThatBearsOnAResultIsInTheFingerprint) {
  const TaskSetup setup = Example().setup;
  const auto differs = [&](auto change) {
    TaskSetup other = setup;
    change(other);
    EXPECT_NE(other.Fingerprint(), setup.Fingerprint());
  };
  differs([](TaskSetup& s) { s.attention = "full"; });
  differs([](TaskSetup& s) { s.task = "ruler"; });
  differs([](TaskSetup& s) { s.options["version"] = 2; });
  differs([](TaskSetup& s) { s.model.model = "b.gguf"; });
  differs([](TaskSetup& s) { s.model.model_bytes += 1; });
  differs([](TaskSetup& s) { s.model.compute = "f32"; });
  differs([](TaskSetup& s) { s.model.kv = "f32"; });
  differs([](TaskSetup& s) { s.model.rope = ""; });
}

TEST(TaskRecord, CsvCountsFailedSamplesBesideTheMean) {
  std::vector<TaskRecord> records = {At(1024, "a", 1), At(1024, "b", 0), At(2048, "a2", 1), At(1024, "c", 0)};
  records[3].failed = "broken";
  const std::string csv = TaskCsv(records);
  EXPECT_NE(csv.find("needle,\"longheads,chunk=128\",1024,accuracy,share,2,2,1,0.5,"), std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\"longheads,chunk=128\",2048,accuracy,share,1,1,0,1,"), std::string::npos) << csv;
  // Run again, it counts once.
  records.push_back(At(1024, "c", 1));
  EXPECT_EQ(LatestRecords(records).size(), 4u);
  EXPECT_NE(TaskCsv(records).find("1024,accuracy,share,3,3,0,0.666667,"), std::string::npos);
}

TEST(ExperimentOfJournal, IsItsNameWithoutThePart) {
  for (const char* const name : {"needle", "ppl-windows", "passkey-papers", "needle-of", "needle-2of", "-of3",
                                 "needle-2of4x", "kld-of4"}) {
    EXPECT_EQ(ExperimentOfJournal(name), name);
  }
  EXPECT_EQ(ExperimentOfJournal("needle-2of4"), "needle");
  EXPECT_EQ(ExperimentOfJournal("ppl-windows-10of12"), "ppl-windows");
}

class AllRecordsTest : public testing::Test {
 protected:
  void Append(const std::string& file, const TaskRecord& record) {
    AppendText(directory_.File(file), TaskJson(record) + "\n");
  }
  std::vector<std::string> Ids(std::span<const TaskRecord> run) {
    const auto records = AllRecords(directory_.path().string(), "needle", run);
    EXPECT_TRUE(records) << records.error().message;
    std::vector<std::string> ids;
    for (const TaskRecord& r : *records) ids.push_back(r.sample.id + (r.failed.empty() ? "" : " failed"));
    return ids;
  }

  TestDirectory directory_;
};

TEST_F(AllRecordsTest, AreOfEveryPartAndOfTheRun) {
  Append("needle.jsonl", At(1024, "a", 1));
  Append("needle-1of2.jsonl", At(1024, "b", 1));
  Append("needle-2of2.jsonl", At(1024, "a", 0));
  Append("needlebench.jsonl", At(1024, "another task's", 0));
  AppendText(directory_.File("needle-2of2.jsonl"), "{\"not finished");
  EXPECT_EQ(Ids({}), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(Ids(std::vector{At(1024, "b", 1), At(1024, "kept nowhere", 1)}),
            (std::vector<std::string>{"kept nowhere", "b", "a"}));
}

TEST_F(AllRecordsTest, AScoreGoesBeforeAFailure) {
  TaskRecord failed = At(1024, "a", 0);
  failed.failed = "out of memory";
  Append("needle-1of2.jsonl", At(1024, "a", 1));
  Append("needle.jsonl", failed);
  EXPECT_EQ(Ids({}), std::vector<std::string>{"a"});
  failed.sample.id = "b";
  Append("needle.jsonl", failed);
  EXPECT_EQ(Ids({}), (std::vector<std::string>{"b failed", "a"}));
}

TEST_F(AllRecordsTest, ALineThatIsNoneIsNamed) {
  Append("needle-1of2.jsonl", At(1024, "a", 1));
  AppendText(directory_.File("needle-1of2.jsonl"), "{}\n");
  const auto records = AllRecords(directory_.path().string(), "needle", {});
  ASSERT_FALSE(records);
  EXPECT_NE(records.error().message.find("line 2 of "), std::string::npos) << records.error().message;
  EXPECT_NE(records.error().message.find("needle-1of2.jsonl"), std::string::npos) << records.error().message;
}

TEST(TaskRecord, TableHasMethodsByTheCellsFirstKey) {
  std::vector<TaskRecord> records = {At(1024, "a", 1), At(1024, "b", 0), At(2048, "c", 1)};
  records[2].failed = "broken";
  const std::vector<std::string> attention = {"longheads,chunk=128", "full"};
  const std::string table = TaskTable(records, attention);
  EXPECT_NE(table.find("1k"), std::string::npos);
  EXPECT_NE(table.find("50.0 (9.5-90.5) of 2"), std::string::npos) << table;
  EXPECT_NE(table.find("-, 1 failed"), std::string::npos) << table;
}

TaskRecord Of(const std::string& attention, const std::string& id, const Json& cell, double score) {
  TaskRecord r = Example();
  r.setup.attention = attention;
  r.sample = {.id = id, .cell = cell};
  r.measured.score = score;
  return r;
}

TEST(TaskRecord, TableTellsTasksApartAndHasTheirLengths) {
  const std::vector<TaskRecord> records = {
      Of("full", "a", {{"task", "single"}, {"length", 1024}}, 1),
      Of("full", "b", {{"task", "multi"}, {"length", 1024}, {"depth", 50}}, 0),
      Of("full", "c", {{"task", "multi"}, {"length", 2048}, {"depth", 0}}, 1)};
  const std::string table = TaskTable(records, std::vector<std::string>{"full", "esa"});
  EXPECT_EQ(table,
            "attn    task                       1k                       2k\n"
            "full  single  100.0 (20.7-100.0) of 1                        -\n"
            "full   multi      0.0 (0.0-79.3) of 1  100.0 (20.7-100.0) of 1\n"
            "esa        -                        -                        -\n");
}

TEST(TaskRecord, TableHasSampleClassesBesideAll) {
  const std::vector<TaskRecord> records = {Of("full", "a", {{"length", 1024}, {"split", "yes"}}, 0),
                                           Of("full", "b", {{"length", 1024}, {"split", "no"}}, 1)};
  const std::string table = TaskTable(records, std::vector<std::string>{"full"});
  EXPECT_NE(table.find("all     50.0 (9.5-90.5) of 2"), std::string::npos) << table;
  EXPECT_NE(table.find("yes      0.0 (0.0-79.3) of 1"), std::string::npos) << table;
}

TEST(TaskRecord, CsvHasNoTwoColumnsOfOneName) {
  TaskRecord r = Of("full", "a", {{"task", "single"}, {"length", 1024}}, 1);
  r.measured.values = {{"length", 1000}, {"seconds", 2}, {"key", 48713}};
  const std::string csv = TaskCsv(std::vector{r});
  EXPECT_TRUE(csv.starts_with("task,attn,cell_task,length,measure,")) << csv;
  EXPECT_NE(csv.find(",fingerprint,value_length,value_seconds\n"), std::string::npos) << csv;
  EXPECT_EQ(csv.find("48713"), std::string::npos) << csv;  // a key is no measure
}

TEST(TaskRecord, RefusesWhatNoTableCanShow) {
  const auto message_of = [](TaskRecord r) {
    r.fingerprint = r.setup.Fingerprint();
    const auto parsed = ParseTaskJson(TaskJson(r));
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_EQ(message_of(Of("full", "a", {{"length", 1024}, {"kind", "x"}, {"hard", true}}, 1)), "");
  EXPECT_NE(message_of(Of("full", "a", Json::array({1}), 1)).find("'cell'"), std::string::npos);
  EXPECT_NE(message_of(Of("full", "a", "1024", 1)).find("'cell'"), std::string::npos);
  EXPECT_NE(message_of(Of("full", "a", {{"length", "1024"}}, 1)).find("'length'"), std::string::npos);
  EXPECT_NE(message_of(Of("full", "a", {{"x", {1, 2}}}, 1)).find("'x'"), std::string::npos);
  // Two of these would have a mean beyond what a number holds.
  EXPECT_NE(message_of(Of("full", "a", {{"length", 1024}}, 1e308)).find("'score'"), std::string::npos);
}

}  // namespace
}  // namespace longheads
