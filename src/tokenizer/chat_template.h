// Chat templates of the families we serve, recognised by their text (we run no Jinja) and rendered exactly as
// transformers' apply_chat_template renders them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace longheads {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  // The template that a model file carries. One that is not known is refused: the message quotes its
  // beginning and names --no-chat as the way out.
  static Result<ChatTemplate> Recognise(std::string_view text);

  // "chatml-smollm2", "chatml-qwen2", "llama-2", "llama-3", "zephyr", ...
  std::string_view name() const { return name_; }

  // The prompt, special tokens as text (encode it with parse_special; it begins with BOS where the template
  // itself writes it, so encode without add_special in that case: see writes_bos). `bos` and `eos` are the
  // texts of these tokens.
  Result<std::string> Render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                             std::string_view bos, std::string_view eos) const;
  bool writes_bos() const { return writes_bos_; }

 private:
  enum class Family;
  ChatTemplate(Family family, std::string_view name, bool writes_bos)
      : family_(family), name_(name), writes_bos_(writes_bos) {}
  Family family_;
  std::string_view name_;
  bool writes_bos_;
};

}  // namespace longheads
