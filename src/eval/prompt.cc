#include "eval/prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace longheads {

std::string_view PromptFormName(PromptForm form) { return form == PromptForm::kPlain ? "plain" : "chat"; }

std::optional<PromptForm> FindPromptForm(std::string_view name) {
  for (const PromptForm form : {PromptForm::kPlain, PromptForm::kChat}) {
    if (PromptFormName(form) == name) return form;
  }
  return std::nullopt;
}

Result<PromptForm> ResolvePromptForm(const std::string& form, const Engine& engine) {
  if (form == "plain") return PromptForm::kPlain;
  if (engine.chat_template() != nullptr) return PromptForm::kChat;
  const bool has_template = engine.file().Find("tokenizer.chat_template") != nullptr;
  if (form == "auto" && !has_template) return PromptForm::kPlain;
  return Unsupported(fmt::format("the chat form needs a chat template that is known here; use --form plain{}",
                                 has_template ? fmt::format(" ({})", engine.chat_template_error()) : ""));
}

Result<Prompt> EncodePromptText(const Engine& engine, PromptForm form, const PromptText& text,
                                const CancelToken* cancel) {
  const bool chat = form == PromptForm::kChat;
  Prompt prompt;
  LH_ASSIGN(prompt.tokens,
            engine.EncodePrompt(text.shared + text.rest + (chat ? "" : text.answer_begin), chat, cancel));
  if (!text.shared.empty()) {
    // Where the texts part the last tokens may differ, and where one ends the template goes on.
    LH_ASSIGN(const std::vector<TokenId> shared, engine.EncodePrompt(text.shared, chat, cancel));
    prompt.n_common = std::ranges::mismatch(prompt.tokens, shared).in1 - prompt.tokens.begin();
  }
  if (chat && !text.answer_begin.empty()) {
    const std::size_t begin = std::min(text.answer_begin.find_first_not_of(" \n"), text.answer_begin.size());
    LH_ASSIGN(const std::vector<TokenId> answer,
              EncodeAnswer(engine.tokenizer(), prompt.tokens, text.answer_begin.substr(begin)));
    prompt.tokens.insert(prompt.tokens.end(), answer.begin(), answer.end());
  }
  return prompt;
}

Result<std::vector<TokenId>> EncodeAfter(const Tokenizer& tokenizer, const std::string& context,
                                         const std::string& text) {
  if (!context.empty()) {
    LH_ASSIGN(const std::vector<TokenId> before, tokenizer.Encode(context, {}));
    LH_ASSIGN(std::vector<TokenId> both, tokenizer.Encode(context + text, {}));
    if (before.size() < both.size() && std::equal(before.begin(), before.end(), both.begin())) {
      both.erase(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(before.size()));
      return both;
    }
  }
  return tokenizer.Encode(text, {});
}

Result<std::vector<TokenId>> EncodeAnswer(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt,
                                          const std::string& answer) {
  // An SPM vocabulary begins a text with a space: not so where the template ends in a line break.
  LH_CHECK(!prompt.empty());
  const std::string last = tokenizer.TokenBytes(prompt.back(), /*special=*/true);
  const bool new_line = !last.empty() && last.back() == '\n';
  return EncodeAfter(tokenizer, new_line ? "\n" : "", answer);
}

}  // namespace longheads
