#include "eval/passkey_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "eval/random.h"

namespace longheads {
namespace {

constexpr std::string_view kSentences[] = {"The grass is green.", "The sky is blue.", "The sun is yellow.",
                                           "Here we go.", "There and back again."};
constexpr int64_t kSentenceCount = std::size(kSentences);
constexpr std::string_view kQuestionPlain = "What is the pass key? The pass key is";
constexpr std::string_view kQuestionChat = "What is the pass key? Answer with the number only.";

// The first n sentences of the filler, which repeats without end.
std::string Filler(PasskeyFiller filler, int64_t n) {
  const char between_units = filler == PasskeyFiller::kLines ? '\n' : ' ';
  std::string text;
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) text += i % kSentenceCount == 0 ? between_units : ' ';
    text += kSentences[i % kSentenceCount];
  }
  return text;
}

std::string_view Question(PromptForm form) {
  return form == PromptForm::kPlain ? kQuestionPlain : kQuestionChat;
}

// The lines of the prompt. Filler after the key begins anew with the first sentence, as in the paper's code.
std::string PasskeyText(const PasskeyStyle& style, int64_t key, int64_t n_before, int64_t n_after) {
  const auto filler = [&](int64_t n) { return n == 0 ? "" : fmt::format("{}\n", Filler(style.filler, n)); };
  return fmt::format("{}\n{}{}\n{}{}", kPasskeyTask, filler(n_before), PasskeySentence(key), filler(n_after),
                     Question(style.form));
}

int64_t SentencesBefore(const PasskeyCase& c, int64_t n_sentences) {
  return std::llround(c.depth() * static_cast<double>(n_sentences));
}

}  // namespace

std::string_view PasskeyFillerName(PasskeyFiller filler) {
  return filler == PasskeyFiller::kLines ? "lines" : "line";
}

std::optional<PasskeyFiller> FindPasskeyFiller(std::string_view name) {
  for (const PasskeyFiller filler : {PasskeyFiller::kLines, PasskeyFiller::kLine}) {
    if (PasskeyFillerName(filler) == name) return filler;
  }
  return std::nullopt;
}

int64_t PasskeyDepthPpm(int64_t d, int64_t n) {
  return std::llround(1e6 * (static_cast<double>(d) + 0.5) / static_cast<double>(n));
}

int64_t PasskeyKey(uint64_t seed, const PasskeyCase& c) {
  uint64_t h = seed;
  for (const int64_t number : {c.length, c.depth_ppm, c.repeat}) {
    h = SplitMix64(h ^ static_cast<uint64_t>(number));
  }
  return 10000 + static_cast<int64_t>(h % 90000);
}

Result<Prompt> BuildPasskeyPrompt(const Engine& engine, const PasskeyStyle& style, const PasskeyCase& c,
                                  int64_t key, const CancelToken* cancel) {
  const bool chat = style.form == PromptForm::kChat;
  const auto encode = [&](int64_t n_sentences) {
    const int64_t n_before = SentencesBefore(c, n_sentences);
    return engine.EncodePrompt(PasskeyText(style, key, n_before, n_sentences - n_before), chat, cancel);
  };
  const auto off = [&](const std::vector<TokenId>& tokens) {
    return std::llabs(static_cast<int64_t>(tokens.size()) - c.length);
  };

  constexpr int64_t kProbe = 20 * kSentenceCount;
  LH_ASSIGN(const std::vector<TokenId> frame, encode(0));
  LH_ASSIGN(const std::vector<TokenId> probe, encode(kProbe));
  const double tokens_per_sentence =
      std::max(1.0, static_cast<double>(probe.size() - frame.size()) / static_cast<double>(kProbe));
  const int64_t room = c.length - static_cast<int64_t>(frame.size());
  if (room < 0) {
    return InvalidInput(
        fmt::format("--lengths {} is too short: without any filler the passkey prompt already takes {} "
                    "tokens of this model",
                    c.length, frame.size()));
  }
  // Sentences have nearly equal lengths: a few corrected guesses are there.
  int64_t n_sentences = std::llround(static_cast<double>(room) / tokens_per_sentence);
  LH_ASSIGN(std::vector<TokenId> tokens, encode(n_sentences));
  for (int round = 0; round < 8; ++round) {
    const double missing = static_cast<double>(c.length - static_cast<int64_t>(tokens.size()));
    const int64_t step = std::llround(missing / tokens_per_sentence);
    if (step == 0 || n_sentences + step < 0) break;
    n_sentences += step;
    LH_ASSIGN(tokens, encode(n_sentences));
  }
  for (const int64_t neighbour : {n_sentences - 1, n_sentences + 1}) {
    if (neighbour < 0) continue;
    LH_ASSIGN(std::vector<TokenId> other, encode(neighbour));
    if (off(other) >= off(tokens)) continue;
    tokens = std::move(other);
    n_sentences = neighbour;
  }
  if (off(tokens) * 100 > c.length) {
    return InvalidInput(
        fmt::format("--lengths {} is too short: the prompt must come within 1% of it in whole sentences, and "
                    "the nearest takes {} tokens of this model",
                    c.length, tokens.size()));
  }

  // Until where the prompt is what it would be with the key further behind.
  const int64_t n_before = SentencesBefore(c, n_sentences);
  LH_ASSIGN(const std::vector<TokenId> keyless,
            engine.EncodePrompt(
                fmt::format("{}\n{}", kPasskeyTask, Filler(style.filler, n_before + kSentenceCount)), chat,
                cancel));
  Prompt prompt{.tokens = std::move(tokens)};
  prompt.n_common =
      std::mismatch(prompt.tokens.begin(), prompt.tokens.end(), keyless.begin(), keyless.end()).first -
      prompt.tokens.begin();
  return prompt;
}

Result<std::vector<TokenId>> ForcedPasskeyAnswer(const Engine& engine, PromptForm form, const Prompt& prompt,
                                                 int64_t key) {
  const Tokenizer& tokenizer = engine.tokenizer();
  if (form == PromptForm::kPlain) {
    return EncodeAfter(tokenizer, std::string(kQuestionPlain), fmt::format(" {}", key));
  }
  return EncodeAnswer(tokenizer, prompt.tokens, fmt::format("The pass key is {}.", key));
}

std::string PasskeySentence(int64_t key) {
  return fmt::format("The pass key is {0}. Remember it. {0} is the pass key.", key);
}

bool AnswersPasskey(std::string_view answer, int64_t key) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t begin = answer.find_first_of(kDigits);
  if (begin == std::string_view::npos) return false;
  const std::size_t end = answer.find_first_not_of(kDigits, begin);
  return answer.substr(begin, end - begin) == fmt::format("{}", key);  // npos - begin reaches the end
}

}  // namespace longheads
