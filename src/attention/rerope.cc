#include "attention/rerope.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/plan_parts.h"
#include "base/check.h"

namespace longheads {
namespace {

// Rotations are 32-bit: in units of 1/1024 they reach two million tokens. The published code has 16.
constexpr int64_t kMostLeak = 1024;

}  // namespace

ReRope::ReRope(const ReRopeOptions& options, const HeadShape& shape, int64_t window)
    : options_(options), shape_(shape), window_(window) {
  LH_CHECK(options.window > 0 && options.leak >= 0);
  LH_CHECK(!options.log_n || options.log_n_base >= 2);
}

void ReRope::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch&,
                       Plan& plan) const {
  const int64_t window = options_.window;
  const int64_t leak = options_.leak;
  const int64_t unit = Plane().unit;
  ForEachRun(block, [&](const TokenRun& run) {
    AddSegment(
        block, run, shape_.group(), {.key_begin = 0, .key_end = kNewestKey, .min_distance = window},
        // w + (i - j - w)/k from a key at j/k, times k.
        [&](int64_t i) { return leak == 0 ? window : i + (leak - 1) * window; }, plan);
    AddSegment(
        block, run, shape_.group(),
        {.key_begin = 0, .key_end = kNewestKey, .max_distance = window, .absolute = true},
        [&](int64_t i) { return unit * i; }, plan);
  });
  if (options_.log_n) AddLogNScales(block, options_.log_n_base, plan);
}

int64_t ReRope::Capacity() const {
  if (options_.leak == 0) return kNoLimit;
  return options_.window + 1 + options_.leak * (window_ - 1 - options_.window);
}

std::string ReRope::Warning(int64_t n_tokens) const {
  const int64_t capacity = Capacity();
  if (n_tokens <= capacity) return "";
  // The least k with w + (n - 1 - w)/k <= L - 1, where there is one.
  const int64_t room = window_ - 1 - options_.window;
  const int64_t leak = room == 0 ? 0 : (n_tokens - 1 - options_.window + room - 1) / room;
  return fmt::format(
      "leaky-rerope with window={} and factor={} reaches {} tokens before distances leave the model's "
      "window of {}, and {} are too many: use {}",
      options_.window, options_.leak, capacity, window_, n_tokens,
      leak > 0 && leak <= kMostLeak ? fmt::format("factor={}", leak)
                                    : std::string("--attn rerope, whose distances end at its window"));
}

std::string ReRope::Explain() const {
  const std::string far =
      options_.leak == 0
          ? fmt::format("all others at distance {}", options_.window)
          : fmt::format("the others at {} and one more for every {} tokens beyond: good for {} tokens",
                        options_.window, options_.leak, Capacity());
  const std::string scale =
      options_.log_n ? fmt::format("; logits grow with ln(i + 1) / ln({})", options_.log_n_base) : "";
  return fmt::format("{}: every token sees all before it, the last {} at their true distances, {}{}",
                     options_.leak == 0 ? "ReRoPE" : "Leaky ReRoPE", options_.window, far, scale);
}

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model, ReRopeOptions o) {
  const int64_t usual = model.usual_window();
  if (usual < 2) {
    reader.Fail(fmt::format("the model's trained window of {} tokens is too short: use --attn full", usual));
  }
  o.window = std::max<int64_t>(1, std::min(o.window, usual / 2));
  reader.Tokens("window", o.window);
  if (o.leak != 0) reader.Tokens("factor", o.leak);
  reader.OnOff("log_n", o.log_n);
  o.log_n_base = model.trained_window;
  reader.Tokens("log_n_base", o.log_n_base, /*least=*/2);
  if (o.window >= model.window) {
    reader.Fail(
        fmt::format("window={} is also the distance of what lies beyond it, which must lie inside the "
                    "model's window of {} tokens: use at most window={}",
                    o.window, model.window, model.window - 1));
  }
  if (o.leak > kMostLeak) reader.Fail(fmt::format("factor={} is more than {}", o.leak, kMostLeak));
  LH_TRY(reader.status());
  return SameInEveryLayer(model, std::make_shared<ReRope>(o, model.shape, model.window));
}

std::vector<OptionInfo> Options(bool leaky) {
  std::vector<OptionInfo> options = {
      {"window", "tokens", "512, or half of the trained window if that is less",
       "1 .. the model's window - 1",
       "w: the nearest tokens, the query's own included, that are at their true distance"},
      {"log_n", "on|off", "on", "",
       "multiply the logits of the token at position i by max(1, ln(i + 1) / ln(log_n_base))"},
      {"log_n_base", "tokens", "the trained window", ">= 2",
       "from here on log_n scales: the official patches' training_length, 4096 there"},
  };
  if (leaky) {
    options.insert(options.begin() + 1, {"factor", "whole number", "16", "1 .. 1024",
                                         "k: tokens beyond the window that make the distance one more"});
  }
  return options;
}

}  // namespace

Method ReRopeMethod() {
  return {
      {.name = "rerope",
       .summary = "ReRoPE: every token sees all before it, near ones at their true distance, all others at "
                  "the same one.",
       .source = "Su 2023, github.com/bojone/rerope",
       .options = Options(/*leaky=*/false)},
      [](OptionReader& reader, const AttentionModel& model) { return Create(reader, model, {}); }};
}

Method LeakyReRopeMethod() {
  return {
      {.name = "leaky-rerope",
       .summary = "Leaky ReRoPE: every token sees all before it, near ones at their true distance, beyond "
                  "them distances grow k times more slowly.",
       .source = "Su 2023, github.com/bojone/rerope",
       .options = Options(/*leaky=*/true)},
      [](OptionReader& reader, const AttentionModel& model) { return Create(reader, model, {.leak = 16}); }};
}

}  // namespace longheads
