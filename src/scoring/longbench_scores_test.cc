#include "scoring/longbench_scores.h"

#include <gtest/gtest.h>

#include <vector>

namespace longheads {
namespace {

using Names = std::vector<std::string>;

TEST(LongBenchScores, ClassesWhoseNameIsPartOfTheAnswersDoNotCount) {
  const Names classes = {"Date", "Birth Date", "City"};
  EXPECT_DOUBLE_EQ(ClassificationScore("Type: Birth Date", "Birth Date", classes), 1);
  EXPECT_DOUBLE_EQ(ClassificationScore("Type: Birth Date", "Date", classes),
                   0.5);  // the longer name is no part
  EXPECT_DOUBLE_EQ(ClassificationScore("Birth Date or City", "Birth Date", classes), 0.5);
  EXPECT_DOUBLE_EQ(ClassificationScore("City", "Date", classes), 0);
  EXPECT_DOUBLE_EQ(ClassificationScore("birth date", "Birth Date", classes), 0);  // case counts
}

TEST(LongBenchScores, OfficialLoopSkipsTheMatchAfterADeletedOne) {
  // "Date" is deleted at place 0, so "Birth" moves there and is not looked at: two matches stay.
  const Names classes = {"Date", "Birth", "Birth Date"};
  EXPECT_DOUBLE_EQ(ClassificationScore("Birth Date", "Birth Date", classes), 1);
  EXPECT_DOUBLE_EQ(ClassificationScore("Birth Date", "Birth Date", classes, LongBenchScoring::kOfficial),
                   0.5);
  // Not adjacent: both forms agree.
  const Names apart = {"Date", "Birth Date", "Birth"};
  EXPECT_DOUBLE_EQ(ClassificationScore("Birth Date", "Birth Date", apart, LongBenchScoring::kOfficial), 1);
}

TEST(LongBenchScores, CountsTheShareOfNumbersThatAreRight) {
  EXPECT_DOUBLE_EQ(CountScore("The answer is 5.", "5"), 1);
  EXPECT_DOUBLE_EQ(CountScore("5 of 12, that is 5", "5"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(CountScore("15 and 05", "5"), 0);  // compared as written
  EXPECT_DOUBLE_EQ(CountScore("five", "5"), 0);
  EXPECT_DOUBLE_EQ(CountScore("٥ 5", "5"), 0.5);  // a digit of another script is a number too
}

TEST(LongBenchScores, PassageNumberComesFromTheAnswersSentence) {
  EXPECT_DOUBLE_EQ(PassageRetrievalScore("Paragraph 12", "Paragraph 12"), 1);
  EXPECT_DOUBLE_EQ(PassageRetrievalScore("12, or Paragraph 1", "Paragraph 12"), 0.5);
  EXPECT_DOUBLE_EQ(PassageRetrievalScore("1", "Paragraph 12"), 0);
  EXPECT_DOUBLE_EQ(PassageRetrievalScore("1", "12"), 0);  // no answer of the official form
}

TEST(LongBenchScores, CodeIsTheFirstLineWithoutMarks) {
  EXPECT_DOUBLE_EQ(CodeSimilarityScore("\n\n```python\n# add\nreturn a + b\nmore", "return a + b"), 1);
  EXPECT_DOUBLE_EQ(CodeSimilarityScore("// only\n`x`", "return"), 0);
  EXPECT_DOUBLE_EQ(CodeSimilarityScore("", "return"), 0);
  EXPECT_DOUBLE_EQ(CodeSimilarityScore("// comment\n\nx", "x"),
                   0);  // the line between is empty, and it counts
  EXPECT_DOUBLE_EQ(CodeSimilarityScore("ab", "abc"), 0.8);
}

TEST(LongBenchScores, OfficialCodeSimilarityIsByBlocks) {
  EXPECT_DOUBLE_EQ(CodeSimilarityScore("tide", "diet"), 0.5);
  EXPECT_DOUBLE_EQ(CodeSimilarityScore("tide", "diet", LongBenchScoring::kOfficial), 0.25);
}

TEST(LongBenchScores, FirstLineSkipsNewlinesButNotSpaces) {
  EXPECT_EQ(FirstLine("\n\nyes\nno"), "yes");
  EXPECT_EQ(FirstLine(" \nno"), " ");
  EXPECT_EQ(FirstLine("\n"), "");
}

TEST(LongBenchScores, BestAnswerCounts) {
  EXPECT_DOUBLE_EQ(LongBenchScore(LongBenchMetric::kQaF1, "in Paris", Names{"London", "Paris", "in Paris"}),
                   1);
  EXPECT_DOUBLE_EQ(LongBenchScore(LongBenchMetric::kCount, "3", Names{"3"}), 1);
  EXPECT_DOUBLE_EQ(LongBenchScore(LongBenchMetric::kClassification, "a b", Names{"a"}, Names{"a", "b"}), 0.5);
  EXPECT_NEAR(LongBenchScore(LongBenchMetric::kRougeL, "a b", Names{"a b"}), 1, 1e-7);
  EXPECT_DOUBLE_EQ(LongBenchScore(LongBenchMetric::kQaF1, "Paris", {}), 0);
}

}  // namespace
}  // namespace longheads
