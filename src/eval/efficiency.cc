#include "eval/efficiency.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/memory.h"
#include "base/seconds.h"
#include "eval/experiment.h"
#include "eval/passkey.h"

namespace longheads {
namespace {

using Clock = std::chrono::steady_clock;

// Greedily, whatever ends an answer: every method decodes as many tokens.
Result<double> TimeDecode(Engine& engine, Session& session, std::vector<float> hidden, int64_t n_tokens,
                          const CancelToken* cancel) {
  const std::size_t n_known = engine.tokenizer().vocabulary().tokens.size();
  Session* const self = &session;
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < n_tokens; ++i) {
    if (Cancelled(cancel)) return Interrupted();
    const std::vector<float> logits = engine.Logits(hidden);
    const TokenId token = ArgMax(std::span(logits).first(n_known));
    LH_TRY(engine.Decode(std::span(&self, 1), std::span(&token, 1), hidden));
  }
  return SecondsSince(start) / static_cast<double>(n_tokens);
}

}  // namespace

EfficiencyTask::EfficiencyTask(EfficiencyOptions options) : options_(std::move(options)) {
  for (const int64_t length : options_.lengths) {
    for (int64_t repeat = 0; repeat < options_.n_repeats; ++repeat) {
      samples_.push_back({.id = fmt::format("{}-{}of{}", length, repeat, options_.n_repeats),
                          .cell = {{"length", length}},
                          .tokens = length,
                          .number = repeat});
    }
  }
}

Json EfficiencyTask::Setup() const {
  return {{"version", 1}, {"decode", options_.n_decode}, {"seed", options_.seed}};
}

PasskeyCase EfficiencyTask::CaseOf(const Sample& sample) const {
  return {.length = sample.tokens, .depth_ppm = PasskeyDepthPpm(sample.number, options_.n_repeats)};
}

Status EfficiencyTask::Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const {
  const PasskeyCase c = CaseOf(*std::ranges::min_element(samples_, {}, &Sample::tokens));
  LH_TRY(BuildPasskeyPrompt(engine, {.form = form}, c, PasskeyKey(options_.seed, c), cancel));
  return {};
}

Result<SampleOutcome> EfficiencyTask::Measure(const TaskContext& context, const Sample& sample) {
  Engine& engine = context.engine;
  const PasskeyCase c = CaseOf(sample);
  const int64_t key = PasskeyKey(options_.seed, c);
  LH_ASSIGN(const Prompt prompt, BuildPasskeyPrompt(engine, {.form = context.form}, c, key, context.cancel));
  const int64_t n_tokens = static_cast<int64_t>(prompt.tokens.size());
  const int64_t n_answer = context.form == PromptForm::kChat ? kChatAnswerTokens : kPlainAnswerTokens;
  LH_TRY(engine.ExpectText(n_tokens + std::max(options_.n_decode, n_answer)));
  context.reader.Forget();  // its memory would count
  ResetPeakMemory();
  const auto progress = context.on_prefill ? context.on_prefill(n_tokens) : std::function<void(double)>();
  const Clock::time_point start = Clock::now();
  Session session = engine.NewSession();
  LH_ASSIGN(const std::vector<float> hidden,
            engine.Prefill(session, prompt.tokens, Outputs::kLast,
                           {.cancel = context.cancel, .progress = progress}));
  const double prefill_seconds = SecondsSince(start);
  Session answering = engine.Fork(session);
  LH_ASSIGN(const double decode_seconds,
            TimeDecode(engine, session, hidden, options_.n_decode, context.cancel));
  const uint64_t peak = PeakMemory();
  LH_ASSIGN(Generated answer,
            engine.Generate(answering, hidden, {.max_tokens = n_answer, .cancel = context.cancel}));
  if (answer.reason == StopReason::kCancelled) return Interrupted();
  const MemoryPlan plan = engine.PlanMemory(n_tokens + options_.n_decode);
  constexpr double kGiB = 1 << 30;
  return SampleOutcome{
      .score = decode_seconds,
      .values = {{"prefill_seconds", prefill_seconds},
                 {"prefill_tokens_per_second", static_cast<double>(n_tokens) / prefill_seconds},
                 {"peak_gib", static_cast<double>(peak) / kGiB},
                 {"kv_gib", static_cast<double>(plan.kv) / kGiB},
                 {"state_gib", static_cast<double>(plan.state) / kGiB},
                 {"accuracy", AnswersPasskey(answer.text, key) ? 1.0 : 0.0}},
      .answer = std::move(answer.text),
      .references = {fmt::format("{}", key)},
      .tokens = n_tokens,
      .generated = options_.n_decode};
}

TaskKind EfficiencyKind() {
  return {
      .name = "efficiency",
      .summary = "Seconds a token, memory and pass keys found, by length (LongHeads, Table 5)",
      .options = {{"lengths", "N,N,...", "4k,8k", "prompt lengths in tokens, met within 1%; k is 1024"},
                  {"repeats", "N", "3", "prompts of each length, with the key at other depths"},
                  {"decode", "N", "100", "tokens that are decoded and timed after each prompt"},
                  {"seed", "S", "0", "of the keys"}},
      .notes =
          "Times are wall time, of the machine as it is: leave it alone while this runs. --kv-ram 1g keeps "
          "the rest of the\nkeys and values on disk. 'peak_gib' is the "
          "most "
          "memory that\nthe process had since the prompt began, weights that are mapped included; kv_gib and "
          "state_gib (in the CSV)\nare what the text's keys and values and the method's state take of it. "
          "'accuracy' is the share of pass keys\nthat a free answer gives.\n\nExample:\n  longheads eval "
          "efficiency --attn 'full;longheads,begin=window' --lengths 4k,16k,32k --out results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 200, kMostRounds = 10000;
        EfficiencyOptions options{.lengths = o.Counts("lengths", kShortest, kLongestText),
                                  .n_repeats = o.Count("repeats", 1, kMostRounds),
                                  .n_decode = o.Count("decode", 1, kMostRounds),
                                  .seed = static_cast<uint64_t>(o.Count("seed", 0, INT64_MAX))};
        LH_TRY(o.status());
        return std::make_unique<EfficiencyTask>(std::move(options));
      }};
}

}  // namespace longheads
