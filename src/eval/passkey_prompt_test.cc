#include "eval/passkey_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

class PasskeyPromptTest : public testing::Test {
 protected:
  std::string Text(const Prompt& prompt) const {
    return engine_->tokenizer().Decode(prompt.tokens, /*special=*/true);
  }

  TestDirectory directory_;
  std::unique_ptr<Engine> engine_ = TinyEngine(directory_, "full");
};

TEST_F(PasskeyPromptTest, LengthIsMetWithinOnePercent) {
  for (const PromptForm form : {PromptForm::kPlain, PromptForm::kChat}) {
    for (const int64_t length : {1500, 2000, 3333, 5000}) {
      for (int64_t d = 0; d < 3; ++d) {
        const PasskeyCase c{.length = length, .depth_ppm = PasskeyDepthPpm(d, 3)};
        const auto prompt = BuildPasskeyPrompt(*engine_, {.form = form}, c, 36695);
        ASSERT_TRUE(prompt) << prompt.error().message;
        EXPECT_LE(std::llabs(static_cast<int64_t>(prompt->tokens.size()) - length) * 100, length);
      }
    }
  }
}

TEST_F(PasskeyPromptTest, PlainFormIsTheTextOfThePaper) {
  const PasskeyCase c{.length = 2500, .depth_ppm = 500000};
  const auto prompt = BuildPasskeyPrompt(*engine_, {.form = PromptForm::kPlain}, c, 36695);
  ASSERT_TRUE(prompt) << prompt.error().message;
  const std::string text = Text(*prompt);
  EXPECT_TRUE(text.starts_with(
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize "
      "them. I will quiz you about the important information there.\nThe grass is green. The "
      "sky is blue. The sun is yellow. Here we go. There and back again.\nThe grass is green."))
      << text;
  EXPECT_NE(text.find(".\nThe pass key is 36695. Remember it. 36695 is the pass key.\nThe grass is green."),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with(".\nWhat is the pass key? The pass key is")) << text;
}

// As the paper's script writes it: the only line breaks are those round the key.
TEST_F(PasskeyPromptTest, FillerInOneLineBreaksOnlyAtTheKey) {
  const PasskeyCase c{.length = 2500, .depth_ppm = 500000};
  const auto prompt =
      BuildPasskeyPrompt(*engine_, {.form = PromptForm::kPlain, .filler = PasskeyFiller::kLine}, c, 36695);
  ASSERT_TRUE(prompt) << prompt.error().message;
  const std::string text = Text(*prompt);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_NE(text.find("There and back again. The grass is green."), std::string::npos) << text;
}

TEST_F(PasskeyPromptTest, ChatFormAsksInTheUsersTurnAndLeavesTheAnswersEmpty) {
  const PasskeyCase c{.length = 2500, .depth_ppm = 500000};
  const auto prompt = BuildPasskeyPrompt(*engine_, {.form = PromptForm::kChat}, c, 36695);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_TRUE(
      Text(*prompt).ends_with("\nWhat is the pass key? Answer with the number only.<|im_end|>\n"
                              "<|im_start|>assistant\n"))
      << Text(*prompt);
}

TEST_F(PasskeyPromptTest, KeyStandsAtItsDepth) {
  for (const int64_t depth_ppm : {0, 100000, 500000, 900000, 1000000}) {
    const PasskeyCase c{.length = 5000, .depth_ppm = depth_ppm};
    const auto prompt = BuildPasskeyPrompt(*engine_, {.form = PromptForm::kPlain}, c, 36695);
    ASSERT_TRUE(prompt) << prompt.error().message;
    const std::string text = Text(*prompt);
    const double at = static_cast<double>(text.find("\nThe pass key is 36695"));
    const double frame = 150;  // characters of the task line
    EXPECT_NEAR((at - frame) / (static_cast<double>(text.size()) - 250), c.depth(), 0.02);
  }
}

