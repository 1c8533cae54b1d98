// Writes the cases of tests/support/context_cases.h into a directory, each as NAME.lhctx, and cases.json:
// what is to be found in those that open, and which are refused.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/context_reader.h"
#include "tests/support/context_cases.h"

namespace longheads {
namespace {

std::string Hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    for (const int shift : {4, 0}) text += "0123456789abcdef"[static_cast<int>(byte) >> shift & 15];
  }
  return text;
}

nlohmann::json Describe(const ContextReader& reader) {
  nlohmann::json states = nlohmann::json::array();
  for (const auto& parts : reader.contents().states) {
    nlohmann::json layer = nlohmann::json::array();
    for (const ContextStatePart& part : parts) layer.push_back(Hex(*reader.ReadState(part)));
    states.push_back(layer);
  }
  nlohmann::json pages = nlohmann::json::array();
  for (const ContextPage& page : reader.contents().pages) pages.push_back({page.offset, page.checksum});
  return {{"metadata", nlohmann::json::parse(reader.header().metadata)},
          {"tokens", reader.contents().tokens},
          {"phases", reader.contents().phases},
          {"model_tokens", reader.contents().model_tokens},
          {"pages", pages},
          {"states", states},
          {"checkpoints", reader.n_checkpoints()},
          {"unfinished", reader.has_unfinished()}};
}

int Write(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  nlohmann::json cases;
  for (const ContextCase& one : ContextCases(directory.string())) {
    const std::filesystem::path path = directory / (one.name + ".lhctx");
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(one.bytes.data()),
               static_cast<std::streamsize>(one.bytes.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 1;
    }
    const auto reader = ContextReader::Open(path.string(), {});
    cases[one.name] = reader ? Describe(*reader) : nlohmann::json();
  }
  std::ofstream(directory / "cases.json") << cases;
  return 0;
}

}  // namespace
}  // namespace longheads

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  return longheads::Write(argv[1]);
}
