// Chat templates of the families we serve, recognised by their text (we run no Jinja) and rendered exactly as
// transformers' apply_chat_template renders them for messages without tools.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace longheads {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  // The template that a model file carries. How it is laid out does not matter: spaces, quotes, comments,
  // escapes and whitespace control are read as Jinja reads them. One that is not known is refused: the
  // message quotes its beginning and names --no-chat as the way out.
  static Result<ChatTemplate> Recognise(std::string_view text);

  // "chatml", "chatml-smollm2", "chatml-qwen2", "llama-2", "llama-3", "llama-3.1", "zephyr".
  std::string_view name() const { return name_; }

  // The prompt, special tokens as text (encode it with parse_special; it begins with BOS where the template
  // itself writes it, so encode without add_special in that case: see writes_bos). `bos` and `eos` are the
  // texts of these tokens. Refused are no messages at all, another role than the three, and an order that the
  // template refuses.
  // "llama-3.1" prints a date: the one its text has as a fallback, never today's (Llama 3.2 asks for today's
  // where it can), so that a prompt stays the same.
  Result<std::string> Render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                             std::string_view bos, std::string_view eos) const;
  bool writes_bos() const { return writes_bos_; }

 private:
  enum class Family;
  struct Form;
  ChatTemplate(Family family, std::string_view name, bool writes_bos, std::string preset)
      : family_(family), name_(name), writes_bos_(writes_bos), preset_(std::move(preset)) {}
  std::string RenderChatml(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
  static Result<std::string> RenderLlama2(std::span<const ChatMessage> messages, std::string_view bos,
                                          std::string_view eos);
  std::string RenderLlama3(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

  Family family_;
  std::string_view name_;
  bool writes_bos_;
  std::string preset_;  // what the text itself gives: a default system prompt, or a date
};

}  // namespace longheads
