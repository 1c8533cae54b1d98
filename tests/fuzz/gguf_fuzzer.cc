// Any bytes as a GGUF file: parsed, and every accessor called where they parse.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "formats/gguf.h"
#include "tests/support/gguf_cases.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = longheads::GgufFile::Parse(std::as_bytes(std::span(data, size)), "fuzzed");
  if (file) {
    longheads::WalkGguf(*file);
  } else {
    LH_CHECK(file.error().message.starts_with("fuzzed"));
  }
  return 0;
}
