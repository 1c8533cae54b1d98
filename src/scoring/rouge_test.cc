#include "scoring/rouge.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

constexpr double kNear = 1e-7;  // the definition itself has 1e-8 in a denominator

TEST(Rouge, UnionOfSubsequencesOfTheDefinitionsOwnExample) {
  // Reference w1..w5; with the first sentence it shares w1 w2, with the second w1 w3 w5: four words of five,
  // and of the eight different ones of the prediction.
  const double recall = 4.0 / 5;
  const double precision = 4.0 / 8;
  EXPECT_NEAR(RougeL("w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", "w1 w2 w3 w4 w5"),
              2 * recall * precision / (recall + precision), kNear);
}

TEST(Rouge, WordsCountOnceHoweverOftenTheyOccur) {
  EXPECT_NEAR(RougeL("yes yes yes yes", "yes"), 1, kNear);
  EXPECT_DOUBLE_EQ(RougeLsum("yes yes yes yes", "yes"), 2 * 0.25 / 1.25);
}

TEST(Rouge, OrderMattersWithinASentence) {
  EXPECT_NEAR(RougeL("c b a", "a b c"), 1.0 / 3, kNear);
  EXPECT_NEAR(RougeL("c. b. a", "a b c"), 1, kNear);  // each word is a sentence of its own
}

TEST(Rouge, AFullStopEndsASentenceAlsoInANumber) {
  EXPECT_NEAR(RougeL("3.5", "5.3"), 1, kNear);
  EXPECT_DOUBLE_EQ(RougeLsum("3.5", "5.3"), 0.5);
}

TEST(Rouge, LongBenchsKeepsCaseAndPunctuationWhichTheOtherDrops) {
  EXPECT_NEAR(RougeL("Paris, now", "paris now"), 0.5, kNear);
  EXPECT_DOUBLE_EQ(RougeLsum("Paris, now", "paris now"), 1);
}

TEST(Rouge, ASentenceOfSpacesHasTheEmptyWord) {
  EXPECT_NEAR(RougeL("a. ", "b. "), 0.5, kNear);  // "" is common, a and b are not
}

TEST(Rouge, NothingScoresNothing) {
  EXPECT_DOUBLE_EQ(RougeL("", "a"), 0);
  EXPECT_DOUBLE_EQ(RougeL("...", "a"), 0);  // where the package throws and LongBench counts 0
  EXPECT_DOUBLE_EQ(RougeL("a", "."), 0);
  EXPECT_DOUBLE_EQ(RougeLsum("", "a"), 0);
  EXPECT_DOUBLE_EQ(RougeLsum("北京", "北京"), 0);  // no token is left
}

TEST(Rouge, LinesAreSentencesForInfiniteBench) {
  EXPECT_DOUBLE_EQ(RougeLsum("c b a", "a b c"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(RougeLsum("c\nb\na", "a b c"), 1);
}

}  // namespace
}  // namespace longheads
