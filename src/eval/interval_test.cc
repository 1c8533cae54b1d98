#include "eval/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longheads {
namespace {

// Values of R's prop.test(x, n, correct = FALSE) and of Wilson's formula by hand.
TEST(Interval, WilsonsIntervalHasItsKnownValues) {
  const Interval some = WilsonInterval(34.0 / 40, 40);
  EXPECT_NEAR(some.low, 0.7093, 5e-5);
  EXPECT_NEAR(some.high, 0.9294, 5e-5);
  const Interval all = WilsonInterval(1, 10);
  EXPECT_NEAR(all.low, 0.7225, 5e-5);
  EXPECT_DOUBLE_EQ(all.high, 1);
  const Interval none = WilsonInterval(0, 10);
  EXPECT_DOUBLE_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.2775, 5e-5);
  EXPECT_EQ(WilsonInterval(0, 0).high, 1);
}

TEST(Interval, OneQuestionADocumentIsWilsonsInterval) {
  ClusteredScores scores;
  for (int i = 0; i < 40; ++i) scores.Add(std::to_string(i), i < 34 ? 1 : 0);
  const Interval wilson = WilsonInterval(34.0 / 40, 40);
  EXPECT_NEAR(scores.ShareInterval().low, wilson.low, 1e-12);
  EXPECT_NEAR(scores.ShareInterval().high, wilson.high, 1e-12);
  EXPECT_EQ(scores.n_documents(), 40);
}

// Four questions that always fare alike are one draw each document.
TEST(Interval, QuestionsThatFareAlikeCountAsTheirDocuments) {
  ClusteredScores scores;
  for (int document = 0; document < 10; ++document) {
    for (int question = 0; question < 4; ++question)
      scores.Add(std::to_string(document), document < 7 ? 1 : 0);
  }
  EXPECT_EQ(scores.n_samples(), 40);
  EXPECT_EQ(scores.n_documents(), 10);
  const Interval wilson = WilsonInterval(0.7, 10);
  EXPECT_NEAR(scores.ShareInterval().low, wilson.low, 1e-12);
  EXPECT_NEAR(scores.ShareInterval().high, wilson.high, 1e-12);
}

TEST(Interval, OneDocumentOrAllAlikeIsAsManyTrialsAsDocuments) {
  ClusteredScores one;
  for (int i = 0; i < 100; ++i) one.Add("book", i % 2);
  EXPECT_NEAR(one.ShareInterval().low, WilsonInterval(0.5, 1).low, 1e-12);
  ClusteredScores right;
  for (int i = 0; i < 20; ++i) right.Add(std::to_string(i / 2), 1);
  EXPECT_NEAR(right.ShareInterval().low, WilsonInterval(1, 10).low, 1e-12);
  EXPECT_EQ(ClusteredScores().ShareInterval().high, 1);
}

TEST(Interval, StandardErrorIsOfTheMean) {
  ClusteredScores scores;
  for (const double score : {1.0, 2.0, 3.0, 6.0}) scores.Add(std::to_string(score), score);
  EXPECT_DOUBLE_EQ(scores.mean(), 3);
  EXPECT_NEAR(scores.standard_error(), std::sqrt(14.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(scores.NormalInterval().high, 3 + 3.182446305 * std::sqrt(14.0 / 3) / 2, 0.01);
}

// Points of Student's t from any table of it.
TEST(Interval, FewScoresKnowTheirScatterRoughly) {
  for (const auto& [n, t] : {std::pair(2, 12.706205), std::pair(3, 4.302653), std::pair(4, 3.182446),
                             std::pair(6, 2.570582), std::pair(11, 2.228139), std::pair(31, 2.042272)}) {
    ClusteredScores scores;
    for (int i = 0; i < n; ++i) scores.Add(std::to_string(i), 5 + (i % 2));
    EXPECT_NEAR((scores.NormalInterval().high - scores.mean()) / scores.standard_error(), t, 2e-3 * t) << n;
  }
  ClusteredScores one;
  one.Add("book", 5);
  EXPECT_EQ(one.NormalInterval().high, 5);
  // Two shares that are near each other by chance do not make a narrow interval.
  ClusteredScores near;
  near.Add("a", 0.50), near.Add("b", 0.52);
  EXPECT_LT(near.ShareInterval().low, 0.40);
  EXPECT_GT(near.ShareInterval().high, 0.62);
  // Many do.
  ClusteredScores many;
  for (int i = 0; i < 200; ++i) many.Add(std::to_string(i), i % 2 == 0 ? 0.50 : 0.52);
  EXPECT_GT(many.ShareInterval().low, 0.508);
}

// Newcombe's example of 50 pairs: 36 right in both, 12 in the first alone, 2 in the second alone.
TEST(Interval, PairedSharesHaveNewcombesInterval) {
  ClusteredScores a, b;
  for (int i = 0; i < 50; ++i) {
    a.Add(std::to_string(i), i < 48 ? 1 : 0);
    b.Add(std::to_string(i), i < 36 || i >= 48 ? 1 : 0);
  }
  const double correlation = -24 / std::sqrt(48.0 * 2 * 38 * 12);
  const Interval interval = PairedShareInterval(a, b, correlation);
  EXPECT_NEAR(interval.low, 0.0569, 5e-5);
  EXPECT_NEAR(interval.high, 0.3404, 5e-5);
}

}  // namespace
}  // namespace longheads
