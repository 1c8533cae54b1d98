// Writes the texts that the tokenizer fuzzer starts from into a directory: one of each kind of golden text
// for each tokenizer, and the chat templates.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tokenizer/golden_cases.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  std::vector<std::string> seeds;
  constexpr char kTokenizers = 7, kSpecial = '\x80', kTemplate = '\x7F';
  size_t turn = 0;
  for (const char* file : {"bpe.jsonl", "spm.jsonl"}) {
    for (const longheads::GoldenCase& golden : longheads::ReadGoldenCases(longheads::GoldenPath(file))) {
      // Every third text, each for another tokenizer: enough to reach every branch.
      if (++turn % 3 != 0) continue;
      const auto first = static_cast<char>(turn / 3 % kTokenizers | (golden.special ? kSpecial : 0));
      seeds.push_back(first + golden.text);
    }
  }
  std::ifstream file(longheads::GoldenPath("chat.json"), std::ios::binary);
  const nlohmann::json chat = longheads::ParseGolden("chat.json", {std::istreambuf_iterator<char>(file), {}});
  for (const auto& golden : chat.at("templates")) {
    seeds.push_back(kTemplate + golden.at("template").get<std::string>());
  }
  for (const auto& text : chat.at("unknown")) seeds.push_back(kTemplate + text.get<std::string>());
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream seed(directory / std::to_string(i), std::ios::binary);
    seed.write(seeds[i].data(), static_cast<std::streamsize>(seeds[i].size()));
    if (!seed.flush()) {
      std::fprintf(stderr, "cannot write %s\n", (directory / std::to_string(i)).c_str());
      return 1;
    }
  }
  return 0;
}
