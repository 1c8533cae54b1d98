// A user's message in a chat template, as token ids: what belongs to the template may be control tokens, what
// the user wrote stays text.
#pragma once

#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

// One message of the role "user" and the opening of the answer, with BOS where the template writes it or the
// vocabulary asks for it.
Result<std::vector<TokenId>> EncodeChatPrompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                              std::string_view text, const CancelToken* cancel = nullptr);

// The same prompt in two pieces, for a text that is read once and asked often: up to the end of the text, and
// the words after it (a blank line and a question) with the opening of the answer. Side by side they are the
// ids of the whole, where no token reaches over their border: the text should not end in white space, and the
// words begin with it.
Result<std::vector<TokenId>> EncodeChatOpening(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                               std::string_view text, const CancelToken* cancel = nullptr);
Result<std::vector<TokenId>> EncodeChatEnding(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                              std::string_view words);

// What follows an answer, without its end-of-turn token, where the user goes on: the end of the turn, the
// next message and the opening of its answer.
Result<std::vector<TokenId>> EncodeChatTurn(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                            std::string_view words);

}  // namespace longheads
