// How a text becomes a model's prompt: as a completion or in its chat template, with the tokens of an
// answer's beginning behind it. What the texts say is each experiment's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"

namespace longheads {

enum class PromptForm {
  kPlain,  // a completion: the model goes on with the text
  kChat,   // one user message in the model's template
};

std::string_view PromptFormName(PromptForm form);  // "plain", "chat"
std::optional<PromptForm> FindPromptForm(std::string_view name);

// "plain", "chat", or "auto": chat where the model has a template. One that is not known here is refused: it
// must not silently become a plain prompt.
Result<PromptForm> ResolvePromptForm(const std::string& form, const Engine& engine);

struct Prompt {
  std::vector<TokenId> tokens;
  // The first so many are the same in every prompt that shares its text with this one (a document, or what
  // stands before a key): worth to be kept while others come.
  int64_t n_common = 0;
};

// What is asked of a model.
struct PromptText {
  std::string shared = {};  // what other prompts begin with as well; may be empty
  std::string rest = {};
  // Put into the model's mouth: the answer goes on from here. A space or line break that sets it off from the
  // text is left out behind a template, which has its own.
  std::string answer_begin = {};
};

Result<Prompt> EncodePromptText(const Engine& engine, PromptForm form, const PromptText& text,
                                const CancelToken* cancel = nullptr);

// The tokens of `text` where it follows `context`.
Result<std::vector<TokenId>> EncodeAfter(const Tokenizer& tokenizer, const std::string& context,
                                         const std::string& text);

// The tokens of an answer where it follows a prompt that ends in a template.
Result<std::vector<TokenId>> EncodeAnswer(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt,
                                          const std::string& answer);

}  // namespace longheads