TEST_F(PasskeyPromptTest, CommonTokensEndBeforeTheKeyAndAreThoseOfLaterKeys) {
  const PasskeyCase early{.length = 3000, .depth_ppm = 300000};
  const PasskeyCase late{.length = 4000, .depth_ppm = 700000};
  const auto a = BuildPasskeyPrompt(*engine_, {.form = PromptForm::kChat}, early, 36695);
  const auto b = BuildPasskeyPrompt(*engine_, {.form = PromptForm::kChat}, late, 12345);
  ASSERT_TRUE(a && b);
  ASSERT_LT(a->n_common, b->n_common);
  EXPECT_TRUE(std::equal(a->tokens.begin(), a->tokens.begin() + a->n_common, b->tokens.begin()));
  const std::string before = engine_->tokenizer().Decode(
      std::span(a->tokens).first(static_cast<std::size_t>(a->n_common)), /*special=*/false);
  EXPECT_TRUE(before.ends_with("Here we go.") || before.ends_with("green.") || before.ends_with("blue.") ||
              before.ends_with("yellow.") || before.ends_with("again."))
      << before;
}

TEST_F(PasskeyPromptTest, LengthWithoutRoomIsRefused) {
  const auto none =
      BuildPasskeyPrompt(*engine_, {.form = PromptForm::kPlain}, {.length = 200, .depth_ppm = 500000}, 36695);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(none.error().message.find("--lengths 200 is too short"), std::string::npos);
}

TEST_F(PasskeyPromptTest, ForcedAnswerContinuesThePrompt) {
  const PasskeyCase c{.length = 2500, .depth_ppm = 500000};
  const auto plain = BuildPasskeyPrompt(*engine_, {.form = PromptForm::kPlain}, c, 36695);
  const auto chat = BuildPasskeyPrompt(*engine_, {.form = PromptForm::kChat}, c, 36695);
  ASSERT_TRUE(plain && chat);
  const auto after_plain = ForcedPasskeyAnswer(*engine_, PromptForm::kPlain, *plain, 36695);
  const auto after_chat = ForcedPasskeyAnswer(*engine_, PromptForm::kChat, *chat, 36695);
  ASSERT_TRUE(after_plain && after_chat);
  EXPECT_EQ(engine_->tokenizer().Decode(*after_plain, false), " 36695");
  EXPECT_EQ(engine_->tokenizer().Decode(*after_chat, false), "The pass key is 36695.");
}

TEST(PasskeyCase, KeysHaveFiveDigitsAndDependOnEverythingOfTheCase) {
  std::set<int64_t> keys;
  for (const uint64_t seed : {0, 1}) {
    for (const int64_t length : {4096, 8192}) {
      for (const int64_t depth_ppm : {250000, 750000}) {
        for (int64_t repeat = 0; repeat < 5; ++repeat) {
          const int64_t key = PasskeyKey(seed, {.length = length, .depth_ppm = depth_ppm, .repeat = repeat});
          EXPECT_GE(key, 10000);
          EXPECT_LE(key, 99999);
          keys.insert(key);
        }
      }
    }
  }
  EXPECT_GE(keys.size(), 39u);  // of 40 draws out of 90000
}

TEST(PasskeyCase, OneDepthIsTheMiddleAndSeveralAreEvenlySpaced) {
  EXPECT_EQ(PasskeyDepthPpm(0, 1), 500000);
  EXPECT_EQ(PasskeyDepthPpm(0, 5), 100000);
  EXPECT_EQ(PasskeyDepthPpm(4, 5), 900000);
}

TEST(PasskeyAnswer, IsRightWhenItsFirstIntegerIsTheKey) {
  EXPECT_TRUE(AnswersPasskey("36695", 36695));
  EXPECT_TRUE(AnswersPasskey("The pass key is 36695. 12345", 36695));
  EXPECT_FALSE(AnswersPasskey("12345 36695", 36695));
  EXPECT_FALSE(AnswersPasskey("366951", 36695));
  EXPECT_FALSE(AnswersPasskey("36,695", 36695));
  EXPECT_FALSE(AnswersPasskey("the key", 36695));
  EXPECT_FALSE(AnswersPasskey("", 36695));
}

}  // namespace
}  // namespace longheads
