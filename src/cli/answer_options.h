// The options by which every command that answers does so.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "engine/engine.h"

namespace longheads {

struct AnswerOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampling;
};

// -n, --temp, --top-k, --top-p, --min-p, --repeat-penalty, --seed; in the group "Answer".
void AddAnswerOptions(CLI::App& app, AnswerOptions& options);

Status Check(const AnswerOptions& options);

// "stop", "length", ...
const char* ReasonName(StopReason reason);

}  // namespace longheads
