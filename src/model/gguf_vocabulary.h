// The vocabulary and the chat template that a GGUF file carries (its tokenizer.* keys), checked against each
// other.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "formats/gguf.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

// Where a key is missing, llama.cpp's defaults hold: SPM begins with BOS, and so does "llama-bpe"; SPM puts a
// space in front; a BPE vocabulary without a pre-tokenizer has "default". What ends an answer is the file's
// EOS, EOT and EOM tokens and every control token known by its text to end a turn. Messages begin with the
// file's name.
Result<Vocabulary> ReadVocabulary(const GgufFile& file);

// The text of the chat template, for ChatTemplate::Recognise; none where the file has none.
Result<std::optional<std::string>> ReadChatTemplateText(const GgufFile& file);

}  // namespace longheads
