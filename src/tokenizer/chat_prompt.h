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

}  // namespace longheads
