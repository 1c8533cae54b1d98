// Reads tests/golden/tokenizer/ for tests and the fuzzer: the small vocabularies, and the ids that the oracle
// gives (tools/oracle/tokenizer_goldens.py says what the fields mean). A file that is not as written there
// ends the program: these are our own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace longheads {

// The build defines LONGHEADS_SOURCE_DIR for what links longheads_tokenizer_goldens.
inline std::string GoldenPath(std::string_view name) {
  return std::string(LONGHEADS_SOURCE_DIR "/tests/golden/tokenizer/").append(name);
}

struct GoldenIds {
  std::vector<TokenId> ids;  // for a short text
  uint64_t count = 0;        // for a long one: how many ids,
  uint64_t checksum = 0;     // and their FNV-1a
};

struct GoldenCase {
  std::string text;
  bool special = false;
  std::string names;  // the pre-tokenizers, separated by spaces; empty where the file is about one tokenizer
  GoldenIds expected;
};

inline nlohmann::json ParseGolden(const std::string& path, const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    std::fprintf(stderr, "%s cannot be read or is not JSON\n", path.c_str());
    std::abort();
  }
  return json;
}

inline Vocabulary ReadGoldenVocabulary(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const nlohmann::json json = ParseGolden(path, {std::istreambuf_iterator<char>(file), {}});
  Vocabulary vocabulary;
  vocabulary.model = json.at("model") == "spm" ? Vocabulary::Model::kSpm : Vocabulary::Model::kBpe;
  vocabulary.tokens = json.at("tokens").get<std::vector<std::string>>();
  for (const int type : json.at("types")) vocabulary.types.push_back(static_cast<TokenType>(type));
  vocabulary.merges = json.value("merges", std::vector<std::string>());
  vocabulary.scores = json.value("scores", std::vector<float>());
  vocabulary.bos = json.value("bos", kNoToken);
  vocabulary.eos = json.value("eos", kNoToken);
  vocabulary.unknown = json.value("unknown", kNoToken);
  return vocabulary;
}

inline GoldenIds ReadGoldenIds(const nlohmann::json& json) {
  GoldenIds golden;
  if (json.contains("ids")) {
    golden.ids = json.at("ids").get<std::vector<TokenId>>();
    golden.count = golden.ids.size();
  } else {
    golden.count = json.at("n").get<uint64_t>();
    golden.checksum = std::stoull(json.at("fnv").get<std::string>(), nullptr, 16);
  }
  return golden;
}

inline std::string ReadGoldenText(const nlohmann::json& json) {
  std::string text;
  if (json.contains("text")) {
    text = json.at("text").get<std::string>();
  } else if (json.contains("repeat")) {
    for (int i = 0; i < json.at("repeat").at(1).get<int>(); ++i)
      text += json.at("repeat").at(0).get<std::string>();
  } else {
    const std::string hex = json.at("hex").get<std::string>();
    for (size_t i = 0; i < hex.size(); i += 2) {
      text.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
  }
  return text;
}

inline std::vector<GoldenCase> ReadGoldenCases(const std::string& path) {
  std::vector<GoldenCase> cases;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = ParseGolden(path, line);
    GoldenCase golden;
    golden.text = ReadGoldenText(json);
    golden.special = json.value("special", false);
    if (json.contains("ids") || json.contains("fnv")) {
      golden.expected = ReadGoldenIds(json);
      cases.push_back(golden);
      continue;
    }
    for (const auto& [key, value] : json.items()) {
      if (!value.is_object()) continue;
      golden.names = key;
      golden.expected = ReadGoldenIds(value);
      cases.push_back(golden);
    }
  }
  return cases;
}

inline bool Matches(const GoldenIds& golden, std::span<const TokenId> ids) {
  if (ids.size() != golden.count) return false;
  if (!golden.ids.empty()) return std::equal(ids.begin(), ids.end(), golden.ids.begin());
  if (ids.empty()) return true;
  uint64_t hash = 0xCBF29CE484222325;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x100000001B3;
    }
  }
  return hash == golden.checksum;
}

}  // namespace longheads
