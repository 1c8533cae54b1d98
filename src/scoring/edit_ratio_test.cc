#include "scoring/edit_ratio.h"

#include <gtest/gtest.h>

#include <string>

namespace longheads {
namespace {

TEST(EditRatio, ReplacedCharacterCountsAsOneDroppedAndOnePutIn) {
  EXPECT_DOUBLE_EQ(IndelRatio("abcd", "abxd"), 6.0 / 8);
  EXPECT_DOUBLE_EQ(IndelRatio("", ""), 1);
  EXPECT_DOUBLE_EQ(IndelRatio("", "a"), 0);
}

TEST(EditRatio, LengthsAreInCharactersNotBytes) { EXPECT_DOUBLE_EQ(IndelRatio("é", "éa"), 2.0 / 3); }

TEST(EditRatio, BlocksAreNeverMoreThanASubsequenceAndDependOnTheOrder) {
  // fuzzywuzzy with and without python-Levenshtein: "tide" and "diet" share "de" or "it" or "ie" in order.
  EXPECT_DOUBLE_EQ(IndelRatio("tide", "diet"), 2.0 * 2 / 8);
  EXPECT_DOUBLE_EQ(MatchingBlocksRatio("tide", "diet"), 2.0 * 1 / 8);
  EXPECT_DOUBLE_EQ(MatchingBlocksRatio("diet", "tide"), 2.0 * 2 / 8);
}

TEST(EditRatio, TheLongestBlockIsTakenThoughItHidesMore) {
  // "cdefg" first; then nothing is left on either side though "ab" and "hi" are in both.
  const std::string a =
      "ab"
      "hi"
      "cdefg";
  const std::string b =
      "cdefg"
      "ab"
      "hi";
  EXPECT_DOUBLE_EQ(MatchingBlocksRatio(a, b), 2.0 * 5 / 18);
}

TEST(EditRatio, PopularCharactersOfALongTextStartNoBlock) {
  std::string b(200, 'x');
  b.front() = 'y';
  EXPECT_DOUBLE_EQ(MatchingBlocksRatio("x", b), 0);
  EXPECT_DOUBLE_EQ(IndelRatio("x", b), 2.0 / 201);
  b.pop_back();
  EXPECT_DOUBLE_EQ(MatchingBlocksRatio("x", b), 2.0 / 200);  // 199 characters: they do
  b.front() = 'x';
  b.push_back('x');
  EXPECT_DOUBLE_EQ(MatchingBlocksRatio("x", b),
                   2.0 / 201);  // the empty block at the beginning grows over them
}

TEST(EditRatio, PercentsAreWholeWithHalvesToTheEvenOne) {
  EXPECT_EQ(FuzzyPercent("a", "ab", EditRatio::kIndel), 67);
  EXPECT_EQ(FuzzyPercent("a", "abbbbbbbbbbbbbb", EditRatio::kIndel), 12);  // 12.5
  EXPECT_EQ(FuzzyPercent("", "", EditRatio::kIndel), 100);
  EXPECT_EQ(FuzzyPercent("", "a", EditRatio::kMatchingBlocks), 0);
}

}  // namespace
}  // namespace longheads
