#include "eval/infinitebench.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace longheads {
namespace {

using Json = nlohmann::ordered_json;

Result<BenchmarkItem> Read(std::string_view dataset, const std::string& line) {
  return ReadInfiniteBench(*FindInfiniteBench(dataset), ParseJson(line));
}

double Judge(std::string_view dataset, const std::string& line, std::string_view answer,
             InfiniteBenchScoring scoring = InfiniteBenchScoring::kOfficial) {
  const Result<BenchmarkItem> item = Read(dataset, line);
  if (!item) throw std::runtime_error(item.error().message);
  return JudgeInfiniteBench(*FindInfiniteBench(dataset), item->references, answer, scoring);
}

TEST(InfiniteBench, TwelveTasksOfWhichSixAreInThePapers) {
  EXPECT_EQ(InfiniteBenchDatasets().size(), 12U);
  EXPECT_EQ(std::ranges::count_if(InfiniteBenchDatasets(), &InfiniteBenchDataset::in_papers), 6);
  EXPECT_EQ(FindInfiniteBench("qasper"), nullptr);
}

TEST(InfiniteBench, KeysAreFoundByTheirFirstInteger) {
  for (const char* line : {R"({"context": "c", "input": "q", "answer": ["71432"]})",
                           R"({"content": "c", "input": "q", "answer": "71432"})",
                           R"({"context": "c", "input": "q", "answer": 71432})"}) {
    EXPECT_EQ(Judge("passkey", line, "71432."), 1) << line;
    EXPECT_EQ(Judge("number_string", line, "7143"), 0) << line;
  }
  const std::string value = R"({"context": "c", "input": "Key: \"ab-1\"\nValue:", "answer": "cd-2"})";
  EXPECT_EQ(Read("kv_retrieval", value)->fields.at("key"), "\"ab-1\"");
  EXPECT_EQ(Judge("kv_retrieval", value, "\"cd-2\"."), 1);
}

TEST(InfiniteBench, OptionsHaveLettersByPlaceOrGiven) {
  const std::string by_place =
      R"({"context": "c", "input": "q", "options": ["w", "x", "y", "z"], "answer": ["y"]})";
  const Result<BenchmarkItem> item = Read("longbook_choice_eng", by_place);
  ASSERT_TRUE(item);
  EXPECT_EQ(item->fields.at("OPTION_D"), "z");
  EXPECT_EQ(item->fields.at("question"), "q");
  EXPECT_EQ(item->references.dump(), R"({"letter":"C","answers":["y"]})");
  EXPECT_EQ(Judge("longbook_choice_eng", by_place, "C"), 1);
  EXPECT_EQ(Judge("code_debug", by_place, "C. y"), 1);
  const std::string given = R"({"context": "c", "options": ["w", "x", "y", "z"], "answer": ["v", "B"]})";
  EXPECT_EQ(Judge("code_debug", given, "The error is B", InfiniteBenchScoring::kInfLlm), 1);
}

TEST(InfiniteBench, NumbersKeepTheirType) {
  const std::string largest =
      R"({"context": "[1, 9]", "input": "The largest number of the list is:", "answer": [9]})";
  EXPECT_EQ(Read("math_find", largest)->fields.at("prefix"),
            "What is the largest number in the following list?");
  EXPECT_EQ(Judge("math_find", largest, "9"), 1);
  EXPECT_EQ(Judge("math_find", R"({"context": "c", "input": "The median of it", "answer": 4.5})", "4.50"), 1);
  const std::string call =
      R"({"context": "c", "input": "Of func_x(1) and func_2, please give me func_1(-4).", "answer": [-7]})";
  EXPECT_EQ(Read("code_run", call)->fields.at("func_call"), "func_1(-4)");
  EXPECT_EQ(Read("code_run", call)->fields.at("func"), "func_1");
  EXPECT_EQ(Judge("code_run", call, "it is -7"), 1);
  for (const char* line :
       {R"({"context": "1+2-1", "answer": [1, 3, 2]})", R"({"context": "c", "answer": [[1, 3, 2]]})"}) {
    EXPECT_DOUBLE_EQ(Judge("math_calc", line, "[1, 3, 0]"), 2.0 / 3) << line;
  }
}

TEST(InfiniteBench, BooksAndDialogues) {
  const std::string line = R"({"context": "c", "input": "q", "answer": ["Ada Lovelace", "Ada"]})";
  EXPECT_DOUBLE_EQ(Judge("longbook_qa_eng", line, "ada"), 1);
  EXPECT_DOUBLE_EQ(Judge("longbook_sum_eng", line, "Ada"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(
      Judge("longbook_qa_chn", R"({"context": "c", "input": "q", "answer": ["北京"]})", "北京。"), 1);
  EXPECT_EQ(Judge("longdialogue_qa_eng", R"({"context": "c", "input": "", "answer": ["ADA"]})", "It is Ada."),
            1);
}

TEST(InfiniteBench, WhatALineLacksIsNamed) {
  const auto problem = [](std::string_view dataset, const char* line) {
    return Read(dataset, line).error().message;
  };
  EXPECT_EQ(problem("passkey", R"({"input": "q", "answer": "1"})"), "has no \"context\"");
  EXPECT_EQ(problem("passkey", R"({"context": "c", "input": "q"})"), "has no \"answer\"");
  EXPECT_EQ(problem("passkey", R"({"context": "c", "answer": []})"), "\"answer\" is empty");
  EXPECT_EQ(problem("passkey", R"({"context": "c", "answer": [["1"], "2"]})"), "\"answer\" is no string");
  EXPECT_EQ(problem("code_run", R"j({"context": "c", "input": "func_1(2)", "answer": "x"})j"),
            "\"answer\" is no number");
  EXPECT_EQ(problem("code_run", R"({"context": "c", "input": "f", "answer": 1})"),
            "\"input\" names no call as \"func_1(2)\"");
  EXPECT_EQ(problem("math_find", R"({"context": "c", "input": "f", "answer": 1})"),
            "\"input\" does not say which number is asked for");
  EXPECT_EQ(problem("kv_retrieval", R"({"context": "c", "input": "f", "answer": "x"})"),
            "\"input\" has no key in quotes");
  EXPECT_EQ(problem("code_debug", R"({"context": "c", "options": ["a"], "answer": "a"})"),
            "\"options\" are not four");
  EXPECT_EQ(problem("code_debug", R"({"context": "c", "options": ["a","b","c","d"], "answer": "e"})"),
            "\"answer\" is none of the options");
}

}  // namespace
}  // namespace longheads
