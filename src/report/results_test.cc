// Journals of every kind as observations; what is damaged or unfinished in them.
#include "report/results.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/interval.h"
#include "tests/support/result_journals.h"

namespace longheads {
namespace {

const Experiment* Find(const Results& results, const std::string& task, const std::string& measure) {
  for (const Experiment& one : results.experiments) {
    if (one.task == task && one.measure.name == measure) return &one;
  }
  return nullptr;
}

TEST(ReadResults, CountsPassKeys) {
  const ResultFolder folder;
  for (int i = 0; i < 4; ++i) {
    folder.Append("passkey.jsonl", PasskeyJson(MakePasskey("full", 4096, 0.25 * i, i != 0)));
    folder.Append("deeper/passkey.jsonl", PasskeyJson(MakePasskey("longheads", 8192, 0.25 * i, true)));
  }
  // The same sample once more: the later one counts.
  folder.Append("passkey.jsonl", PasskeyJson(MakePasskey("full", 4096, 0.75, false)));
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->experiments.size(), 2u);
  const Experiment* const free = Find(*results, "passkey", "free answers right");
  ASSERT_NE(free, nullptr);
  EXPECT_EQ(free->observations.size(), 8u);
  EXPECT_EQ(free->CellValues("length"), (std::vector<Json>{4096, 8192}));
  EXPECT_EQ(free->CellValues("depth").size(), 4u);
  EXPECT_TRUE(free->Has("depth"));
  const Estimate full = EstimateOf(*free, Select(*free, "full", "length", 4096));
  EXPECT_EQ(full.n, 4);
  EXPECT_EQ(full.value, 0.5);
  const Interval wilson = WilsonInterval(0.5, 4);
  ASSERT_TRUE(full.interval);
  EXPECT_NEAR(full.interval->first, wilson.low, 1e-12);
  EXPECT_NEAR(full.interval->second, wilson.high, 1e-12);
  const Experiment* const digits = Find(*results, "passkey", "digits right, the answer forced");
  ASSERT_NE(digits, nullptr);
  EXPECT_NEAR(EstimateOf(*digits, Select(*digits, "full")).value, (2 * 1.0 + 2 * 0.2) / 4, 1e-12);
  EXPECT_EQ(EstimateOf(*free, Select(*free, "full", "length", 8192)).n, 0);
}

TEST(ReadResults, AddsPerplexitiesUp) {
  const ResultFolder folder;
  folder.Append("ppl.jsonl", PplJson(MakePpl("full", 1024, 0, 2.0)));
  folder.Append("ppl.jsonl", PplJson(MakePpl("full", 1024, 5000, 3.0)));
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->experiments.size(), 1u);
  const Experiment& ppl = results->experiments[0];
  EXPECT_EQ(ppl.measure.unit, "perplexity");
  const Estimate estimate = EstimateOf(ppl, Select(ppl, "full"));
  EXPECT_EQ(estimate.n, 2);
  EXPECT_NEAR(estimate.value, std::exp(2.5), 1e-9);
  ASSERT_TRUE(estimate.interval);
  EXPECT_LT(estimate.interval->first, estimate.value);
  EXPECT_GT(estimate.interval->second, estimate.value);
}

TEST(ReadResults, TheSameTokensMeasuredAgainAreNotMoreTokens) {
  const ResultFolder folder;
  PplRecord again = MakePpl("full", 1024, 0, 2.5);
  again.which.calls.insert(again.which.calls.begin(), 256);  // behind a shorter length
  folder.Append("ppl.jsonl", PplJson(MakePpl("full", 1024, 0, 2.0)));
  folder.Append("ppl.jsonl", PplJson(again));
  PplRecord failed = again;
  failed.failed = "out of memory";
  folder.Append("z/ppl.jsonl", PplJson(failed));  // and a failure takes nothing away
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  const Experiment& ppl = results->experiments.at(0);
  const Estimate estimate = EstimateOf(ppl, Select(ppl, "full"));
  EXPECT_EQ(estimate.n, 1);
  EXPECT_EQ(estimate.failed, 0);
  EXPECT_NEAR(estimate.value, std::exp(2.5), 1e-9);
}

TEST(ReadResults, AFailedPerplexityIsNoPerplexity) {
  const ResultFolder folder;
  PplRecord failed = MakePpl("full", 1024, 0, 2.0);
  failed.failed = "out of memory";
  folder.Append("ppl.jsonl", PplJson(failed));
  folder.Append("ppl.jsonl", PplJson(MakePpl("full", 1024, 5000, 3.0)));
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  const Experiment& ppl = results->experiments.at(0);
  const Estimate estimate = EstimateOf(ppl, Select(ppl, "full"));
  EXPECT_EQ(estimate.n, 1);
  EXPECT_EQ(estimate.failed, 1);
  EXPECT_NEAR(estimate.value, std::exp(3.0), 1e-9);
}

