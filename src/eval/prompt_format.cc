#include "eval/prompt_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tokenizer/utf8.h"

namespace longheads {
namespace {

using Json = nlohmann::ordered_json;

Result<Json> ParseObject(std::string_view text, const std::string& file) try {
  Json json = ParseJson(text);
  if (json.is_object()) return json;
  return InvalidInput(file + ": is no JSON object");
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(fmt::format("{}: is no JSON object ({})", file, error.what()));
}

// Reads the part of Python's grammar that dictionaries of strings need.
class PythonReader {
 public:
  PythonReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<std::map<std::string, std::string>> Dictionary(const std::string& name) {
    if (!GoTo(name)) return InvalidInput(fmt::format("{}: has no dictionary '{} = {{...}}'", file_, name));
    std::map<std::string, std::string> entries;
    for (;;) {
      SkipBlank();
      if (Take('}')) return entries;
      LH_ASSIGN(const std::string key, String());
      SkipBlank();
      if (!Take(':')) return Expected("':' behind a key");
      LH_ASSIGN(entries[key], Joined());
      SkipBlank();
      if (Take(',')) continue;
      SkipBlank();
      if (!Take('}')) return Expected("',' or '}' behind a value");
      return entries;
    }
  }

 private:
  // Behind the opening brace of "NAME = {" at the beginning of a line.
  bool GoTo(const std::string& name) {
    for (std::size_t line = 0; line < text_.size();) {
      at_ = line;
      if (text_.substr(line).starts_with(name)) {
        at_ += name.size();
        SkipBlank();
        if (Take('=')) {
          SkipBlank();
          if (Take('{')) return true;
        }
      }
      const std::size_t end = text_.find('\n', line);
      if (end == std::string_view::npos) return false;
      line = end + 1;
    }
    return false;
  }

  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void SkipBlank() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\') {
        ++at_;
      } else {
        return;
      }
    }
  }

  Result<std::string> Joined() {
    SkipBlank();
    const bool bracket = Take('(');
    std::string all;
    for (bool more = true; more;) {
      SkipBlank();
      LH_ASSIGN(const std::string part, String());
      all += part;
      SkipBlank();
      more = Take('+') || (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\''));
    }
    if (bracket && !Take(')')) return Expected("')'");
    return all;
  }

  Result<std::string> String() {
    if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) return Expected("a string");
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      if (text_[at_] != '\\') {
        out.push_back(text_[at_++]);
      } else {
        LH_TRY(Escape(out));
      }
    }
    if (!Take(quote)) return Expected("the end of a string on its line");
    return out;
  }

  Status Escape(std::string& out) {
    ++at_;
    if (at_ >= text_.size()) return Expected("a character behind '\\'");
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        out.push_back('\n');
        return {};
      case 't':
        out.push_back('\t');
        return {};
      case '\\':
      case '"':
      case '\'':
        out.push_back(c);
        return {};
      case '\n':
        return {};
      case 'u':
        return FourDigits(out);
      default:
        return InvalidInput(
            fmt::format("{}, line {}: the escape '\\{}' is not known here", file_, LineNumber(), c));
    }
  }

  Status FourDigits(std::string& out) {
    char32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const std::size_t digit =
          at_ < text_.size() ? std::string_view("0123456789abcdef").find(static_cast<char>(text_[at_] | 0x20))
                             : std::string_view::npos;
      if (digit == std::string_view::npos) return Expected("four hexadecimal digits behind '\\u'");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code >= 0xd800 && code < 0xe000) return Expected("a character, not half of one, behind '\\u'");
    AppendUtf8(code, out);
    return {};
  }

  int64_t LineNumber() const {
    return 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
  }
  tl::unexpected<Error> Expected(const char* what) const {
    return InvalidInput(fmt::format("{}, line {}: expected {}", file_, LineNumber(), what));
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

}  // namespace

Result<FilledPrompt> FillPrompt(std::string_view format, const PromptFields& fields,
                                std::string_view marked) {
  FilledPrompt prompt;
  bool found = false;
  for (std::size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      prompt.text.push_back(c);
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      prompt.text.push_back(c);
      ++at;
      continue;
    }
    const std::size_t end = c == '{' ? format.find('}', at) : std::string_view::npos;
    if (end == std::string_view::npos) {
      return InvalidInput(fmt::format("the prompt \"{}\" has a single '{}'", format, c));
    }
    const std::string_view name = format.substr(at + 1, end - at - 1);
    const auto field = fields.find(name);
    if (field == fields.end()) {
      return InvalidInput(
          fmt::format("the prompt \"{}\" asks for {{{}}}, which the data set does not have", format, name));
    }
    prompt.text += field->second;
    if (name == marked) prompt.marked_end = prompt.text.size(), found = true;
    at = end;
  }
  if (!found) prompt.marked_end = prompt.text.size();
  return prompt;
}

Result<std::map<std::string, std::string>> ParsePromptJson(std::string_view text, const std::string& file) {
  LH_ASSIGN(const Json json, ParseObject(text, file));
  std::map<std::string, std::string> prompts;
  for (const auto& [name, prompt] : json.items()) {
    if (!prompt.is_string()) return InvalidInput(fmt::format("{}: \"{}\" is no string", file, name));
    prompts[name] = prompt.get<std::string>();
  }
  return prompts;
}

Result<std::map<std::string, std::string>> ParsePromptPython(std::string_view text,
                                                             const std::string& dictionary,
                                                             const std::string& file) {
  return PythonReader(text, file).Dictionary(dictionary);
}

Result<std::map<std::string, int64_t>> ParseLimitsJson(std::string_view text, const std::string& file) {
  LH_ASSIGN(const Json json, ParseObject(text, file));
  std::map<std::string, int64_t> limits;
  for (const auto& [name, limit] : json.items()) {
    const bool whole =
        limit.is_number_unsigned() && limit.get<uint64_t>() >= 1 && limit.get<uint64_t>() < (1U << 30);
    if (!whole) return InvalidInput(fmt::format("{}: \"{}\" is no whole number from 1 on", file, name));
    limits[name] = limit.get<int64_t>();
  }
  return limits;
}

}  // namespace longheads
