#include "scoring/code_points.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

TEST(CodePoints, IllFormedBytesBecomeReplacementCharacters) {
  EXPECT_EQ(ToCodePoints("a\xff"
                         "b"),
            U"a\uFFFD"
            U"b");
  EXPECT_EQ(ToUtf8(ToCodePoints("né 東京")), "né 東京");
}

TEST(CodePoints, LowersAsPython) {
  EXPECT_EQ(Lowered(U"ÉCOLE Übung"), U"école übung");
  EXPECT_EQ(Lowered(U"İ"), U"i\u0307");  // one code point becomes two
}

TEST(CodePoints, NoBreakSpaceIsWhiteSpaceAndZeroWidthSpaceIsNot) {
  EXPECT_EQ(SplitSpaces(U" a\u00a0b\u3000c\u200bd\x1f"),
            (std::vector<std::u32string>{U"a", U"b", U"c\u200bd"}));
  EXPECT_TRUE(SplitSpaces(U" \n").empty());
  EXPECT_EQ(Stripped(U"\t a b\n"), U"a b");
}

TEST(CodePoints, SplittingAtASeparatorKeepsEmptyParts) {
  EXPECT_EQ(SplitAt(U".a.", U'.'), (std::vector<std::u32string>{U"", U"a", U""}));
  EXPECT_EQ(SplitAt(U"", U'.'), (std::vector<std::u32string>{U""}));
}

TEST(CodePoints, DigitsOfEveryScriptMakeRuns) {
  EXPECT_EQ(DigitRuns(U"a12b٣٤ ²7"), (std::vector<std::u32string>{U"12", U"٣٤", U"7"}));
  EXPECT_TRUE(DigitRuns(U"none").empty());
}

TEST(CodePoints, CombiningMarksAreNoPartOfAWord) {
  EXPECT_TRUE(IsWord(U'é') && IsWord(U'_') && IsWord(U'京') && IsWord(U'½'));
  EXPECT_FALSE(IsWord(U'\u0301') || IsWord(U'-') || IsWord(U' '));
}

}  // namespace
}  // namespace longheads
