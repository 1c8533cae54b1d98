#include "cli/answer_options.h"

#include <fmt/format.h>

#include "engine/engine.h"

namespace longheads {

void AddAnswerOptions(CLI::App& app, AnswerOptions& options) {
  const auto add = [&app](const char* name, auto& value, const char* meaning, const char* type) {
    return app.add_option(name, value, meaning)->type_name(type)->capture_default_str()->group("Answer");
  };
  SamplerOptions& sampling = options.sampling;
  add("-n,--predict", options.max_tokens, "most tokens to answer with", "N");
  add("--temp", sampling.temperature, "temperature; 0 takes the likeliest token (greedy)", "T");
  add("--top-k", sampling.top_k, "keep the K likeliest tokens; 0: all", "K");
  add("--top-p", sampling.top_p, "keep the likeliest tokens that together reach this probability", "P");
  add("--min-p", sampling.min_p, "keep tokens at least this likely, as a share of the likeliest", "P");
  add("--repeat-penalty", sampling.repeat_penalty, "above 1: repeats of the last 64 tokens are less likely",
      "R");
  add("--seed", sampling.seed, "of the random draws at --temp above 0", "S")->check(CheckSeed);
}

std::string CheckSeed(const std::string& text) {
  return text.starts_with('-') ? fmt::format("is {}, but must be 0 or more", text) : "";
}

Status Check(const AnswerOptions& options) {
  LH_TRY(Sampler::Create(options.sampling));
  if (options.max_tokens < 1 || options.max_tokens > kMostTokens) {
    return InvalidInput(fmt::format("-n is {}, but must be 1 to {}", options.max_tokens, kMostTokens));
  }
  return {};
}

std::string WhatHasNoEffect(const AnswerOptions& options) {
  const SamplerOptions& given = options.sampling;
  const SamplerOptions usual;
  if (given.temperature != 0) return "";
  std::string names;
  const auto add = [&names](bool differs, const char* name) {
    if (differs) names += names.empty() ? name : fmt::format(", {}", name);
  };
  add(given.top_k != usual.top_k, "--top-k");
  add(given.top_p != usual.top_p, "--top-p");
  add(given.min_p != usual.min_p, "--min-p");
  add(given.seed != usual.seed, "--seed");
  if (names.empty()) return "";
  return fmt::format("{} without effect: at --temp 0, the default, the likeliest token is taken", names);
}

const char* HowItEnded(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "; stopped at -n";
    case StopReason::kCancelled:
      return "; interrupted";
    case StopReason::kEndOfGeneration:
    case StopReason::kCaller:
      break;
  }
  return "";
}

const char* ReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "stop";
    case StopReason::kLength:
      return "length";
    case StopReason::kCancelled:
      return "interrupted";
    case StopReason::kCaller:
      return "output closed";
  }
  return "";
}

}  // namespace longheads
