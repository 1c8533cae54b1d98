// Writes the files that the trace fuzzer starts from into a directory: whole traces, and single payloads.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/trace_cases.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  const longheads::TraceCase one = longheads::MakeTraceCase(1);
  std::string selection(1, 'S'), counts(1, 'P'), tokens(1, 'T'), header(1, 'H');
  longheads::EncodeSelection(one.selections.front(), selection);
  longheads::EncodeCounts(one.counts.front(), counts);
  longheads::EncodeTokens(one.tokens, tokens);
  header += TraceHeaderJson(one.header);
  const std::pair<const char*, std::string> seeds[] = {{"whole", longheads::TraceBytes(one)},
                                                       {"selection", selection},
                                                       {"counts", counts},
                                                       {"tokens", tokens},
                                                       {"header", header}};
  for (const auto& [name, bytes] : seeds) {
    std::ofstream file(directory / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", (directory / name).c_str());
      return 1;
    }
  }
  return 0;
}
