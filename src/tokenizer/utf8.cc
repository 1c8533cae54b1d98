#include "tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>

namespace longheads {

Utf8Step NextUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Step::Kind::kCharacter, 1};
  size_t length = 0;
  uint8_t second_low = 0x80, second_high = 0xBF;  // the second byte's range excludes overlong forms,
  if (lead >= 0xC2 && lead <= 0xDF) {             // surrogates and what lies above U+10FFFF
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) second_low = 0xA0;
    if (lead == 0xED) second_high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) second_low = 0x90;
    if (lead == 0xF4) second_high = 0x8F;
  } else {
    return {Utf8Step::Kind::kIllFormed, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i};
    const uint8_t low = i == 1 ? second_low : uint8_t{0x80};
    const uint8_t high = i == 1 ? second_high : uint8_t{0xBF};
    if (byte(i) < low || byte(i) > high) return {Utf8Step::Kind::kIllFormed, i};
  }
  return {Utf8Step::Kind::kCharacter, length};
}

bool IsWellFormedUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Step::Kind::kCharacter) return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

std::string ReplaceIllFormedUtf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    repaired.append(step.kind == Utf8Step::Kind::kCharacter ? text.substr(0, step.bytes)
                                                            : kReplacementCharacter);
    text.remove_prefix(step.bytes);
  }
  return repaired;
}

size_t CompleteUtf8Bytes(std::string_view text) {
  // An incomplete character has at most three bytes, and only its first is a lead byte.
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t start = text.size() - back;
    if ((static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) continue;
    return NextUtf8(text.substr(start)).kind == Utf8Step::Kind::kIncomplete ? start : text.size();
  }
  return text.size();
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto continuation = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    continuation(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    continuation(6);
    continuation(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

}  // namespace longheads
