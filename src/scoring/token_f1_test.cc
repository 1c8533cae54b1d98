#include "scoring/token_f1.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

using Tokens = std::vector<std::u32string>;

TEST(TokenF1, NormalFormDropsPunctuationArticlesAndCase) {
  EXPECT_EQ(AnswerTokens("The  cat's (an) out-come."), (Tokens{U"cats", U"outcome"}));
  EXPECT_EQ(AnswerTokens("A. theatre, an-other"), (Tokens{U"theatre", U"another"}));
  EXPECT_TRUE(AnswerTokens("the").empty());
}

TEST(TokenF1, CountsRepeatedTokensAsOftenAsBothHaveThem) {
  EXPECT_DOUBLE_EQ(QaF1("Paris", "paris."), 1);
  EXPECT_DOUBLE_EQ(QaF1("in Paris", "Paris"), 2 * 0.5 / 1.5);
  EXPECT_DOUBLE_EQ(QaF1("no no no", "no no yes"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(QaF1("London", "Paris"), 0);
}

TEST(TokenF1, TwoEmptyAnswersScoreNothing) {
  EXPECT_DOUBLE_EQ(QaF1("", ""), 0);
  EXPECT_DOUBLE_EQ(QaF1("the", "the"), 0);
}

TEST(TokenF1, ChineseAnswersAreComparedByCharacter) {
  EXPECT_EQ(ChineseAnswerTokens("「北京」, the。"), (Tokens{U"北", U"京", U"t", U"h", U"e"}));
  EXPECT_DOUBLE_EQ(ChineseQaF1("北京市。", "北京"), 2 * (2.0 / 3) / (1 + 2.0 / 3));
}

}  // namespace
}  // namespace longheads
