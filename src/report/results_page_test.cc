// The report's page: it says what was found, beside the papers' numbers, and no name breaks it.
#include "report/results_page.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  EXPECT_NE(report.page.find("LongHeads, Table 5"), std::string::npos);
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
  EXPECT_NE(report.page.find("1 results failed"), std::string::npos);
  EXPECT_NE(report.page.find("LongHeads, Table 1"), std::string::npos);
  EXPECT_TRUE(Has(report, "2-ppl-perplexity.svg"));
  EXPECT_TRUE(Has(report, "1-needle-accuracy-peak-memory-mib.svg"));
  EXPECT_TRUE(Has(report, "1-needle-accuracy-seconds-per-sample.svg"));
  EXPECT_NE(File(report, "1-needle-accuracy.csv").find("full,1024,1,1,1,"), std::string::npos);
}

// The terminal's table has the same numbers (eval/ablation_test.cc).
TEST(ResultsPage, VariantsHaveTheirDifferencesFromTheBase) {
  const std::string base = "longheads,chunk=256,window=4096";
  const ResultFolder folder;
  const auto add = [&](const std::string& method, int i, double score) {
    folder.Append("ruler.jsonl", TaskJson(MakeTask(method, std::to_string(i),
                                                   {{"length", i % 2 == 0 ? 1024 : 2048}}, score)));
  };
  for (int i = 0; i < 9; ++i) {
    add(base, i, 1);
    add(base + ",choose=last-k", i, i < 5 ? 1 : 0);
    add("full", i, 1);
  }
  add(base + ",first=off", 0, 1);  // one document knows nothing of its scatter
  add(base, 9, 0);                 // the others do not have it
  const Report report = Make(folder);
  EXPECT_NE(report.page.find("difference <small>from the base</small>"), std::string::npos);
  EXPECT_NE(report.page.find("-44.4 <small>-73.3 to -5.1, n = 9</small>"), std::string::npos);
  EXPECT_NE(report.page.find("Newcombe"), std::string::npos);
  EXPECT_EQ(File(report, "1-needle-accuracy-differences.csv"),
            "attn,n,difference,low,high\n"
            "\"longheads,chunk=256,window=4096,choose=last-k\",9,-0.444444,-0.733349,-0.050931\n");
}

