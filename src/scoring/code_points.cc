#include "scoring/code_points.h"

#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/utf8.h"

namespace longheads {
namespace {

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// The one character whose lower-case form is two code points: capital I with a dot above.
constexpr char32_t kDottedCapitalI = 0x130;
constexpr char32_t kDotAbove = 0x307;

}  // namespace

std::u32string ToCodePoints(std::string_view utf8) {
  std::u32string out;
  out.reserve(utf8.size());
  const std::string well_formed = ReplaceIllFormedUtf8(utf8);
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(well_formed.data());
  auto left = static_cast<utf8proc_ssize_t>(well_formed.size());
  while (left > 0) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t n = utf8proc_iterate(at, left, &code);
    if (n <= 0) break;  // cannot be: the text is well formed
    out.push_back(static_cast<char32_t>(code));
    at += n;
    left -= n;
  }
  return out;
}

std::string ToUtf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) AppendUtf8(c, out);
  return out;
}

std::u32string Lowered(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    out.push_back(c == kDottedCapitalI
                      ? U'i'
                      : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    if (c == kDottedCapitalI) out.push_back(kDotAbove);
  }
  return out;
}

std::u32string Uppered(std::u32string_view text) {
  std::u32string out(text);
  for (char32_t& c : out) c = static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
  return out;
}

bool IsSpace(char32_t c) {
  // Bidirectional types WS, B and S, and category Zs; no-break spaces are among them, U+200B is not.
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool IsWord(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return c == U'_';  // combining marks are no part of a word here
  }
}

bool IsDecimalDigit(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsAsciiPunctuation(char32_t c) {
  return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') ||
         (c >= U'{' && c <= U'~');
}

std::vector<std::u32string> SplitSpaces(std::u32string_view text) {
  std::vector<std::u32string> words;
  bool inside = false;
  for (const char32_t c : text) {
    if (IsSpace(c)) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    words.back().push_back(c);
    inside = true;
  }
  return words;
}

std::vector<std::u32string> SplitAt(std::u32string_view text, char32_t separator) {
  std::vector<std::u32string> parts(1);
  for (const char32_t c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

std::u32string_view Stripped(std::u32string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::u32string> DigitRuns(std::u32string_view text) {
  std::vector<std::u32string> runs;
  bool inside = false;
  for (const char32_t c : text) {
    const bool digit = IsDecimalDigit(c);
    if (digit && !inside) runs.emplace_back();
    if (digit) runs.back().push_back(c);
    inside = digit;
  }
  return runs;
}

bool Contains(std::u32string_view text, std::u32string_view part) {
  return text.find(part) != std::u32string_view::npos;
}

}  // namespace longheads
