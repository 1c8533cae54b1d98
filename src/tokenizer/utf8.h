// Finds and repairs ill-formed UTF-8: which bytes form a character, which are replaced by U+FFFD. Follows the
// Unicode Standard, table 3-7 (well-formed sequences) and its recommendation of one replacement character per
// maximal subpart.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace longheads {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The first bytes of a text: a whole character, an ill-formed part, or (at the end only) a character that
// more bytes could complete.
struct Utf8Step {
  enum class Kind { kCharacter, kIllFormed, kIncomplete };
  Kind kind;
  size_t bytes;  // at least 1
};

// `text` must not be empty.
Utf8Step NextUtf8(std::string_view text);

bool IsWellFormedUtf8(std::string_view text);

// The text with one U+FFFD in place of each maximal ill-formed part; an incomplete character at the end is
// one.
std::string ReplaceIllFormedUtf8(std::string_view text);

// How many bytes of `text` come before an incomplete character at its end (all, where there is none).
size_t CompleteUtf8Bytes(std::string_view text);

// Appends the UTF-8 form of a code point, which must be a scalar value.
void AppendUtf8(char32_t code_point, std::string& out);

}  // namespace longheads
