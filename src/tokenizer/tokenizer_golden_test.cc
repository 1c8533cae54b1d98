// Ids against Hugging Face's `tokenizers` and sentencepiece, for the small vocabularies.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tokenizer/golden_cases.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace longheads {
namespace {

std::string Quote(std::string_view text) {
  return nlohmann::json(ReplaceIllFormedUtf8(text.substr(0, 200))).dump(-1, ' ', /*ensure_ascii=*/true);
}

void ExpectGolden(const Tokenizer& tokenizer, const GoldenCase& golden) {
  const auto ids = tokenizer.Encode(golden.text, {.parse_special = golden.special});
  ASSERT_TRUE(ids.has_value()) << ids.error().message;
  EXPECT_TRUE(Matches(golden.expected, *ids))
      << Quote(golden.text) << (golden.special ? " with special tokens" : "") << "\n  gives    "
      << testing::PrintToString(*ids) << "\n  expected " << testing::PrintToString(golden.expected.ids);
}

void ExpectRoundTrip(const Tokenizer& tokenizer, const GoldenCase& golden) {
  const auto ids = tokenizer.Encode(golden.text, {.parse_special = golden.special});
  ASSERT_TRUE(ids.has_value()) << ids.error().message;
  EXPECT_EQ(tokenizer.Decode(*ids, /*special=*/true), ReplaceIllFormedUtf8(golden.text))
      << Quote(golden.text);
}

class BpeGolden : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<const Tokenizer> MakeTokenizer() {
    Vocabulary vocabulary = ReadGoldenVocabulary(GoldenPath("bpe.json"));
    vocabulary.pre_tokenizer = GetParam();
    auto tokenizer = Tokenizer::Create(std::move(vocabulary));
    EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    return std::move(*tokenizer);
  }
};

TEST_P(BpeGolden, IdsEqualHuggingFaceAndTheRoundTripIsTheIdentity) {
  const auto tokenizer = MakeTokenizer();
  size_t n_cases = 0;
  for (const GoldenCase& golden : ReadGoldenCases(GoldenPath("bpe.jsonl"))) {
    std::istringstream names(golden.names);
    bool is_ours = false;
    for (std::string name; names >> name;) is_ours |= name == GetParam();
    if (!is_ours) continue;
    ++n_cases;
    ExpectGolden(*tokenizer, golden);
    ExpectRoundTrip(*tokenizer, golden);
  }
  EXPECT_GT(n_cases, 700u);
}

TEST(SpmGolden, IdsEqualSentencepieceAndTheRoundTripIsTheIdentity) {
  const auto tokenizer = Tokenizer::Create(ReadGoldenVocabulary(GoldenPath("spm.json")));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const std::vector<GoldenCase> cases = ReadGoldenCases(GoldenPath("spm.jsonl"));
  EXPECT_GT(cases.size(), 900u);
  for (const GoldenCase& golden : cases) {
    ExpectGolden(**tokenizer, golden);
    // U+2581 is how SPM writes a space, so it comes back as one; and the part after a control token keeps the
    // space that encoding puts in front of it.
    if (!golden.special && golden.text.find("\u2581") == std::string::npos)
      ExpectRoundTrip(**tokenizer, golden);
  }
}

std::string TestName(const testing::TestParamInfo<const char*>& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '-', '_');  // GoogleTest wants identifiers
  return name;
}

INSTANTIATE_TEST_SUITE_P(PreTokenizers, BpeGolden,
                         testing::Values("smollm", "llama-bpe", "qwen2", "gpt-2", "default"), TestName);

}  // namespace
}  // namespace longheads
