#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace longheads {
namespace {

TEST(Utf8, EveryScalarValueIsWellFormedAndEverySurrogateIsNot) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    std::string text;
    AppendUtf8(code_point, text);
    const bool is_surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
    ASSERT_EQ(IsWellFormedUtf8(text), !is_surrogate) << static_cast<uint32_t>(code_point);
  }
}

// The examples of the Unicode Standard, section 3.9, and the neighbours of each limit.
TEST(Utf8, EachMaximalIllFormedPartBecomesOneReplacementCharacter) {
  const std::string r(kReplacementCharacter);
  const struct {
    std::string_view text;
    std::string repaired;
  } cases[] = {
      {"", ""},
      {"a\xC3\xA9", "a\xC3\xA9"},
      {"\x80", r},
      {"\xC0\xAF", r + r},
      {"\xC1\xBF", r + r},
      {"\xC3(", r + "("},
      {"\xE0\x9F\xBF", r + r + r},
      {"\xED\xA0\x80", r + r + r},
      {"\xE2\x82", r},
      {"\xE2\x82\x61", r + "a"},
      {"\xF0\x9F\x98", r},
      {"\xF0\x8F\xBF\xBF", r + r + r + r},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF5\x80", r + r},
      {"\xFF", r},
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a" + r + r + r + "b" + r + "c" + r + r + "d"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(ReplaceIllFormedUtf8(one.text), one.repaired) << testing::PrintToString(one.text);
    EXPECT_EQ(IsWellFormedUtf8(one.text), one.text == one.repaired);
  }
}

TEST(Utf8, OnlyACharacterThatMoreBytesCouldCompleteIsHeldBack) {
  EXPECT_EQ(CompleteUtf8Bytes(""), 0u);
  EXPECT_EQ(CompleteUtf8Bytes("ab"), 2u);
  EXPECT_EQ(CompleteUtf8Bytes("a\xC3"), 1u);
  EXPECT_EQ(CompleteUtf8Bytes("a\xC3\xA9"), 3u);
  EXPECT_EQ(CompleteUtf8Bytes("a\xF0\x9F\x98"), 1u);
  EXPECT_EQ(CompleteUtf8Bytes("\xF0\x9F\x98\x80"), 4u);
  EXPECT_EQ(CompleteUtf8Bytes("\x80\x80\x80\x80"), 4u);  // nothing completes these
  EXPECT_EQ(CompleteUtf8Bytes("a\xC0"), 2u);
  EXPECT_EQ(CompleteUtf8Bytes("a\xED\xA0"), 3u);
}

}  // namespace
}  // namespace longheads
