// Text as the benchmarks' official scorers see it. They are written in Python, and what is a space, a letter
// or a lower-case form bears on their scores: the functions here answer as Python's str and re do, on code
// points. What the scores make of them is in the other files of this folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longheads {

// Ill-formed bytes become U+FFFD.
std::u32string ToCodePoints(std::string_view utf8);
std::string ToUtf8(std::u32string_view text);

// str.lower(), but for a sigma at a word's end, which stays a plain small sigma.
std::u32string Lowered(std::u32string_view text);
// str.upper() where one code point becomes one; others ("ß") stay as they are.
std::u32string Uppered(std::u32string_view text);

bool IsSpace(char32_t c);         // str.isspace()
bool IsWord(char32_t c);          // \w
bool IsDecimalDigit(char32_t c);  // \d: the digits of every script
bool IsAsciiPunctuation(char32_t c);

// str.split(): runs of white space part, none is kept.
std::vector<std::u32string> SplitSpaces(std::u32string_view text);
// str.split(separator): n separators make n + 1 parts, empty ones too.
std::vector<std::u32string> SplitAt(std::u32string_view text, char32_t separator);
// str.strip()
std::u32string_view Stripped(std::u32string_view text);
// re.findall(r"\d+", text)
std::vector<std::u32string> DigitRuns(std::u32string_view text);

bool Contains(std::u32string_view text, std::u32string_view part);

}  // namespace longheads
