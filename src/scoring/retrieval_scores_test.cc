#include "scoring/retrieval_scores.h"

#include <gtest/gtest.h>

#include <vector>

namespace longheads {
namespace {

TEST(RetrievalScores, FirstIntegerIsTheFirstRunOfDigits) {
  EXPECT_EQ(FirstInteger(" 71432. The pass key"), "71432");
  EXPECT_EQ(FirstInteger("-07, 8"), "07");
  EXPECT_EQ(FirstInteger("7 1432"), "7");
  EXPECT_EQ(FirstInteger("key12"), "12");
  EXPECT_EQ(FirstInteger("none"), "");
}

TEST(RetrievalScores, ContainedPhrasesAreAShare) {
  const std::vector<std::string> phrases = {"Dolores Park", "sandwich"};
  EXPECT_DOUBLE_EQ(ShareContained("eat a Sandwich in Dolores Park", phrases, LetterCase::kDistinguished),
                   0.5);
  EXPECT_DOUBLE_EQ(ShareContained("eat a Sandwich in Dolores Park", phrases, LetterCase::kIgnored), 1);
  EXPECT_DOUBLE_EQ(ShareContained("", phrases, LetterCase::kIgnored), 0);
}

TEST(RetrievalScores, StarsAreReadFromTheList) {
  const std::vector<int64_t> stars = {3, 11, 20, 3};
  EXPECT_DOUBLE_EQ(CountingStarsRecall(R"({"little_penguin": [3, 11, 20, 3]})", stars), 1);
  EXPECT_DOUBLE_EQ(CountingStarsRecall("3, 11]} and 20", stars),
                   0.75);                                        // the prompt opened the list; both 3s count
  EXPECT_DOUBLE_EQ(CountingStarsRecall("[11, 2", stars), 0.25);  // cut off
  EXPECT_DOUBLE_EQ(CountingStarsRecall("I saw 5: [20]", stars), 0.25);
  EXPECT_DOUBLE_EQ(CountingStarsRecall("", stars), 0);
}

TEST(RetrievalScores, ListingEveryNumberGainsNothing) {
  const std::vector<int64_t> stars = {3, 5};
  EXPECT_DOUBLE_EQ(CountingStarsRecall("[1, 2, 3, 4, 5]", stars), 0);
  EXPECT_DOUBLE_EQ(CountingStarsRecall("[99999999999999999999, 5]", stars), 0.5);
}

}  // namespace
}  // namespace longheads
