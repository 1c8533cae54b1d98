// Writes the files that the context file fuzzer starts from, one for each case of the unit tests, into a
// directory.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/context_cases.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  for (const longheads::ContextCase& one : longheads::ContextCases(directory.string())) {
    const std::vector<std::byte> squeezed = longheads::SqueezeZeros(one.bytes);
    std::ofstream file(directory / one.name, std::ios::binary);
    file.put(1);
    file.write(reinterpret_cast<const char*>(squeezed.data()), static_cast<std::streamsize>(squeezed.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", (directory / one.name).c_str());
      return 1;
    }
  }
  return 0;
}
