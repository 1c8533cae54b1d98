// The report's page: it says what was found, beside the papers' numbers, and no name breaks it.
#include "report/results_page.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/paper_tables.h"
#include "tests/support/result_journals.h"

namespace longheads {
namespace {

const ReportOrigin kOrigin = {.title = "Results <here>", .program = "longheads test", .machine = "a machine"};

bool Has(const Report& report, const std::string& file) {
  return std::ranges::any_of(report.files, [&](const auto& one) { return one.first == file; });
}

std::string File(const Report& report, const std::string& name) {
  for (const auto& [file, contents] : report.files) {
    if (file == name) return contents;
  }
  return "";
}

Report Make(const ResultFolder& folder) {
  const Result<Results> results = ReadResults(folder.path());
  EXPECT_TRUE(results) << results.error().message;
  return MakeReport(*results, kOrigin);
}

TEST(ResultsPage, ShowsPassKeysAsCurveMapAndTable) {
  const ResultFolder folder;
  for (const int64_t length : {4096, 8192}) {
    for (int d = 0; d < 5; ++d) {
      folder.Append("passkey.jsonl", PasskeyJson(MakePasskey("full", length, 0.2 * d, length == 4096)));
      folder.Append("passkey.jsonl", PasskeyJson(MakePasskey("longheads", length, 0.2 * d, true)));
    }
  }
  const Report report = Make(folder);
  for (const char* const file :
       {"1-passkey-free-answers-right.svg", "1-passkey-free-answers-right.csv",
        "1-passkey-free-answers-right-map-1-full.svg", "1-passkey-free-answers-right-map-2-longheads.csv",
        "2-passkey-digits-right-the-answer-forced.csv"}) {
    EXPECT_TRUE(Has(report, file)) << file;
  }
  EXPECT_EQ(File(report, "1-passkey-free-answers-right.csv"),
            "attn,length,n,failed,value,low,high\n"
            "full,4096,5,0,1,0.565518,1\n"
            "full,8192,5,0,0,0,0.434482\n"
            "longheads,4096,5,0,1,0.565518,1\n"
            "longheads,8192,5,0,1,0.565518,1\n");
  EXPECT_NE(report.page.find("100 <small>57\u2013100, n = 5</small>"), std::string::npos);
  EXPECT_NE(report.page.find("Results &lt;here&gt;"), std::string::npos);
  EXPECT_NE(report.page.find("tiny &lt;b&gt;.gguf"), std::string::npos);
  EXPECT_NE(report.page.find("longheads test"), std::string::npos);
  EXPECT_NE(report.page.find("<dt>measured by</dt><dd>longheads 1, commit 2</dd>"), std::string::npos);
  EXPECT_NE(report.page.find("<dt>measured on</dt><dd>a &lt;processor&gt;</dd>"), std::string::npos);
  EXPECT_NE(report.page.find("<dt>model fingerprint</dt><dd>0123456789abcdef</dd>"), std::string::npos);
  // Beside a result that does not say, nothing is said of all.
  PasskeyRecord older = MakePasskey("full", 1024, 0.5, true);
  older.by.machine = "";
  folder.Append("passkey.jsonl", PasskeyJson(older));
  EXPECT_NE(Make(folder).page.find("<dd>a &lt;processor&gt;; of some results not recorded</dd>"),
            std::string::npos);
  EXPECT_NE(report.page.find("LongHeads, Table 7"), std::string::npos);
  EXPECT_NE(report.page.find("#0cd79f"), std::string::npos);
  EXPECT_EQ(report.page.find("<script"), std::string::npos);
  EXPECT_EQ(report.page.find("http://"), std::string::npos);
  EXPECT_EQ(report.page.find("https://"), std::string::npos);
}

TEST(ResultsPage, ShowsPerplexityAndOtherTasks) {
  const ResultFolder folder;
  for (const int64_t length : {1024, 2048}) {
    folder.Append("ppl.jsonl", PplJson(MakePpl("full", length, 0, length == 1024 ? 2.0 : 9.0)));
    folder.Append("needle.jsonl",
                  TaskJson(MakeTask("full", std::to_string(length), {{"length", length}, {"depth", 50}}, 1)));
  }
  TaskRecord failed = MakeTask("full", "x", {{"length", 1024}, {"depth", 100}}, 0);
  failed.failed = "<i>no</i>";
  folder.Append("needle.jsonl", TaskJson(failed));
  const Report report = Make(folder);
  EXPECT_NE(report.page.find("1 samples failed"), std::string::npos);
  EXPECT_NE(report.page.find("LongHeads, Table 1"), std::string::npos);
  EXPECT_TRUE(Has(report, "2-ppl-perplexity.svg"));
  EXPECT_TRUE(Has(report, "1-needle-accuracy-peak-memory-mib.svg"));
  EXPECT_TRUE(Has(report, "1-needle-accuracy-seconds-per-sample.svg"));
  EXPECT_NE(File(report, "1-needle-accuracy.csv").find("full,1024,1,1,1,"), std::string::npos);
}

TEST(ResultsPage, SaysWhatTellsTwoExperimentsApart) {
  const ResultFolder folder;
  PasskeyRecord record = MakePasskey("full", 4096, 0, true);
  folder.Append("passkey.jsonl", PasskeyJson(record));
  record.setup.model.compute = "bf16";
  folder.Append("passkey.jsonl", PasskeyJson(record));
  const Report report = Make(folder);
  EXPECT_NE(report.page.find("passkey: free answers right, compute f32"), std::string::npos);
  EXPECT_NE(report.page.find("passkey: free answers right, compute bf16"), std::string::npos);
}

TEST(ResultsPage, NoNameBreaksIt) {
  const std::string hostile = "</style></svg><script>alert(1)</script>\"'&";
  const ResultFolder folder;
  TaskRecord record = MakeTask(hostile, hostile, {{hostile, hostile}, {"length", 1024}, {"depth", 0.5}}, 1);
  record.setup.options = {{hostile, hostile}};
  record.measure.name = hostile;
  for (const int64_t length : {1024, 2048}) {
    record.sample.cell["length"] = length;
    record.sample.id = std::to_string(length);
    record.fingerprint = record.setup.Fingerprint();
    folder.Append("task.jsonl", TaskJson(record));
  }
  const Report report = Make(folder);
  EXPECT_EQ(report.page.find("<script"), std::string::npos);
  for (const auto& [name, contents] : report.files) {
    EXPECT_EQ(name.find('/'), std::string::npos);
    if (name.ends_with(".svg")) {
      EXPECT_EQ(contents.find("<script"), std::string::npos);
    }
  }
}

TEST(PaperTables, AreRectangularAndOfEveryExperiment) {
  for (const char* const task : {"ppl", "longbench", "selection", "ablation", "efficiency", "passkey",
                                 "infinitebench", "counting-stars", "needlebench"}) {
    const std::vector<PaperTable> tables = PaperTablesOf(task);
    ASSERT_FALSE(tables.empty()) << task;
    for (const PaperTable& table : tables) {
      EXPECT_FALSE(table.title.empty());
      ASSERT_GT(table.rows.size(), 1u) << table.title;
      for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.rows[0].size()) << table.title;
    }
  }
  EXPECT_TRUE(PaperTablesOf("unheard of").empty());
  // One number of the first table, as the paper prints it.
  const PaperTable table = PaperTablesOf("ppl")[0];
  EXPECT_EQ(table.rows.back(), (std::vector<std::string>{"LongHeads (2k window)", "6.98", "8.15", "8.41"}));
}

}  // namespace
}  // namespace longheads
