#include "model/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include "tests/support/gguf_builder.h"

namespace longheads {
namespace {

using Strings = std::vector<std::string>;
using Ids = std::vector<TokenId>;

GgufBuilder Bpe() {
  GgufBuilder builder;
  builder.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.pre", "smollm")
      .Set("tokenizer.ggml.tokens", Strings({"<|endoftext|>", "a", "b", "ab", "<|im_end|>"}))
      .Set("tokenizer.ggml.token_type", std::vector<int32_t>({3, 1, 1, 1, 3}))
      .Set("tokenizer.ggml.merges", Strings({"a b"}))
      .Set("tokenizer.ggml.bos_token_id", uint32_t{0})
      .Set("tokenizer.ggml.eos_token_id", uint32_t{4});
  return builder;
}

GgufBuilder Spm() {
  GgufBuilder builder;
  builder.Set("tokenizer.ggml.model", "llama")
      .Set("tokenizer.ggml.tokens", Strings({"<unk>", "<s>", "</s>", "a"}))
      .Set("tokenizer.ggml.token_type", std::vector<int32_t>({2, 3, 3, 1}))
      .Set("tokenizer.ggml.scores", std::vector<float>({0, 0, 0, -1.5f}));
  return builder;
}

Result<Vocabulary> Read(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.Build();
  LH_ASSIGN(const GgufFile file, GgufFile::Parse(bytes, "test.gguf"));
  return ReadVocabulary(file);
}

Vocabulary ReadGood(const GgufBuilder& builder) {
  auto vocabulary = Read(builder);
  EXPECT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  return vocabulary.value_or(Vocabulary());
}

TEST(GgufVocabulary, BpeKeysAreRead) {
  const Vocabulary vocabulary = ReadGood(Bpe());
  EXPECT_EQ(vocabulary.model, Vocabulary::Model::kBpe);
  EXPECT_EQ(vocabulary.pre_tokenizer, "smollm");
  EXPECT_EQ(vocabulary.tokens.size(), 5u);
  EXPECT_EQ(vocabulary.types[4], TokenType::kControl);
  EXPECT_EQ(vocabulary.merges, Strings({"a b"}));
  EXPECT_EQ(vocabulary.bos, 0);
  EXPECT_EQ(vocabulary.eos, 4);
  EXPECT_EQ(vocabulary.unknown, kNoToken);
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_EQ(vocabulary.end_of_generation, Ids({4, 0})) << "EOS, then the control tokens known to end a text";
  EXPECT_TRUE(Tokenizer::Create(vocabulary).has_value());
}

TEST(GgufVocabulary, MissingKeysHaveTheDefaultsOfLlamaCpp) {
  Vocabulary spm = ReadGood(Spm());
  EXPECT_EQ(spm.model, Vocabulary::Model::kSpm);
  EXPECT_EQ(spm.unknown, 0);
  EXPECT_EQ(spm.bos, 1);
  EXPECT_EQ(spm.eos, 2);
  EXPECT_TRUE(spm.add_bos);
  EXPECT_FALSE(spm.add_eos);
  EXPECT_TRUE(spm.add_space_prefix);
  EXPECT_EQ(spm.scores[3], -1.5f);
  EXPECT_TRUE(Tokenizer::Create(spm).has_value());

  GgufBuilder without_pre;
  without_pre.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.tokens", Strings({"a"}))
      .Set("tokenizer.ggml.merges", Strings());
  EXPECT_EQ(ReadGood(without_pre).pre_tokenizer, "default");
  without_pre.Set("tokenizer.ggml.pre", "llama-bpe");
  EXPECT_FALSE(ReadGood(without_pre).add_bos) << "there is no BOS to add";
  without_pre.Set("tokenizer.ggml.bos_token_id", uint32_t{0});
  EXPECT_TRUE(ReadGood(without_pre).add_bos);
}

TEST(GgufVocabulary, MarkersOfTemplatesAreControlTokensWhateverTheFileCallsThem) {
  GgufBuilder builder;
  builder.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.tokens", Strings({"<|im_start|>", "<|im_end|>", "<|user|>", "a", "b"}))
      .Set("tokenizer.ggml.token_type", std::vector<int32_t>({4, 1, 4, 0, 1}))
      .Set("tokenizer.ggml.merges", Strings());
  const Vocabulary vocabulary = ReadGood(builder);
  EXPECT_EQ(vocabulary.types,
            (std::vector<TokenType>{TokenType::kControl, TokenType::kControl, TokenType::kUserDefined,
                                    TokenType::kNormal, TokenType::kNormal}));
  EXPECT_EQ(vocabulary.end_of_generation, Ids({1}));
}

TEST(GgufVocabulary, Llama3IsKnownWhereAnOldFileDoesNotNameItsPreTokenizer) {
  GgufBuilder builder;
  builder.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.tokens", Strings({"a", "<|begin_of_text|>", "<|eot_id|>"}))
      .Set("tokenizer.ggml.token_type", std::vector<int32_t>({1, 3, 3}))
      .Set("tokenizer.ggml.merges", Strings())
      .Set("tokenizer.ggml.bos_token_id", uint32_t{1});
  const Vocabulary vocabulary = ReadGood(builder);
  EXPECT_EQ(vocabulary.pre_tokenizer, "llama-bpe");
  EXPECT_TRUE(vocabulary.add_bos);
}

TEST(GgufVocabulary, KeysOverrideTheDefaults) {
  const Vocabulary vocabulary = ReadGood(Spm()
                                             .Set("tokenizer.ggml.add_bos_token", false)
                                             .Set("tokenizer.ggml.add_eos_token", true)
                                             .Set("tokenizer.ggml.add_space_prefix", false)
                                             .Set("tokenizer.ggml.eot_token_id", uint32_t{3})
                                             .Set("tokenizer.ggml.unknown_token_id", int32_t{-1}));
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.add_eos);
  EXPECT_FALSE(vocabulary.add_space_prefix);
  EXPECT_EQ(vocabulary.unknown, kNoToken);
  EXPECT_EQ(vocabulary.end_of_generation, Ids({2, 3}));
}

TEST(GgufVocabulary, WhatContradictsItselfIsRefusedWithTheFileAndTheKey) {
  const auto refuses = [](const GgufBuilder& builder, std::string_view words) {
    const auto vocabulary = Read(builder);
    ASSERT_FALSE(vocabulary.has_value()) << words;
    EXPECT_NE(vocabulary.error().message.find(words), std::string::npos) << vocabulary.error().message;
    EXPECT_NE(vocabulary.error().message.find("test.gguf"), std::string::npos) << vocabulary.error().message;
  };
  refuses(GgufBuilder(), "tokenizer.ggml.model");
  refuses(GgufBuilder().Set("tokenizer.ggml.model", "rwkv"), "rwkv");
  refuses(GgufBuilder().Set("tokenizer.ggml.model", "gpt2"), "tokenizer.ggml.tokens");
  refuses(GgufBuilder().Set("tokenizer.ggml.model", "gpt2").Set("tokenizer.ggml.tokens", Strings({"a"})),
          "tokenizer.ggml.merges");
  refuses(GgufBuilder().Set("tokenizer.ggml.model", "llama").Set("tokenizer.ggml.tokens", Strings({"a"})),
          "tokenizer.ggml.scores");
  const auto spm = [](std::vector<int32_t> types, std::vector<float> scores) {
    GgufBuilder builder;
    builder.Set("tokenizer.ggml.model", "llama")
        .Set("tokenizer.ggml.tokens", Strings({"<unk>", "a"}))
        .Set("tokenizer.ggml.token_type", types)
        .Set("tokenizer.ggml.scores", scores);
    return builder;
  };
  refuses(spm({2}, {0, 0}), "tokenizer.ggml.token_type has 1 entries for 2 tokens");
  refuses(spm({2, 1}, {0}), "tokenizer.ggml.scores has 1 entries for 2 tokens");
  refuses(spm({2, 7}, {0, 0}), "type 7");
  refuses(spm({2, -1}, {0, 0}), "type -1");
  refuses(spm({2, 1}, {0, 0}).Set("tokenizer.ggml.eot_token_id", uint32_t{2}), "only 2 tokens");
  refuses(spm({2, 1}, {0, 0}).Set("tokenizer.ggml.bos_token_id", int32_t{-5}), "-5");
  refuses(spm({2, 1}, {0, 0}).Set("tokenizer.ggml.eos_token_id", uint64_t{1} << 40), "only 2 tokens");
  refuses(spm({2, 1}, {0, 0}).Set("tokenizer.ggml.add_bos_token", "yes"), "tokenizer.ggml.add_bos_token");
}

TEST(GgufVocabulary, TheChatTemplateIsItsTextOrNone) {
  const auto read = [](const GgufBuilder& builder) {
    const std::vector<std::byte> bytes = builder.Build();
    auto file = GgufFile::Parse(bytes, "test.gguf");
    EXPECT_TRUE(file.has_value());
    return ReadChatTemplateText(*file);
  };
  EXPECT_EQ(read(Bpe()).value(), std::nullopt);
  EXPECT_EQ(read(Bpe().Set("tokenizer.chat_template", "{{ messages }}")).value(), "{{ messages }}");
  EXPECT_FALSE(read(Bpe().Set("tokenizer.chat_template", int32_t{1})).has_value());
}

}  // namespace
}  // namespace longheads