TEST(ReadResults, KeepsFailuresApartAndDocumentsTogether) {
  const ResultFolder folder;
  for (int i = 0; i < 8; ++i) {
    folder.Append("needle-1of2.jsonl", TaskJson(MakeTask("full", std::to_string(i), {{"length", 4096}},
                                                         i < 4 ? 1 : 0, i < 4 ? "a" : "b")));
  }
  TaskRecord failed = MakeTask("full", "9", {{"length", 4096}}, 0);
  failed.failed = "out of memory";
  folder.Append("needle-2of2.jsonl", TaskJson(failed));
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->experiments.size(), 1u);
  const Experiment& needle = results->experiments[0];
  const Estimate estimate = EstimateOf(needle, Select(needle, "full"));
  EXPECT_EQ(estimate.n, 8);
  EXPECT_EQ(estimate.failed, 1);
  EXPECT_EQ(estimate.value, 0.5);
  // Two documents, each all alike: far wider than eight independent answers'.
  const Interval independent = WilsonInterval(0.5, 8);
  ASSERT_TRUE(estimate.interval);
  EXPECT_LT(estimate.interval->first, independent.low - 0.1);
}

TEST(ReadResults, LeavesAnUnfinishedLineOutAndSaysSo) {
  const ResultFolder folder;
  folder.Append("passkey.jsonl", PasskeyJson(MakePasskey("full", 4096, 0, true)));
  folder.Append("passkey.jsonl", R"({"attn":"full","len)", /*finished=*/false);
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->experiments[0].observations.size(), 1u);
  ASSERT_EQ(results->notes.size(), 1u);
  EXPECT_NE(results->notes[0].find("passkey.jsonl"), std::string::npos);
}

// A case that failed is neither right nor wrong, and what came of it when it was run again counts alone.
TEST(ReadResults, AFailedPassKeyIsNotAWrongOne) {
  ResultFolder folder;
  PasskeyRecord failed = MakePasskey("full", 4096, 0.25, false);
  failed.failed = "out of memory";
  folder.Append("passkey.jsonl", PasskeyJson(failed));
  folder.Append("passkey.jsonl", PasskeyJson(MakePasskey("full", 4096, 0.75, true)));
  const auto expect = [&](const std::string& failure) {
    const Result<Results> results = ReadResults(folder.path());
    ASSERT_TRUE(results) << results.error().message;
    for (const char* measure : {"free answers right", "digits right, the answer forced"}) {
      const Experiment* const found = Find(*results, "passkey", measure);
      ASSERT_NE(found, nullptr) << measure;
      ASSERT_EQ(found->observations.size(), 2u) << measure;
      EXPECT_EQ(found->observations[0].failed, failure) << measure;
      EXPECT_EQ(found->observations[1].failed, "") << measure;
    }
  };
  expect("out of memory");
  folder.Append("passkey.jsonl", PasskeyJson(MakePasskey("full", 4096, 0.25, true)));
  expect("");
}

TEST(ReadResults, RefusesWhatIsNoResult) {
  {
    const ResultFolder folder;
    const Result<Results> empty = ReadResults(folder.path());
    ASSERT_FALSE(empty);
    EXPECT_NE(empty.error().message.find("no results"), std::string::npos);
  }
  EXPECT_FALSE(ReadResults("/nowhere/at/all"));
  for (const char* const line : {"{}", "[]", "nonsense", "", R"({"task":1})"}) {
    for (const char* const file : {"passkey.jsonl", "ppl.jsonl", "other.jsonl"}) {
      const ResultFolder folder;
      folder.Append(file, line);
      const Result<Results> results = ReadResults(folder.path());
      ASSERT_FALSE(results) << line;
      EXPECT_NE(results.error().message.find(std::string(file) + ", line 1"), std::string::npos)
          << results.error().message;
    }
  }
}

// Where cells are no plain values, the sentence says in which line.
TEST(ReadResults, RefusesCellsThatNothingCanBeLaidOutBy) {
  for (const Json& cell : {Json::array({1, 2}), Json("length"), Json({{"length", "1024"}}),
                           Json({{"stars", {1}}}), Json({{"depth", nullptr}})}) {
    const ResultFolder folder;
    folder.Append("needle.jsonl", TaskJson(MakeTask("full", "a", {{"length", 1024}}, 1)));
    folder.Append("needle.jsonl", TaskJson(MakeTask("full", "b", cell, 1)));
    const Result<Results> results = ReadResults(folder.path());
    ASSERT_FALSE(results) << cell;
    EXPECT_NE(results.error().message.find("needle.jsonl, line 2"), std::string::npos)
        << results.error().message;
    EXPECT_NE(results.error().message.find("'cell'"), std::string::npos) << results.error().message;
  }
}

