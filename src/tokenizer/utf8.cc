#include "tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

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

namespace {

// How many bytes at the start of `text` are whole characters. Most texts are mostly ASCII: eight bytes at a
// time.
size_t WellFormedBytes(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    while (at + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & kHighBits) != 0) break;
      at += sizeof(eight);
    }
    if (at == text.size()) break;
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) break;
    at += step.bytes;
  }
  return at;
}

}  // namespace

bool IsWellFormedUtf8(std::string_view text) { return WellFormedBytes(text) == text.size(); }

std::string ReplaceIllFormedUtf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (;;) {
    const size_t well_formed = WellFormedBytes(text);
    repaired.append(text.substr(0, well_formed));
    text.remove_prefix(well_formed);
    if (text.empty()) return repaired;
    repaired.append(kReplacementCharacter);
    text.remove_prefix(NextUtf8(text).bytes);
  }
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
