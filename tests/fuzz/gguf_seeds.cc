// Writes the files that the GGUF fuzzer starts from, one for each case of the unit tests, into a directory.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_cases.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  std::vector<longheads::GgufCase> cases = longheads::GgufCases();
  cases.push_back({"tiny-llama", longheads::TinyLlama({.n_layers = 1, .embed = 8, .head_dim = 2, .ffn = 8}),
                   /*refusal=*/""});
  for (const longheads::GgufCase& one : cases) {
    std::ofstream file(directory / one.name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(one.bytes.data()),
               static_cast<std::streamsize>(one.bytes.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", (directory / one.name).c_str());
      return 1;
    }
  }
  return 0;
}
