#include "eval/prompt_reader.h"

#include <gtest/gtest.h>

#include "eval/task.h"
#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

std::string Document(int number, int n_words) {
  std::string text;
  uint32_t state = static_cast<uint32_t>(number);
  for (int i = 0; i < n_words; ++i) {
    state = state * 1664525 + 1013904223;
    text += std::to_string(state >> 24) + " ";
  }
  return text;
}

// Several questions to one document, then to another, then to the first again: the same bits as alone.
TEST(PromptReader, QuestionsToOneDocumentReadItOnceAndAreTheSameBits) {
  const TestDirectory directory;
  for (const std::string spec :
       {"full", "longheads,chunk=64,window=256,begin=256",
        "infllm,n_init=8,n_local=200,block=16,top_k=4,exec_block=100", "lm-infinite,local=200,top_k=5"}) {
    const auto engine = TinyEngine(directory, spec);
    ASSERT_TRUE(engine);
    PromptReader sharing(*engine, /*share=*/true);
    for (const int document : {1, 2, 1}) {
      for (int question = 0; question < 3; ++question) {
        const PromptText text{.shared = Document(document, 250),
                              .rest = "\nQuestion " + std::to_string(question * 7919) + "?",
                              .answer_begin = " Well,"};
        const auto prompt = EncodePromptText(*engine, PromptForm::kChat, text);
        ASSERT_TRUE(prompt);
        const int64_t n = static_cast<int64_t>(prompt->tokens.size());
        EXPECT_GT(prompt->n_common, n - 60);
        EXPECT_LT(prompt->n_common, n);
        PromptReader alone(*engine, /*share=*/false);
        const auto shared = sharing.Read(*prompt, nullptr, {});
        const auto anew = alone.Read(*prompt, nullptr, {});
        ASSERT_TRUE(shared && anew);
        EXPECT_EQ(shared->hidden, anew->hidden) << spec;
        EXPECT_EQ(shared->session.tokens(), prompt->tokens);
        const int64_t unit = engine->CallUnit();
        if (unit == 0) {
          EXPECT_EQ(shared->shared, 0);
        } else if (question > 0) {
          EXPECT_EQ(shared->shared, prompt->n_common / unit * unit) << spec << " " << document;
        }
      }
    }
  }
}

TEST(PromptReader, AnswersBeginFollowsTheTemplateWithoutItsBlank) {
  const TestDirectory directory;
  const auto engine = TinyEngine(directory, "full");
  const PromptText text{.rest = "Who?", .answer_begin = "\nAnswer:"};
  const auto decode = [&](PromptForm form) {
    const auto prompt = EncodePromptText(*engine, form, text);
    EXPECT_TRUE(prompt);
    EXPECT_EQ(prompt->n_common, 0);
    return engine->tokenizer().Decode(prompt->tokens, /*special=*/true);
  };
  EXPECT_TRUE(decode(PromptForm::kChat).ends_with("<|im_start|>assistant\nAnswer:"));
  EXPECT_TRUE(decode(PromptForm::kPlain).ends_with("Who?\nAnswer:"));
}

TEST(AnswerEnd, IsTheFirstStopBehindAnythingButBlanks) {
  EXPECT_EQ(AnswerEnd("one\ntwo", {"\n"}), 3u);
  EXPECT_EQ(AnswerEnd("\n one\ntwo", {"\n"}), 5u);
  EXPECT_EQ(AnswerEnd(" \n", {"\n"}), 2u);
  EXPECT_EQ(AnswerEnd("one two", {"\n"}), 7u);
  EXPECT_EQ(AnswerEnd("a. b\n", {"\n", "."}), 1u);
  EXPECT_EQ(AnswerEnd("", {"x"}), 0u);
}

}  // namespace
}  // namespace longheads
