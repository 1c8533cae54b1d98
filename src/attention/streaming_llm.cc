#include "attention/streaming_llm.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/plan_parts.h"

namespace longheads {

int64_t StreamingLlm::RotationBound(int64_t n) const { return std::max(n, options_.start + options_.recent); }

void StreamingLlm::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch&,
                             Plan& plan) const {
  const int64_t start = options_.start;
  const int64_t recent = options_.recent;
  const auto true_position = [](int64_t i) { return i; };
  ForEachRun(block, [&](const TokenRun& run) {
    const auto add = [&](const PlanSegment& segment, const auto& x_of) {
      AddSegment(block, run, shape_.group(), segment, x_of, plan);
    };
    if (options_.form == StreamingLlmOptions::Form::kSlots) {
      // While the cache is not full, slots are positions.
      add({.key_begin = 0, .key_end = start}, [&](int64_t i) { return std::min(i, start + recent); });
      add({.key_begin = start, .key_end = kNewestKey, .max_distance = recent_end()}, true_position);
    } else {
      // A first token is a recent one as long as it is near.
      add({.key_begin = 0, .key_end = start, .min_distance = recent},
          [&](int64_t) { return recent + start - 1; });
      add({.key_begin = 0, .key_end = kNewestKey, .max_distance = recent_end()}, true_position);
    }
  });
}

AttentionWork StreamingLlm::Work(int64_t n, Phase, const HeadShape& shape) const {
  return {.attended = static_cast<double>(shape.n_heads * std::min(n, options_.start + recent_end()))};
}

std::string StreamingLlm::Warning(int64_t n_tokens) const {
  const int64_t n_seen = options_.start + recent_end();
  if (n_tokens <= n_seen) return "";
  return fmt::format(
      "streaming-llm over {} tokens: the answer sees the first {} and the last {} alone, and {} between them "
      "are as if they had not been there (--attn auto looks for what matters in all of them)",
      n_tokens, options_.start, recent_end(), n_tokens - n_seen);
}

std::string StreamingLlm::Explain() const {
  return fmt::format(
      "StreamingLLM: every token sees the first {} tokens of the text and the last {} up to itself, at "
      "distances below {}; nothing between them",
      options_.start, recent_end(), options_.start + recent_end());
}

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  const int64_t usual = model.usual_window();
  StreamingLlmOptions o;
  reader.Choice<StreamingLlmOptions::Form>(
      "form",
      {{"slots", StreamingLlmOptions::Form::kSlots}, {"chunk-safe", StreamingLlmOptions::Form::kChunkSafe}},
      o.form);
  // The cache and, on top of it, the query's own key in the form that counts it apart.
  const int64_t own = o.form == StreamingLlmOptions::Form::kSlots ? 1 : 0;
  o.start = std::min<int64_t>(o.start, usual / 4);
  reader.Tokens("start", o.start, /*least=*/0);
  const int64_t most_recent = model.window - own - o.start;
  if (most_recent < 1) {
    reader.Fail(fmt::format("start={} leaves no room for recent tokens in the {} of the model's window",
                            o.start, model.window));
  }
  o.recent = std::min(o.recent, most_recent);
  reader.Tokens("recent", o.recent);
  if (o.recent > most_recent) {
    reader.Fail(fmt::format(
        "start={} and recent={} need {} positions, but the model's window is {}: use at most recent={}",
        o.start, o.recent, o.start + o.recent + own, model.window, most_recent));
  }
  LH_TRY(reader.status());
  return SameInEveryLayer(model, std::make_shared<StreamingLlm>(o, model.shape));
}

}  // namespace

Method StreamingLlmMethod() {
  return {
      {.name = "streaming-llm",
       .summary = "StreamingLLM: the first few tokens and the most recent ones, at constant cost; what "
                  "lies between is not read.",
       .source = "Xiao et al. 2023, \"Efficient Streaming Language Models with Attention Sinks\"",
       .options =
           {
               {"start", "tokens", "4, or a quarter of the trained window if that is less", ">= 0",
                "tokens of the text's beginning that are always seen (attention sinks); 0 is a plain "
                "sliding window"},
               {"recent", "tokens", "2000, or what start leaves of the model's window if that is less",
                "start + recent at most the model's window, less one for form=slots",
                "the most recent tokens that are seen: beside the query's own with form=slots, with it in "
                "form=chunk-safe"},
               {"form", "slots|chunk-safe", "slots", "",
                "the first tokens' distances: as the slots of the published code's cache, or as if they "
                "lay immediately before the recent ones (InfLLM's version)"},
           }},
      Create};
}

}  // namespace longheads
