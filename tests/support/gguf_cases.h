// GGUF files that reach every branch of the reader: what parses, and what is refused with which words. The
// unit tests check the words; the fuzzer starts from the bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "tests/support/gguf_builder.h"

namespace longheads {

struct GgufCase {
  std::string name;  // fit for a file name
  std::vector<std::byte> bytes;
  std::string refusal;  // a part of the message; empty where the file parses
};

std::vector<GgufCase> GgufCases();

// One value of every type, and one array of every type.
GgufBuilder GgufWithEveryValue();
// One tensor of every type, [3, 512].
GgufBuilder GgufWithEveryTensorType();

// Calls every accessor for every key and tensor, and reads all that they point to. The sum depends on each
// byte, so that nothing is optimised away.
uint64_t WalkGguf(const GgufFile& file);

}  // namespace longheads
