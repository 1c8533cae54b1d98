// The default model's tokenizer against Hugging Face's `tokenizers`.
#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "model/gguf_vocabulary.h"
#include "tests/default_model/default_model.h"
#include "tokenizer/golden_cases.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace longheads {
namespace {

class DefaultModelTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    auto file = GgufFile::Open(DefaultModelPath());
    ASSERT_TRUE(file.has_value()) << file.error().message
                                  << "\nThese tests need the default model: run tools/setup/fetch_model.sh";
    auto vocabulary = ReadVocabulary(*file);
    ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
    auto tokenizer = Tokenizer::Create(std::move(*vocabulary));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    tokenizer_ = std::move(*tokenizer);
  }
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(DefaultModelTokenizer, GivesTheIdsOfHuggingFace) {
  const std::vector<GoldenCase> cases = ReadGoldenCases(GoldenPath("smollm2.jsonl"));
  EXPECT_GE(cases.size(), 2000u);
  for (const GoldenCase& golden : cases) {
    const auto ids = tokenizer_->Encode(golden.text, {.parse_special = golden.special});
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_TRUE(Matches(golden.expected, *ids))
        << golden.text.substr(0, 200) << "\n  gives    " << testing::PrintToString(*ids) << "\n  expected "
        << testing::PrintToString(golden.expected.ids);
  }
}

TEST_F(DefaultModelTokenizer, LosesOnlyTheBytesThatItReports) {
  for (const GoldenCase& golden : ReadGoldenCases(GoldenPath("smollm2.jsonl"))) {
    const auto ids = tokenizer_->Encode(golden.text, {.parse_special = golden.special});
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    const std::string text = ReplaceIllFormedUtf8(golden.text);
    if (*tokenizer_->BytesWithoutToken(text) == 0) {
      EXPECT_EQ(tokenizer_->Decode(*ids, /*special=*/true), text);
    } else {
      size_t n_bytes = 0;
      for (const TokenId id : *ids) n_bytes += tokenizer_->TokenBytes(id, /*special=*/true).size();
      EXPECT_EQ(n_bytes + *tokenizer_->BytesWithoutToken(text), text.size()) << text;
    }
  }
}

TEST_F(DefaultModelTokenizer, EndsAnAnswerAtTheEndOfATurnOrOfAText) {
  for (const char* end : {"<|im_end|>", "<|endoftext|>"}) {
    const auto ids = tokenizer_->Encode(end, {.parse_special = true, .add_special = true});
    ASSERT_TRUE(ids.has_value());
    ASSERT_EQ(ids->size(), 1u) << "this model adds neither BOS nor EOS";
    EXPECT_TRUE(tokenizer_->IsEndOfGeneration(ids->front())) << end;
  }
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(tokenizer_->vocabulary().bos));
}

}  // namespace
}  // namespace longheads
