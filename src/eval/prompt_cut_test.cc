#include "eval/prompt_cut.h"

#include <gtest/gtest.h>

#include <memory>

namespace longheads {
namespace {

// One token a byte, and <s> before a text.
std::unique_ptr<const Tokenizer> Bytes() {
  Vocabulary vocabulary;
  vocabulary.model = Vocabulary::Model::kSpm;
  vocabulary.tokens = {"<unk>", "<s>"};
  vocabulary.types = {TokenType::kUnknown, TokenType::kControl};
  for (int b = 0; b < 256; ++b) {
    char name[7];
    std::snprintf(name, sizeof(name), "<0x%02X>", b);
    vocabulary.tokens.emplace_back(name);
    vocabulary.types.push_back(TokenType::kByte);
  }
  vocabulary.scores.assign(vocabulary.tokens.size(), 0);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.add_bos = true;
  vocabulary.add_space_prefix = false;
  return *Tokenizer::Create(std::move(vocabulary));
}

Result<CutPrompt> Cut(std::string_view text, CutRule rule, int64_t limit, int64_t max_new = 0,
                      int64_t around = 0) {
  return CutToLimit(*Bytes(), text, 2, rule, limit, max_new, around, nullptr);
}

TEST(PromptCut, NothingIsDroppedInsideTheLimit) {
  const Result<CutPrompt> cut = Cut("abcdef", CutRule::kMiddle, 7);  // <s> counts
  EXPECT_EQ(cut->head, "ab");                                        // what is shared
  EXPECT_EQ(cut->tail, "cdef");
  EXPECT_EQ(cut->n_tokens, 7);
  EXPECT_EQ(cut->n_dropped, 0);
}

TEST(PromptCut, MiddleKeepsHalvesRoundedDown) {
  Result<CutPrompt> cut = Cut("abcdefgh", CutRule::kMiddle, 6);
  EXPECT_EQ(cut->head + "|" + cut->tail, "ab|fgh");  // <s> a b, f g h
  EXPECT_EQ(cut->n_dropped, 3);
  cut = Cut("abcdefgh", CutRule::kMiddle, 7);
  EXPECT_EQ(cut->head + "|" + cut->tail, "ab|fgh");
  cut = Cut("abcdefgh", CutRule::kMiddle, 8, /*max_new=*/100, /*around=*/4);
  EXPECT_EQ(cut->head + "|" + cut->tail, "a|gh");
}

TEST(PromptCut, DecodedAsOneACharacterThatTheHalvesCompleteIsOne) {
  const std::string text = "a\u00e9xyz\u00e9";  // each e acute is two bytes; kept: <s> a C3, A9 of the last
  EXPECT_EQ(Cut(text, CutRule::kMiddle, 2)->tail, "\uFFFD");
  const Result<CutPrompt> cut = Cut(text, CutRule::kMiddleAsOne, 6);  // <s> a C3 | z C3 A9
  EXPECT_EQ(cut->head + cut->tail, "a\uFFFDz\u00e9");
  const Result<CutPrompt> joined =
      Cut("a\u00e9xy\u00e9"
          "z",
          CutRule::kMiddleAsOne, 4);  // <s> a | A9 z
  EXPECT_EQ(joined->head + joined->tail, "a\uFFFDz");
}

TEST(PromptCut, SuffixKeeps128AndTheEnd) {
  const std::string text = std::string(200, 'a') + std::string(200, 'b');
  const Result<CutPrompt> cut = Cut(text, CutRule::kSuffix, 200, /*max_new=*/32);
  EXPECT_EQ(cut->head + cut->tail, std::string(127, 'a') + std::string(40, 'b'));
  EXPECT_EQ(cut->n_dropped, 401 - 168);
  EXPECT_EQ(Cut(text, CutRule::kSuffix, 433, 32)->n_dropped, 0);
  EXPECT_FALSE(Cut(text, CutRule::kSuffix, 160, 32));
  EXPECT_FALSE(Cut(text, CutRule::kMiddle, 4, 0, 4));
}

TEST(PromptCut, RulesHaveNames) {
  EXPECT_EQ(FindCutRule("middle"), CutRule::kMiddle);
  EXPECT_EQ(FindCutRule("suffix"), CutRule::kSuffix);
  EXPECT_FALSE(FindCutRule("left"));
}

}  // namespace
}  // namespace longheads