TEST(ResultsPage, MethodsThatAreNoVariantsAreNotCompared) {
  const ResultFolder folder;
  for (const char* const method : {"full", "longheads", "infllm"}) {
    for (int i = 0; i < 3; ++i) {
      folder.Append("needle.jsonl", TaskJson(MakeTask(method, std::to_string(i), {{"length", 1024}}, 1)));
    }
  }
  const Report report = Make(folder);
  EXPECT_EQ(report.page.find("from the base"), std::string::npos);
  EXPECT_FALSE(Has(report, "1-needle-accuracy-differences.csv"));
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

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TaskRecord MakeOf(const std::string& task, const std::string& attention, const Json& cell, double score,
                  const Json& values = Json::object()) {
  static int number = 0;
  TaskRecord record = MakeTask(attention, std::to_string(++number), cell, score);
  record.setup.task = task;
  record.measured.values = values;
  record.fingerprint = record.setup.Fingerprint();
  return record;
}

TEST(ResultsPage, OtherTasksAreOtherTablesAndCurves) {
  const ResultFolder folder;
  for (const int64_t length : {1024, 2048}) {
    folder.Append("ruler.jsonl",
                  TaskJson(MakeOf("ruler", "full", {{"task", "niah_single_1"}, {"length", length}}, 1)));
    folder.Append("ruler.jsonl",
                  TaskJson(MakeOf("ruler", "full", {{"task", "niah_multikey_2"}, {"length", length}}, 0)));
  }
  const Report report = Make(folder);
  EXPECT_EQ(File(report, "1-ruler-accuracy.csv"),
            "attn,task,length,n,failed,value,low,high\n"
            "full,niah_single_1,1024,1,0,1,0.206549,1\n"
            "full,niah_single_1,2048,1,0,1,0.206549,1\n"
            "full,niah_multikey_2,1024,1,0,0,0,0.793451\n"
            "full,niah_multikey_2,2048,1,0,0,0,0.793451\n");
  EXPECT_TRUE(Has(report, "1-ruler-accuracy-task-niah-single-1.svg"));
  EXPECT_TRUE(Has(report, "1-ruler-accuracy-task-niah-multikey-2.svg"));
  EXPECT_NE(report.page.find("<h3>accuracy, in percent: task niah_multikey_2</h3>"), std::string::npos);
  EXPECT_EQ(report.page.find(">50 <small>"), std::string::npos);  // the mean of both
}

TEST(ResultsPage, SampleClassesStandBesideAllOfThem) {
  const ResultFolder folder;
  for (int i = 0; i < 4; ++i) {
    const bool split = i == 3;
    folder.Append("passkey-papers.jsonl",
                  TaskJson(MakeOf("passkey-papers", "full",
                                  {{"length", 1024}, {"depth", 25 * i}, {"split", split ? "yes" : "no"}},
                                  split ? 0 : 1, {{"key", 40000 + i}})));
  }
  TaskRecord failed = MakeOf("passkey-papers", "full", {{"length", 1024}, {"depth", 0}}, 0);
  failed.failed = "out of memory";
  folder.Append("passkey-papers.jsonl", TaskJson(failed));
  const Report report = Make(folder);
  EXPECT_EQ(File(report, "1-passkey-papers-accuracy.csv"),
            "attn,split,length,n,failed,value,low,high\n"
            "full,all,1024,4,1,0.75,0.300642,0.954413\n"
            "full,no,1024,3,0,1,0.438503,1\n"
            "full,yes,1024,1,0,0,0,0.793451\n");
  // One map, of all; the key is no measure.
  EXPECT_TRUE(Has(report, "1-passkey-papers-accuracy-split-all-map-1-full.svg"));
  EXPECT_EQ(
      std::ranges::count_if(report.files, [](const auto& file) { return file.first.ends_with(".svg"); }), 1);
  EXPECT_EQ(File(report, "1-passkey-papers-accuracy-values.csv"),
            "attn,split,length,n,seconds per sample\nfull,all,1024,4,3\n");
  EXPECT_NE(report.page.find("LongHeads, Table 7"), std::string::npos);
}

TEST(ResultsPage, DataSetsHaveLabelsAndAnAverage) {
  const ResultFolder folder;
  for (int i = 0; i < 3; ++i) {
    folder.Append("longbench.jsonl", TaskJson(MakeOf("longbench", "full", {{"dataset", "narrativeqa"}}, 0)));
  }
  folder.Append("longbench.jsonl", TaskJson(MakeOf("longbench", "full", {{"dataset", "repobench-p"}}, 1)));
  folder.Append("longbench.jsonl", TaskJson(MakeOf("longbench", "esa", {{"dataset", "repobench-p"}}, 1)));
  const Report report = Make(folder);
  const std::string csv = File(report, "1-longbench-accuracy.csv");
  // Each data set counts as much as the other; without all of them there is none.
  EXPECT_NE(csv.find("full,average,4,0,0.5,,\n"), std::string::npos) << csv;
  EXPECT_EQ(csv.find("esa,average"), std::string::npos) << csv;
  EXPECT_NE(report.page.find(">narrativeqa <small>NQA</small>"), std::string::npos);
  EXPECT_NE(report.page.find("ESA, Table 8"), std::string::npos);
  EXPECT_TRUE(Has(report, "paper-longheads-table-2-longbench-at-16k-llama-2-7b.csv"));
}

TEST(ResultsPage, WhatElseWasFoundHasATableAtOneLengthToo) {
  const ResultFolder folder;
  const Json values = {{"gini", 0.25}, {"top1", 1}, {"layer_0", 0.5}, {"layer_1", 0.25}, {"layer_2", 0.75}};
  folder.Append("selection.jsonl", TaskJson(MakeOf("selection", "longheads", {{"length", 1024}}, 1, values)));
  Report report = Make(folder);
  EXPECT_EQ(File(report, "1-selection-accuracy-values.csv"),
            "attn,length,n,gini,top1,seconds per sample,layer_0,layer_1,layer_2\n"
            "longheads,1024,1,0.25,1,3,0.5,0.25,0.75\n");
  EXPECT_NE(report.page.find("<td>0.25</td><td>1</td><td>3</td>"), std::string::npos);
  EXPECT_TRUE(Has(report, "1-selection-accuracy-layer.svg"));
  EXPECT_FALSE(Has(report, "1-selection-accuracy-gini.svg"));
  folder.Append("selection.jsonl", TaskJson(MakeOf("selection", "longheads", {{"length", 2048}}, 1, values)));
  report = Make(folder);
  EXPECT_TRUE(Has(report, "1-selection-accuracy-gini.svg"));
}

TEST(ResultsPage, VariantsHaveThePapersNamesAndTable) {
  const ResultFolder folder;
  for (const char* const method :
       {"longheads,chunk=256,window=4096", "longheads,chunk=256,window=4096,choose=random",
        "longheads,chunk=256,window=4096,fix=both"}) {
    folder.Append("needle.jsonl", TaskJson(MakeOf("needle", method, {{"length", 8192}}, 1)));
  }
  const Report report = Make(folder);
  EXPECT_NE(report.page.find("LongHeads, Table 4"), std::string::npos);
  EXPECT_NE(report.page.find("Fix Head &amp; Layer <small>longheads,chunk=256,window=4096,fix=both</small>"),
            std::string::npos);
  const ResultFolder other;
  other.Append("needle.jsonl", TaskJson(MakeOf("needle", "longheads", {{"length", 8192}}, 1)));
  EXPECT_EQ(Make(other).page.find("LongHeads, Table 4"), std::string::npos);
}

// Where a few samples of other settings come first, the papers' numbers stand by the many.
TEST(ResultsPage, PapersStandAtTheExperimentWithTheMostCells) {
  const ResultFolder folder;
  const auto add = [&](int64_t kv_ram, const std::string& method, int64_t length) {
    TaskRecord record = MakeOf("efficiency", method, {{"length", length}}, 1);
    record.setup.options["kv_ram"] = kv_ram;
    record.fingerprint = record.setup.Fingerprint();
    folder.Append("efficiency.jsonl", TaskJson(record));
  };
  for (int repeat = 0; repeat < 9; ++repeat) add(1 << 28, "full", 32768);
  for (const char* const method : {"full", "longheads"}) {
    for (const int64_t length : {8192, 32768}) add(0, method, length);
  }
  add(1 << 20, "full", 32768);
  const std::string page = Make(folder).page;
  const std::string title = "<h4>LongHeads, Table 5: seconds per generated token";
  EXPECT_EQ(Count(page, title), 1u);
  const std::size_t plain = page.find("<section id=\"e1\">"), behind = page.find("<section id=\"e2\">");
  const std::size_t table = page.find(title);
  EXPECT_GT(table, plain);
  EXPECT_LT(table, behind);
  EXPECT_EQ(page.substr(plain, page.find("</h2>", plain) - plain),
            "<section id=\"e1\">\n<h2>efficiency: accuracy, kv_ram 0");
}

// 99.5% of what was asked is not all of it.
TEST(ResultsPage, AllAndNothingAreSaidOfNothingElse) {
  const ResultFolder folder;
  for (const auto& [length, score] :
       {std::pair(1024, 0.995), std::pair(2048, 1.0), std::pair(4096, 0.994), std::pair(8192, 0.004)}) {
    folder.Append("esa-recall.jsonl",
                  TaskJson(MakeOf("esa-recall", "esa", {{"length", length}, {"depth", 50}}, score)));
  }
  const Report report = Make(folder);
  for (const char* const cell :
       {"<td>99.5 <small>", "<td>100 <small>", "<td>99 <small>", "<td>0.4 <small>"}) {
    EXPECT_EQ(Count(report.page, cell), 1u) << cell;
  }
  const std::string map = File(report, "1-esa-recall-accuracy-map-1-esa.svg");
  EXPECT_NE(map.find("1k at depth 50%: 99.5%; 2k at depth 50%: 100%; "), std::string::npos) << map;
  EXPECT_NE(map.find(">99.5</text>"), std::string::npos) << map;
}

TEST(ResultsPage, NamesTheCompressionOfEsasScores) {
  const ResultFolder folder;
  TaskRecord record = MakeOf("needle", "esa", {{"length", 1024}}, 1);
  folder.Append("needle.jsonl", TaskJson(record));
  EXPECT_EQ(Make(folder).page.find("compression of ESA"), std::string::npos);
  record.setup.options[kEsaCompressionOption] = "0123456789abcdef";
  record.fingerprint = record.setup.Fingerprint();
  const ResultFolder other;
  other.Append("needle.jsonl", TaskJson(record));
  EXPECT_NE(Make(other).page.find("<dt>compression of ESA\u2019s scores</dt><dd>0123456789abcdef</dd>"),
            std::string::npos);
}

// Browsers print what is unfolded.
TEST(ResultsPage, NothingIsFolded) {
  const ResultFolder folder;
  folder.Append("ppl.jsonl", PplJson(MakePpl("full", 1024, 0, 2.0)));
  const Report report = Make(folder);
  EXPECT_EQ(Count(report.page, "<details"), Count(report.page, "<details open>"));
  EXPECT_NE(report.page.find("<h3>Configuration</h3>"), std::string::npos);
  EXPECT_NE(report.page.find("windows that slide by S = 256"), std::string::npos);
}

TEST(ResultsPage, NamesTheTextsThatDebianShips) {
  const ResultFolder folder;
  PplRecord record = MakePpl("full", 1024, 0, 2.0);
  folder.Append("ppl.jsonl", PplJson(record));
  EXPECT_EQ(Make(folder).page.find("r-cran-janeaustenr"), std::string::npos);
  record.setup.text_hash = "b99d3b92144be4a8";
  folder.Append("ppl.jsonl", PplJson(record));
  EXPECT_NE(Make(folder).page.find("r-cran-janeaustenr"), std::string::npos);
}

TEST(ResultsPage, ImpossibleTextHasAPerplexityBeyondAnyNumber) {
  const ResultFolder folder;
  folder.Append("ppl.jsonl", PplJson(MakePpl("full", 1024, 0, 1000.0)));
  folder.Append("ppl.jsonl", PplJson(MakePpl("full", 2048, 0, 2.0)));
  const Report report = Make(folder);
  EXPECT_NE(report.page.find("&gt; 1e300"), std::string::npos);
  for (const auto& [name, contents] : report.files) {
    EXPECT_EQ(contents.find("inf,"), std::string::npos) << name;
    EXPECT_EQ(contents.find("nan"), std::string::npos) << name;
  }
}

TEST(ResultsPage, OfFailuresAloneThereIsATableOfThem) {
  const ResultFolder folder;
  TaskRecord failed = MakeTask("full", "x", {{"length", 1024}, {"depth", 50}}, 0);
  failed.failed = "out of memory";
  folder.Append("needle.jsonl", TaskJson(failed));
  const Report report = Make(folder);
  EXPECT_EQ(File(report, "1-needle-accuracy.csv"), "attn,length,n,failed,value,low,high\nfull,1024,0,1,,,\n");
  EXPECT_FALSE(Has(report, "1-needle-accuracy-values.csv"));
  EXPECT_NE(report.page.find("1 failed"), std::string::npos);
}

}  // namespace
}  // namespace longheads
