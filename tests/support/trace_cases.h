// Small traces made for tests and for the fuzzer's seeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace longheads {

struct TraceCase {
  TraceHeader header;
  TraceTokens tokens;
  std::vector<TokenSelection> selections;
  std::vector<PromptCounts> counts;
};

// Two layers of four heads; some rows repeat, some choose without scores, some see nothing.
TraceCase MakeTraceCase(uint32_t seed);
// The file's bytes.
std::string TraceBytes(const TraceCase& one);

}  // namespace longheads
