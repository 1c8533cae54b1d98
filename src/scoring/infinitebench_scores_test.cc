#include "scoring/infinitebench_scores.h"

#include <gtest/gtest.h>

#include <vector>

namespace longheads {
namespace {

constexpr auto kOfficial = InfiniteBenchScoring::kOfficial;
constexpr auto kInfLlm = InfiniteBenchScoring::kInfLlm;

TEST(InfiniteBenchScores, ValueIsAWholeWord) {
  const std::string_view value = "49c65968-6319-44fc-b286-feb249694b07";
  EXPECT_TRUE(NamesValue("The value is \"49c65968-6319-44fc-b286-feb249694b07\".", value));
  EXPECT_FALSE(NamesValue("49c65968-6319-44fc-b286-feb249694b07a", value));
  EXPECT_FALSE(NamesValue("(49c65968-6319-44fc-b286-feb249694b07)", value));  // brackets are not taken away
}

bool Chooses(std::string_view prediction, InfiniteBenchScoring scoring = kOfficial) {
  return ChoosesOption(prediction, 'B', "The butler", scoring);
}

TEST(InfiniteBenchScores, FirstCharacterChoosesAnOption) {
  EXPECT_TRUE(Chooses("B"));
  EXPECT_TRUE(Chooses("Because of the rain"));
  EXPECT_FALSE(Chooses("A. The answer is B"));
  EXPECT_FALSE(Chooses(""));  // officially an error
}

TEST(InfiniteBenchScores, ThenTheAnswersPhrase) {
  EXPECT_TRUE(Chooses("The answer is: B"));
  EXPECT_TRUE(Chooses("the answer is B, not A"));
  EXPECT_TRUE(Chooses("I think the answer is The butler."));
  EXPECT_FALSE(Chooses("the answer is C or B"));
  EXPECT_FALSE(Chooses("the answer is:"));
  EXPECT_FALSE(Chooses("the answer is:B"));              // one character is left out
  EXPECT_TRUE(Chooses("it is not C, the option is B"));  // the phrase goes before a lone letter
}

TEST(InfiniteBenchScores, ThenTheFirstLoneLetter) {
  EXPECT_TRUE(Chooses("(x) B is right, not C"));
  EXPECT_FALSE(Chooses("neither AB nor B"));  // AB is out of ABCD, and wrong
  EXPECT_FALSE(Chooses("I do not know"));
}

TEST(InfiniteBenchScores, InfLlmTakesAnyCharacterOfTheOptionBehindAPhrase) {
  EXPECT_TRUE(Chooses("the answer is the cook", kInfLlm));
  EXPECT_FALSE(Chooses("the answer is the cook", kOfficial));
  EXPECT_FALSE(Chooses("the answer is C", kInfLlm));
}

double Debug(std::string_view prediction, InfiniteBenchScoring scoring = kOfficial) {
  return CodeDebugScore(prediction, 'C', "parse_line", scoring);
}

TEST(InfiniteBenchScores, BuggyFunctionIsNamedByLetterOrName) {
  EXPECT_EQ(Debug("C. parse_line"), 1);
  EXPECT_EQ(Debug("C: since"), 1);
  EXPECT_EQ(Debug("C"), 0);  // neither point nor colon
  EXPECT_EQ(Debug("The answer is: C"), 1);
  EXPECT_EQ(Debug("The answer is: `parse_line`"), 1);  // the backtick became a space, and two spaces are one
  EXPECT_EQ(Debug("The answer is: Option C"), 1);
  EXPECT_EQ(Debug("The bug is: read_line"), 0);
  EXPECT_EQ(Debug("The answer is:"), 0);
  EXPECT_EQ(Debug("The answer is C"), 0);
}

TEST(InfiniteBenchScores, InfLlmTakesMorePhrasesAndGuesses) {
  EXPECT_EQ(Debug("The answer is C", kInfLlm), 1);
  EXPECT_EQ(Debug("The error is parse_line", kInfLlm), 1);
  EXPECT_EQ(Debug("The answer is A", kInfLlm), 0);
  EXPECT_EQ(Debug("Sorry", kInfLlm), 0.25);
  EXPECT_EQ(Debug("The bug is: A, the error is C", kInfLlm), 1);  // looks on behind the first phrase
  EXPECT_EQ(Debug("The bug is: A", kInfLlm), 0);                  // a phrase, so no guess
}

TEST(InfiniteBenchScores, LastWordIsTheReturnedInteger) {
  EXPECT_TRUE(ReturnsInteger("The return value is: -12.", -12));
  EXPECT_TRUE(ReturnsInteger("`7`\n", 7));
  EXPECT_FALSE(ReturnsInteger("It is 7, I think", 7));
  EXPECT_FALSE(ReturnsInteger("7.5", 7));
  EXPECT_FALSE(ReturnsInteger("", 0));
  EXPECT_FALSE(ReturnsInteger("-", 0));
  EXPECT_FALSE(ReturnsInteger("99999999999999999999", 9));
}

TEST(InfiniteBenchScores, FirstNumberIsFound) {
  EXPECT_TRUE(FindsInteger("It is 83, not 84", 83));
  EXPECT_TRUE(FindsInteger("-83", 83));
  EXPECT_FALSE(FindsInteger("83.5", 83));  // officially an error
  EXPECT_TRUE(FindsDecimal("about 83.5.", 83.5));
  EXPECT_TRUE(FindsDecimal("83.", 83));
  EXPECT_FALSE(FindsDecimal("none", 0));
}

TEST(InfiniteBenchScores, ValuesCountUpToTheFirstWrongOne) {
  const std::vector<int64_t> labels = {1, 4, 8, 5};
  EXPECT_DOUBLE_EQ(LeadingValuesScore("[1, 4, 8, 5]", labels), 1);
  EXPECT_DOUBLE_EQ(LeadingValuesScore("[1, 4, 9, 5]", labels), 0.5);
  EXPECT_DOUBLE_EQ(LeadingValuesScore("[1, 4", labels), 0.5);
  EXPECT_DOUBLE_EQ(LeadingValuesScore("", labels), 0);
  EXPECT_DOUBLE_EQ(LeadingValuesScore("[-3]", std::vector<int64_t>{-3}), 0);  // signs are not read
}

TEST(InfiniteBenchScores, CharactersNameIsAWord) {
  EXPECT_TRUE(NamesCharacter("Most likely Ebenezer.", "EBENEZER"));
  EXPECT_FALSE(NamesCharacter("Mrs Dalloway", "MRS DALLOWAY"));
  EXPECT_FALSE(NamesCharacter("Ebenezers", "EBENEZER"));
}

}  // namespace
}  // namespace longheads
