#include "tokenizer/chat_prompt.h"

#include <span>
#include <string>

#include "base/check.h"

namespace longheads {

Result<std::vector<TokenId>> EncodeChatPrompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                              std::string_view text, const CancelToken* cancel) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto text_of = [&](TokenId id) -> std::string {
    return id == kNoToken ? "" : tokenizer.TokenBytes(id, /*special=*/true);
  };
  const auto render = [&](std::string_view content) {
    const ChatMessage message{.role = "user", .content = std::string(content)};
    return chat.Render(std::span(&message, 1), /*add_generation_prompt=*/true, text_of(vocabulary.bos),
                       text_of(vocabulary.eos));
  };
  // What stands before and after the user's words is the same for any words; the words themselves may be
  // trimmed.
  constexpr std::string_view kMark = "\x01text\x02";
  LH_ASSIGN(const std::string frame, render(kMark));
  LH_ASSIGN(const std::string prompt, render(text));
  const std::size_t before = frame.rfind(kMark);
  LH_CHECK(before != std::string::npos);
  const std::size_t after = frame.size() - before - kMark.size();
  LH_CHECK(before + after <= prompt.size());
  LH_ASSIGN(std::vector<TokenId> ids, tokenizer.Encode(prompt, {.parse_special = true,
                                                                .literal = {before, prompt.size() - after},
                                                                .cancel = cancel}));
  if (!chat.writes_bos() && vocabulary.add_bos && vocabulary.bos != kNoToken) {
    ids.insert(ids.begin(), vocabulary.bos);
  }
  return ids;
}

}  // namespace longheads
