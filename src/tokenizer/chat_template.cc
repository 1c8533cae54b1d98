#include "tokenizer/chat_template.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tokenizer/jinja_canonical.h"
#include "tokenizer/utf8.h"

namespace longheads {

enum class ChatTemplate::Family { kChatml, kLlama2, kLlama3, kLlama3AlwaysPrompted, kLlama31, kZephyr };

// A template as it is published. "@@@" stands for any text: what is only reached with tools, or what the text
// sets.
struct ChatTemplate::Form {
  Family family;
  std::string_view name;
  bool writes_bos;
  int preset;  // which of the "@@@" is the preset, from 0; -1: none
  std::string_view text;
};

namespace {

constexpr std::string_view kAnything = "@@@";

// What a template may begin with and print nothing.
constexpr std::string_view kPrologue =
    R"({% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %})";

constexpr std::string_view kChatml =
    R"({% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + )"
    R"('<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

// SmolLM2, Qwen2.
constexpr std::string_view kChatmlWithDefault =
    R"({% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %})"
    R"({{ '<|im_start|>system\n@@@<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + )"
    R"(message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %})"
    R"({{ '<|im_start|>assistant\n' }}{% endif %})";

// Qwen2.5.
constexpr std::string_view kChatmlWithTools =
    R"({% if tools %}@@@{% else %}{% if messages[0]['role'] == 'system' %})"
    R"({{ '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}{% else %})"
    R"({{ '<|im_start|>system\n@@@<|im_end|>\n' }}{% endif %}{% endif %}{% for message in messages %})"
    R"({% if (message.role == "user") or (message.role == "system" and not loop.first) or )"
    R"((message.role == "assistant" and not message.tool_calls) %})"
    R"({{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{% elif @@@{% endif %})"
    R"({% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

constexpr std::string_view kLlama2 =
    R"({% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %})"
    R"({% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %})"
    R"({% set system_message = false %}{% endif %}{% for message in loop_messages %})"
    R"({% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('@@@') }}{% endif %})"
    R"({% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + )"
    R"('\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %})"
    R"({% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }})"
    R"({% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %})"
    R"({% endfor %})";

#define LH_LLAMA_3_MESSAGES                                                                              \
  R"({% set loop_messages = messages %}{% for message in loop_messages %})"                              \
  R"({% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + )"             \
  R"(message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + )" \
  R"(content %}{% endif %}{{ content }}{% endfor %})"
#define LH_LLAMA_3_PROMPT R"({{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }})"
constexpr std::string_view kLlama3 =
    LH_LLAMA_3_MESSAGES R"({% if add_generation_prompt %})" LH_LLAMA_3_PROMPT R"({% endif %})";
constexpr std::string_view kLlama3AlwaysPrompted = LH_LLAMA_3_MESSAGES LH_LLAMA_3_PROMPT;

// Llama 3.1 (and 3.3); 3.2 differs in where the date and the tools come from.
#define LH_LLAMA_3_1_BEGIN                                                                            \
  R"({{ bos_token }}{% if custom_tools is defined %}{% set tools = custom_tools %}{% endif %})"       \
  R"({% if not tools_in_user_message is defined %}{% set tools_in_user_message = true %}{% endif %})" \
  R"({% if not date_string is defined %})"
#define LH_LLAMA_3_1_SYSTEM                                                                             \
  R"({% endif %}{% if not tools is defined %}{% set tools = none %}{% endif %})"                        \
  R"({% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim %})" \
  R"({% set messages = messages[1:] %}{% else %}{% set system_message = "" %}{% endif %})"              \
  R"({{ "<|start_header_id|>system<|end_header_id|>\n\n" }})"
#define LH_LLAMA_3_1_END                                                                                       \
  R"({{ "Environment: ipython\n" }}{% endif %}@@@)"                                                            \
  R"({{ "Cutting Knowledge Date: December 2023\n" }}{{ "Today Date: " + date_string + "\n\n" }})"              \
  R"({% if tools is not none and not tools_in_user_message %}@@@{% endif %}{{ system_message }})"              \
  R"({{ "<|eot_id|>" }}{% if tools_in_user_message and not tools is none %}@@@{% endif %})"                    \
  R"({% for message in messages %}{% if not (message.role == 'ipython' or message.role == 'tool' or )"         \
  R"('tool_calls' in message) %}{{ '<|start_header_id|>' + message['role'] + )"                                \
  R"('<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% elif @@@{% endif %}{% endfor %})" \
  R"({% if add_generation_prompt %})" LH_LLAMA_3_PROMPT R"({% endif %})"
constexpr std::string_view kLlama31 =
    LH_LLAMA_3_1_BEGIN R"({% set date_string = "@@@" %})" LH_LLAMA_3_1_SYSTEM
                       R"({% if builtin_tools is defined or tools is not none %})" LH_LLAMA_3_1_END;
constexpr std::string_view kLlama32 =
    LH_LLAMA_3_1_BEGIN R"({% if strftime_now is defined %}{% set date_string = strftime_now("%d %b %Y") %})"
                       R"({% else %}{% set date_string = "@@@" %}{% endif %})" LH_LLAMA_3_1_SYSTEM
                       R"({% if tools is not none %})" LH_LLAMA_3_1_END;

constexpr std::string_view kZephyr = R"({% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n' + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %})";

// What "@@@" stands for in `text`, in order; nothing where the text is not of this form. Each takes as little
// as it can, which is enough: what follows one is not found inside it in any published template.
std::optional<std::vector<std::string_view>> MatchForm(std::string_view text, std::string_view form) {
  std::vector<std::string_view> taken;
  const size_t first = form.find(kAnything);
  if (!text.starts_with(form.substr(0, first))) return std::nullopt;
  text.remove_prefix(std::min(first, form.size()));
  while (true) {
    const size_t gap = form.find(kAnything);
    if (gap == std::string_view::npos) {
      if (!text.empty()) return std::nullopt;
      return taken;
    }
    form.remove_prefix(gap + kAnything.size());
    const size_t next_gap = form.find(kAnything);
    const std::string_view part = form.substr(0, next_gap);
    size_t found = text.find(part);
    if (next_gap == std::string_view::npos) {
      found = text.ends_with(part) ? text.size() - part.size() : std::string_view::npos;
    }
    if (found == std::string_view::npos) return std::nullopt;
    taken.push_back(text.substr(0, found));
    text.remove_prefix(found + part.size());
  }
}

// What Python's str.strip() removes, which Jinja's trim filter calls.
constexpr std::string_view kPythonSpaces[] = {
    " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1C",   "\x1D",   "\x1E",   "\x1F",
    "\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
    "\u2007", "\u2008", "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};

std::string_view Strip(std::string_view text) {
  const auto at_start = [&](std::string_view space) { return text.starts_with(space); };
  const auto at_end = [&](std::string_view space) { return text.ends_with(space); };
  while (true) {
    const auto space = std::find_if(std::begin(kPythonSpaces), std::end(kPythonSpaces), at_start);
    if (space == std::end(kPythonSpaces)) break;
    text.remove_prefix(space->size());
  }
  while (true) {
    const auto space = std::find_if(std::begin(kPythonSpaces), std::end(kPythonSpaces), at_end);
    if (space == std::end(kPythonSpaces)) break;
    text.remove_suffix(space->size());
  }
  return text;
}

// The beginning of a template for a message: one line of printable text.
std::string Quote(std::string_view text) {
  constexpr size_t kQuotedBytes = 80;
  std::string quoted = ReplaceIllFormedUtf8(text.substr(0, CompleteUtf8Bytes(text.substr(0, kQuotedBytes))));
  for (char& c : quoted) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return quoted + (text.size() > kQuotedBytes ? "..." : "");
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Recognise(std::string_view text) {
  static constexpr Form kForms[] = {
      {Family::kChatml, "chatml", false, -1, kChatml},
      {Family::kChatml, "chatml-qwen2", false, 0, kChatmlWithDefault},
      {Family::kChatml, "chatml-qwen2", false, 1, kChatmlWithTools},
      {Family::kLlama2, "llama-2", true, -1, kLlama2},
      {Family::kLlama3, "llama-3", true, -1, kLlama3},
      {Family::kLlama3AlwaysPrompted, "llama-3", true, -1, kLlama3AlwaysPrompted},
      {Family::kLlama31, "llama-3.1", true, 0, kLlama31},
      {Family::kLlama31, "llama-3.1", true, 0, kLlama32},
      {Family::kZephyr, "zephyr", false, -1, kZephyr},
  };
  static const std::string kCanonicalPrologue = CanonicalJinja(kPrologue);
  const std::string canonical = CanonicalJinja(text);
  std::string_view known = canonical;
  if (known.starts_with(kCanonicalPrologue)) known.remove_prefix(kCanonicalPrologue.size());
  for (const Form& form : kForms) {
    const auto taken = MatchForm(known, CanonicalJinja(form.text));
    if (!taken) continue;
    std::string preset;
    if (form.preset >= 0) preset = (*taken)[form.preset];
    // A preset is one constant: an expression in its place is another template.
    if (preset.find_first_of({kStringBegin, kStringEnd}) != std::string::npos) continue;
    const bool is_smollm2 = form.name == "chatml-qwen2" && preset.find("SmolLM") != std::string::npos;
    return ChatTemplate(form.family, is_smollm2 ? "chatml-smollm2" : form.name, form.writes_bos,
                        std::move(preset));
  }
  return Unsupported(fmt::format(
      "the model's chat template is not one of those known here (chatml, SmolLM2, Qwen2, Llama 2, Llama 3, "
      "Zephyr); it begins \"{}\"; use --no-chat to send the prompt as it is",
      Quote(text)));
}

Result<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                         std::string_view bos, std::string_view eos) const {
  if (messages.empty()) return InvalidInput("a chat needs at least one message");
  for (const ChatMessage& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      return InvalidInput(fmt::format(
          "the role \"{}\" is not known; a message is from system, user or assistant", Quote(message.role)));
    }
  }
  switch (family_) {
    case Family::kChatml:
      return RenderChatml(messages, add_generation_prompt);
    case Family::kLlama2:
      return RenderLlama2(messages, bos, eos);
    case Family::kLlama3:
    case Family::kLlama31:
      return std::string(bos) + RenderLlama3(messages, add_generation_prompt);
    case Family::kLlama3AlwaysPrompted:
      return std::string(bos) + RenderLlama3(messages, /*add_generation_prompt=*/true);
    case Family::kZephyr:
      break;
  }
  std::string text;
  for (const ChatMessage& message : messages) {
    text += fmt::format("<|{}|>\n{}{}\n", message.role, message.content, eos);
  }
  return add_generation_prompt ? text + "<|assistant|>\n" : text;
}

std::string ChatTemplate::RenderChatml(std::span<const ChatMessage> messages,
                                       bool add_generation_prompt) const {
  std::string text;
  const auto append = [&](std::string_view role, std::string_view content) {
    text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
  };
  if (name_ != "chatml" && messages.front().role != "system") append("system", preset_);
  for (const ChatMessage& message : messages) append(message.role, message.content);
  return add_generation_prompt ? text + "<|im_start|>assistant\n" : text;
}

Result<std::string> ChatTemplate::RenderLlama2(std::span<const ChatMessage> messages, std::string_view bos,
                                               std::string_view eos) {
  std::string system;
  if (messages.front().role == "system") {
    system = "<<SYS>>\n" + messages.front().content + "\n<</SYS>>\n\n";
    messages = messages.subspan(1);
  }
  if (messages.empty())
    return InvalidInput("this chat template wants a message from user after the one from system");
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string_view wanted = i % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != wanted) {
      return InvalidInput(
          fmt::format("this chat template wants messages from user and assistant in turn, after at most "
                      "one from system; found \"{}\" in place of \"{}\"",
                      messages[i].role, wanted));
    }
    const std::string content = (i == 0 ? system : "") + messages[i].content;
    text += i % 2 == 0 ? fmt::format("{}[INST] {} [/INST]", bos, Strip(content))
                       : fmt::format(" {} {}", Strip(content), eos);
  }
  return text;
}

std::string ChatTemplate::RenderLlama3(std::span<const ChatMessage> messages,
                                       bool add_generation_prompt) const {
  std::string text;
  const auto append = [&](std::string_view role, std::string_view preamble, std::string_view content) {
    text += fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}{}<|eot_id|>", role, preamble,
                        Strip(content));
  };
  if (family_ == Family::kLlama31) {
    const bool has_system = messages.front().role == "system";
    append("system", fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n", preset_),
           has_system ? std::string_view(messages.front().content) : std::string_view());
    if (has_system) messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) append(message.role, "", message.content);
  if (add_generation_prompt) text += "<|start_header_id|>assistant<|end_header_id|>\n\n";
  return text;
}

}  // namespace longheads
