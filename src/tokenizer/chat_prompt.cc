#include "tokenizer/chat_prompt.h"

#include <span>
#include <string>

#include "base/check.h"

namespace longheads {

namespace {

// Stands for words of the user's in a rendered prompt, where what stands before and after them is wanted.
constexpr std::string_view kMark = "\x01text\x02";
constexpr std::string_view kAnswerMark = "\x01answer\x02";

Result<std::string> Render(const Tokenizer& tokenizer, const ChatTemplate& chat,
                           std::span<const ChatMessage> messages) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto text_of = [&](TokenId id) -> std::string {
    return id == kNoToken ? "" : tokenizer.TokenBytes(id, /*special=*/true);
  };
  return chat.Render(messages, /*add_generation_prompt=*/true, text_of(vocabulary.bos),
                     text_of(vocabulary.eos));
}

Result<std::string> Render(const Tokenizer& tokenizer, const ChatTemplate& chat, std::string_view content) {
  const ChatMessage message{.role = "user", .content = std::string(content)};
  return Render(tokenizer, chat, std::span(&message, 1));
}

// `prompt`, of which [begin, end) are the user's words.
Result<std::vector<TokenId>> Encode(const Tokenizer& tokenizer, std::string_view prompt, std::size_t begin,
                                    std::size_t end, bool goes_on, const CancelToken* cancel) {
  return tokenizer.Encode(
      prompt, {.parse_special = true, .literal = {begin, end}, .goes_on = goes_on, .cancel = cancel});
}

void AddBos(const Tokenizer& tokenizer, const ChatTemplate& chat, std::vector<TokenId>& ids) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (!chat.writes_bos() && vocabulary.add_bos && vocabulary.bos != kNoToken) {
    ids.insert(ids.begin(), vocabulary.bos);
  }
}

}  // namespace

Result<std::vector<TokenId>> EncodeChatPrompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                              std::string_view text, const CancelToken* cancel) {
  // What stands before and after the user's words is the same for any words; the words themselves may be
  // trimmed.
  LH_ASSIGN(const std::string frame, Render(tokenizer, chat, kMark));
  LH_ASSIGN(const std::string prompt, Render(tokenizer, chat, text));
  const std::size_t before = frame.rfind(kMark);
  LH_CHECK(before != std::string::npos);
  const std::size_t after = frame.size() - before - kMark.size();
  LH_CHECK(before + after <= prompt.size());
  LH_ASSIGN(std::vector<TokenId> ids,
            Encode(tokenizer, prompt, before, prompt.size() - after, /*goes_on=*/false, cancel));
  AddBos(tokenizer, chat, ids);
  return ids;
}

Result<std::vector<TokenId>> EncodeChatOpening(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                               std::string_view text, const CancelToken* cancel) {
  LH_ASSIGN(const std::string frame, Render(tokenizer, chat, kMark));
  LH_ASSIGN(const std::string prompt, Render(tokenizer, chat, std::string(text) + std::string(kMark)));
  const std::size_t before = frame.rfind(kMark);
  const std::size_t end = prompt.rfind(kMark);
  LH_CHECK(before != std::string::npos && end != std::string::npos && before <= end);
  LH_ASSIGN(std::vector<TokenId> ids,
            Encode(tokenizer, prompt.substr(0, end), before, end, /*goes_on=*/false, cancel));
  AddBos(tokenizer, chat, ids);
  return ids;
}

Result<std::vector<TokenId>> EncodeChatEnding(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                              std::string_view words) {
  LH_ASSIGN(const std::string frame, Render(tokenizer, chat, kMark));
  LH_ASSIGN(const std::string prompt, Render(tokenizer, chat, std::string(kMark) + std::string(words)));
  const std::size_t before = frame.rfind(kMark);
  LH_CHECK(before != std::string::npos && prompt.size() >= frame.size());
  const std::size_t after = frame.size() - before - kMark.size();
  const std::string ending = prompt.substr(before + kMark.size());
  return Encode(tokenizer, ending, 0, ending.size() - after, /*goes_on=*/true, nullptr);
}

Result<std::vector<TokenId>> EncodeChatTurn(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                            std::string_view words) {
  const auto rendered = [&](std::string_view content) {
    const ChatMessage messages[] = {{.role = "user", .content = std::string(kMark)},
                                    {.role = "assistant", .content = std::string(kAnswerMark)},
                                    {.role = "user", .content = std::string(content)}};
    return Render(tokenizer, chat, messages);
  };
  LH_ASSIGN(const std::string frame, rendered(kMark));
  LH_ASSIGN(const std::string prompt, rendered(words));
  const std::size_t answer = frame.rfind(kAnswerMark);
  const std::size_t before = frame.rfind(kMark);
  LH_CHECK(answer != std::string::npos && before != std::string::npos && answer < before);
  const std::size_t from = answer + kAnswerMark.size();
  const std::size_t after = frame.size() - before - kMark.size();
  LH_CHECK(before + after <= prompt.size());
  return Encode(tokenizer, prompt.substr(from), before - from, prompt.size() - after - from, /*goes_on=*/true,
                nullptr);
}

}  // namespace longheads