TEST(ReadResults, OptionsTellExperimentsApart) {
  const ResultFolder folder;
  for (const char* const needle : {"one", "another"}) {
    TaskRecord record = MakeTask("full", "a", {{"length", 1024}}, 1);
    record.setup.options["needle"] = needle;
    record.fingerprint = record.setup.Fingerprint();
    folder.Append("needle.jsonl", TaskJson(record));
  }
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->experiments.size(), 2u);
}

// Files of parts are of the experiment whose parts they are, whatever it is called.
TEST(ReadResults, ReadsPartsAsTheWhole) {
  const ResultFolder folder;
  folder.Append("passkey-1of2.jsonl", PasskeyJson(MakePasskey("full", 4096, 0, true)));
  folder.Append("passkey-2of2.jsonl", PasskeyJson(MakePasskey("full", 4096, 0.5, true)));
  folder.Append("ppl-2of2.jsonl", PplJson(MakePpl("full", 1024, 0, 2.0)));
  folder.Append("passkey-papers.jsonl", TaskJson(MakeTask("full", "a", {{"length", 1024}}, 1)));
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  const Experiment* const free = Find(*results, "passkey", "free answers right");
  ASSERT_NE(free, nullptr);
  EXPECT_EQ(free->observations.size(), 2u);
  EXPECT_NE(Find(*results, "ppl", "perplexity"), nullptr);
}

TaskRecord MakeEsa(const std::string& compression, double score) {
  TaskRecord record = MakeTask("esa", "a", {{"length", 1024}}, score);
  if (!compression.empty()) record.setup.options[kEsaCompressionOption] = compression;
  record.fingerprint = record.setup.Fingerprint();
  return record;
}

// The compression is one method's: it does not part it from the others. But two are two methods.
TEST(ReadResults, CompressionsOfEsaAreMethodsOfOneExperiment) {
  const ResultFolder folder;
  folder.Append("needle.jsonl", TaskJson(MakeTask("full", "a", {{"length", 1024}}, 1)));
  folder.Append("needle.jsonl", TaskJson(MakeEsa("0123456789abcdef", 1)));
  Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->experiments.size(), 1u);
  EXPECT_EQ(results->experiments[0].Methods(), (std::vector<std::string>{"full", "esa"}));
  EXPECT_EQ(results->experiments[0].observations[1].esa_compression, "0123456789abcdef");

  folder.Append("needle.jsonl", TaskJson(MakeEsa("fedcba9876543210", 0)));
  folder.Append("needle.jsonl", TaskJson(MakeEsa("", 0)));
  results = ReadResults(folder.path());
  ASSERT_EQ(results->experiments.size(), 1u);
  EXPECT_EQ(
      results->experiments[0].Methods(),
      (std::vector<std::string>{"full", "esa (compression 0123456789abcdef)",
                                "esa (compression fedcba9876543210)", "esa (compression not recorded)"}));
}

TEST(PartsOf, AreAlikeInAllButLengthAndDepth) {
  const ResultFolder folder;
  int n = 0;
  for (const int64_t stars : {4, 16}) {
    for (const int64_t length : {1024, 2048}) {
      folder.Append("stars.jsonl",
                    TaskJson(MakeTask("full", std::to_string(++n),
                                      {{"stars", stars}, {"length", length}, {"depth", n}}, 1)));
    }
  }
  const Result<Results> results = ReadResults(folder.path());
  ASSERT_TRUE(results) << results.error().message;
  const std::vector<Part> parts = PartsOf(results->experiments.at(0));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].label(), "stars 4");
  EXPECT_EQ(parts[1].label(), "stars 16");
  for (const Part& part : parts) {
    EXPECT_TRUE(part.whole);
    EXPECT_EQ(part.experiment.observations.size(), 2u);
    EXPECT_EQ(ColumnsOf(part.experiment), "length");
  }
}

TEST(PartsOf, LosesNoSampleWhoseCellSaysLess) {
  Experiment e{.task = "t", .measure = {}, .settings = {}, .observations = {}};
  e.observations = {{.attention = "full", .cell = {{"length", 1024}}},
                    {.attention = "full", .cell = {{"length", 1024}, {"kind", "a"}}},
                    {.attention = "full", .cell = Json::object()}};
  std::size_t n = 0;
  for (const Part& part : PartsOf(e)) {
    for (const Json& value : ColumnValues(part.experiment, "length")) {
      n += Select(part.experiment, "full", "length", value).size();
    }
  }
  EXPECT_EQ(n, 3u);
}

TEST(CellName, IsShort) {
  EXPECT_EQ(CellName("length", 4096), "4k");
  EXPECT_EQ(CellName("length", 1000), "1000");
  EXPECT_EQ(CellName("depth", 0.5), "0.5");
  EXPECT_EQ(CellName("kind", "hard"), "hard");
}

}  // namespace
}  // namespace longheads
