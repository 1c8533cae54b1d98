// The options by which every command that answers does so.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace longheads {

struct AnswerOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampling;
};

// -n, --temp, --top-k, --top-p, --min-p, --repeat-penalty, --seed; in the group "Answer".
void AddAnswerOptions(CLI::App& app, AnswerOptions& options);

// For --seed, as CLI11 checks: what is wrong with it, or nothing.
std::string CheckSeed(const std::string& text);

Status Check(const AnswerOptions& options);

// What was asked of drawing tokens where none is drawn, as at --temp 0, in a sentence; empty where nothing was.
std::string WhatHasNoEffect(const AnswerOptions& options);

// "stop", "length", ...
const char* ReasonName(StopReason reason);
// Behind a sentence: "; stopped at -n", "; interrupted", or nothing.
const char* HowItEnded(StopReason reason);

}  // namespace longheads
