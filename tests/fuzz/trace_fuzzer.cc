// Any bytes as a trace file; and, since a checksum stands before what records say, as their payloads too.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "trace/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const longheads::Status read = longheads::ReadTrace(bytes, "fuzzed", {});
  LH_CHECK(read || read.error().message.starts_with("fuzzed"));
  if (bytes.empty()) return 0;
  const std::string_view payload = bytes.substr(1);
  switch (bytes.front()) {
    case 'S':
      longheads::DecodeSelection(payload, 8);
      break;
    case 'P':
      longheads::DecodeCounts(payload, 8);
      break;
    case 'T':
      longheads::DecodeTokens(payload);
      break;
    case 'H':
      if (const auto header = longheads::ParseTraceHeader(payload)) {
        LH_CHECK(longheads::ParseTraceHeader(longheads::TraceHeaderJson(*header)));
      }
      break;
    default:
      break;
  }
  return 0;
}
