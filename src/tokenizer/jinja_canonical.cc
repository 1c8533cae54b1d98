#include "tokenizer/jinja_canonical.h"

#include <algorithm>
#include <cstddef>

namespace longheads {
namespace {

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void StripEnd(std::string_view& text) {
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
}

size_t WordEnd(std::string_view text, size_t begin) {
  while (begin < text.size() && IsWord(text[begin])) ++begin;
  return begin;
}

// Appends the string constant that begins at `begin` with its quote; returns where it ends.
size_t AppendString(std::string_view text, size_t begin, std::string& out) {
  out.push_back(kStringBegin);
  size_t i = begin + 1;
  for (; i < text.size() && text[i] != text[begin]; ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char escaped = text[++i];
    constexpr std::string_view kLetters = "ntr\\'\"";
    constexpr std::string_view kMeanings = "\n\t\r\\'\"";
    const size_t known = kLetters.find(escaped);
    if (known == std::string_view::npos) out.push_back('\\');
    out.push_back(known == std::string_view::npos ? escaped : kMeanings[known]);
  }
  out.push_back(kStringEnd);
  return std::min(i + 1, text.size());
}

std::string CanonicalTag(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\'' || c == '"') {
      // 'a' + 'b' is 'ab'.
      if (out.size() >= 2 && out.ends_with('+') && out[out.size() - 2] == kStringEnd) {
        out.resize(out.size() - 2);
        std::string next;
        i = AppendString(text, i, next);
        out.append(next, 1);
      } else {
        i = AppendString(text, i, out);
      }
    } else if (IsSpace(c)) {
      size_t next = i;
      while (next < text.size() && IsSpace(text[next])) ++next;
      if (!out.empty() && next < text.size() && IsWord(out.back()) && IsWord(text[next])) out.push_back(' ');
      i = next;
    } else if (c == '.' && !out.empty() && (IsWord(out.back()) || out.back() == ']')) {
      const size_t end = WordEnd(text, i + 1);
      const std::string_view name = text.substr(i + 1, end - i - 1);
      if (text.substr(i).starts_with(".strip()")) {
        out.append("|trim");
        i += std::string_view(".strip()").size();
      } else if (name.empty() || text.substr(end).starts_with('(')) {
        out.push_back('.');
        ++i;
      } else {
        out.append({'[', kStringBegin}).append(name).append({kStringEnd, ']'});
        i = end;
      }
    } else {
      out.push_back(c);
      ++i;
    }
  }
  return out;
}

// Where the tag whose content begins at `begin` closes: the position of `close`, outside of strings.
size_t FindClose(std::string_view text, size_t begin, std::string_view close, bool has_strings) {
  char quote = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == quote) {
        quote = 0;
      }
    } else if (text.substr(i).starts_with(close)) {
      return i;
    } else if (has_strings && (text[i] == '\'' || text[i] == '"')) {
      quote = text[i];
    }
  }
  return std::string_view::npos;
}

size_t FindTag(std::string_view text, size_t from) {
  for (size_t i = from; i + 1 < text.size(); ++i) {
    if (text[i] == '{' && (text[i + 1] == '{' || text[i + 1] == '%' || text[i + 1] == '#')) return i;
  }
  return std::string_view::npos;
}

// lstrip_blocks: blanks between the start of a line and a block tag are not printed.
void StripLineStart(std::string_view& printed, bool begins_line) {
  const size_t blanks = printed.find_last_not_of(" \t");
  if (blanks == std::string_view::npos) {
    if (begins_line) printed = {};
  } else if (printed[blanks] == '\n') {
    printed = printed.substr(0, blanks + 1);
  }
}

}  // namespace

std::string CanonicalJinja(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);  // Jinja drops one newline at the end
  std::string out;
  size_t from = 0;
  bool strip_next = false;  // after "-%}" or "-}}"
  while (true) {
    const bool begins_line = from == 0 || text[from - 1] == '\n';
    const size_t tag = FindTag(text, from);
    std::string_view printed = text.substr(from, tag - from);
    while (strip_next && !printed.empty() && IsSpace(printed.front())) printed.remove_prefix(1);
    if (tag == std::string_view::npos) return out.append(printed);

    const char kind = text[tag + 1];
    const std::string_view close = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    size_t begin = tag + 2;
    const size_t end = FindClose(text, begin, close, /*has_strings=*/kind != '#');
    if (end == std::string_view::npos) return out.append(text.substr(from));
    const char before = begin < end ? text[begin] : '\0';
    if (before == '-') {
      StripEnd(printed);
    } else if (before != '+' && kind != '{') {
      StripLineStart(printed, begins_line);
    }
    out.append(printed);
    if (before == '-' || before == '+') ++begin;

    std::string_view content = text.substr(begin, std::max(begin, end) - begin);
    strip_next = content.ends_with('-');
    const bool keep_newline = content.ends_with('+') || kind == '{';
    if (strip_next || content.ends_with('+')) content.remove_suffix(1);
    from = end + 2;
    if (!keep_newline && !strip_next && text.substr(from).starts_with('\n')) ++from;  // trim_blocks

    const std::string tag_text = kind == '#' ? std::string() : CanonicalTag(content);
    // transformers marks with these what a model said itself; they print nothing.
    if (kind == '#' || tag_text == "generation" || tag_text == "endgeneration") continue;
    out.append(text.substr(tag, 2)).append(tag_text).append(close);
  }
}

}  // namespace longheads
