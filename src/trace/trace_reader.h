// Reads trace files (docs/trace.md), part by part: a trace may be larger than what is kept of it. Any bytes
// are read safely; what is wrong with a file is said in a sentence that names it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/trace.h"

namespace longheads {

// What hears of a trace's parts, in the order of the file; the header comes first. All may be empty. An Error
// ends the reading.
struct TraceParts {
  std::function<Status(const TraceHeader&)> on_header = {};
  std::function<Status(const TraceTokens&)> on_tokens = {};
  std::function<Status(const TokenSelection&)> on_selection = {};
  std::function<Status(const PromptCounts&)> on_counts = {};
};

// `name` is what messages call it.
Status ReadTrace(std::string_view bytes, const std::string& name, const TraceParts& parts);
Status ReadTraceFile(const std::string& path, const TraceParts& parts);

}  // namespace longheads
