#include "eval/longbench.h"

#include <gtest/gtest.h>

#include <set>

namespace longheads {
namespace {

using Json = nlohmann::ordered_json;

const Json kLine =
    Json::parse(R"({"input": "Who?", "context": "Ada wrote it.", "answers": ["Ada", "Ada Lovelace"],
  "length": 4000, "dataset": "qasper", "language": "en", "all_classes": null, "_id": "x"})");

TEST(LongBench, SixteenDataSetsOfWhichThirteenAreInE) {
  EXPECT_EQ(LongBenchDatasets().size(), 16U);
  EXPECT_EQ(std::ranges::count_if(LongBenchDatasets(), &LongBenchDataset::in_e), 13);
  EXPECT_EQ(FindLongBench("vcsum"), nullptr);
}

TEST(LongBench, ALineBecomesFieldsAndAnswers) {
  const Result<BenchmarkItem> item = ReadLongBench(kLine, /*by_length=*/true);
  ASSERT_TRUE(item) << item.error().message;
  EXPECT_EQ(item->fields.at("context"), "Ada wrote it.");
  EXPECT_EQ(item->fields.at("input"), "Who?");
  EXPECT_EQ(item->references.dump(), R"({"answers":["Ada","Ada Lovelace"]})");
  EXPECT_EQ(item->cell.dump(), R"({"words":"4-8k"})");
  EXPECT_TRUE(ReadLongBench(kLine, false)->cell.empty());
}

TEST(LongBench, LengthClassesAreThoseOfTheOfficialResults) {
  EXPECT_EQ(LongBenchLengthClass(3999), "0-4k");
  EXPECT_EQ(LongBenchLengthClass(7999), "4-8k");
  EXPECT_EQ(LongBenchLengthClass(8000), "8k+");
}

TEST(LongBench, WhatALineLacksIsNamed) {
  Json line = kLine;
  line.erase("context");
  EXPECT_EQ(ReadLongBench(line, false).error().message, "has no \"context\"");
  line = kLine;
  line["answers"] = "Ada";
  EXPECT_FALSE(ReadLongBench(line, false));
  line["answers"] = Json::array();
  EXPECT_FALSE(ReadLongBench(line, false));
  line = kLine;
  line["length"] = "long";
  EXPECT_FALSE(ReadLongBench(line, true));
  EXPECT_FALSE(ReadLongBench(Json::array(), false));
  EXPECT_FALSE(ReadLongBench(Json("text"), false));
}

double Judge(std::string_view name, Json references, std::string_view answer) {
  return JudgeLongBench(*FindLongBench(name), references, answer, LongBenchScoring::kOfficial);
}

TEST(LongBench, EveryDataSetIsJudgedByItsMetric) {
  const Json ada = {{"answers", {"Ada Lovelace"}}};
  for (const char* name :
       {"narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"}) {
    EXPECT_DOUBLE_EQ(Judge(name, ada, "the Ada Lovelace!"), 1) << name;
    EXPECT_DOUBLE_EQ(Judge(name, ada, "Ada"), 2.0 / 3) << name;
  }
  for (const char* name : {"gov_report", "qmsum", "multi_news", "samsum"}) {
    EXPECT_NEAR(Judge(name, ada, "Ada Lovelace Ada"), 1, 1e-7) << name;  // words count once
  }
  EXPECT_DOUBLE_EQ(Judge("trec", {{"answers", {"Date"}}, {"all_classes", {"Date", "City"}}}, "Date or City"),
                   0.5);
  EXPECT_DOUBLE_EQ(Judge("passage_count", {{"answers", {"7"}}}, "7 of 9"), 0.5);
  EXPECT_DOUBLE_EQ(Judge("passage_retrieval_en", {{"answers", {"Paragraph 7"}}}, "Paragraph 7"), 1);
  for (const char* name : {"lcc", "repobench-p"}) {
    EXPECT_DOUBLE_EQ(Judge(name, {{"answers", {"x = 1"}}}, "# set\nx = 1\ny = 2"), 1) << name;
  }
}

TEST(LongBench, OnlyTheFirstLineCountsWhereItIsSo) {
  std::set<std::string_view> first_line;
  const Json answer = {{"answers", {"Ada"}}, {"all_classes", {"Ada", "Bob"}}};
  for (const LongBenchDataset& dataset : LongBenchDatasets()) {
    if (dataset.first_line) {
      first_line.insert(dataset.name);
      EXPECT_NEAR(JudgeLongBench(dataset, answer, "\nAda\nBob", LongBenchScoring::kCanonical), 1, 1e-7);
    }
  }
  EXPECT_EQ(first_line, (std::set<std::string_view>{"trec", "triviaqa", "samsum"}));
}

}  // namespace
}  // namespace longheads
