#include "eval/ppl.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/check.h"
#include "eval/experiment.h"

namespace longheads {
namespace {

constexpr int64_t kLongest = 16 << 20;  // tokens
constexpr int64_t kMostSamples = 1000;
constexpr int64_t kLeastScore = 2;  // one token has no standard error

Status CheckOptions(const PplOptions& o) {
  if (o.attention.empty()) return InvalidInput("--attn names no method: 'longheads methods' lists them");
  if (o.lengths.empty()) return InvalidInput("--lengths is empty: give one or more, as in 1k,4k");
  if (o.n_samples < 1 || o.n_samples > kMostSamples) {
    return InvalidInput(fmt::format("--samples is {}, but must be 1 to {}", o.n_samples, kMostSamples));
  }
  if (o.n_score < kLeastScore || o.n_score > kLongest) {
    return InvalidInput(fmt::format("--score is {}, but must be {} to {}", o.n_score, kLeastScore, kLongest));
  }
  for (const int64_t length : o.lengths) {
    if (length > o.n_score && length <= kLongest) continue;
    return InvalidInput(
        fmt::format("--lengths has {}, but must be {} to {}: the {} scored tokens (--score) "
                    "are part of it and at least one comes before them",
                    length, o.n_score + 1, kLongest, o.n_score));
  }
  return {};
}

struct MeasuredMethod {
  std::string attention;
  bool follows_length = false;  // it is another one for each length: nothing that was read serves two
};

// Everything of one run that its cases share.
struct Run {
  const PplOptions& options;  // lengths ascend
  const PplHooks& hooks;
  std::vector<TokenId> tokens;  // of the text
  std::vector<TokenId> begin;   // of every sample: BOS, or nothing
  PplSetup setup;
  std::vector<MeasuredMethod> methods;
  CaseLog<PplRecord> log;
  Provenance by = {};

  Status CheckMethods();
  Status Tokenise(const Engine& engine);
  // Of one sample: a list for each reading of it, and in that by length.
  std::vector<std::vector<PplCase>> Readings(const MeasuredMethod& method, int64_t sample) const;
  Status RunMethod(const MeasuredMethod& method);
  Status RunReading(Engine& engine, const std::string& attention, const std::vector<PplCase>& cases);
  Result<PplScore> RunCase(PplSample& sample, const std::string& attention, const PplCase& c, bool score);
};

// Loads the model once with every method: what is wrong with one of them shows before hours of work.
Status Run::CheckMethods() {
  for (const std::string& attention : options.attention) {
    LH_ASSIGN(const std::unique_ptr<Engine> engine, hooks.load(attention));
    for (const int64_t length : options.lengths) LH_TRY(engine->ExpectText(length));
    if (methods.empty()) {
      LH_TRY(Tokenise(*engine));
      by = ProvenanceOf(*engine);
    }
    methods.push_back({attention, engine->FollowsTextLength()});
  }
  return {};
}

Status Run::Tokenise(const Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  LH_ASSIGN(tokens, tokenizer.Encode(options.text, {.cancel = hooks.cancel}));
  LH_ASSIGN(const std::size_t n_lost, tokenizer.BytesWithoutToken(options.text, hooks.cancel));
  const int64_t n_text = static_cast<int64_t>(tokens.size());
  if (hooks.on_text) hooks.on_text(n_text, n_lost);
  if (tokenizer.vocabulary().add_bos) begin = {tokenizer.vocabulary().bos};
  const int64_t needed = options.n_samples * (options.lengths.back() - static_cast<int64_t>(begin.size()));
  if (n_text < needed) {
    return InvalidInput(
        fmt::format("--text {} has {} tokens, but --samples {} of {} need {}: use a longer "
                    "text, fewer samples or shorter --lengths",
                    options.text_name, n_text, options.n_samples, options.lengths.back(), needed));
  }
  LH_ASSIGN(ModelSetup model, ModelSetupOf(engine, options.backend, options.rope));
  setup = {.model = std::move(model),
           .text = options.text_name,
           .text_bytes = static_cast<int64_t>(options.text.size()),
           .text_hash = TextHash(options.text)};
  return {};
}

std::vector<std::vector<PplCase>> Run::Readings(const MeasuredMethod& method, int64_t sample) const {
  const int64_t offset = PplOffset(sample, options.n_samples, static_cast<int64_t>(tokens.size()));
  std::vector<std::vector<PplCase>> readings;
  std::vector<int64_t> calls;
  for (const int64_t length : options.lengths) {
    if (readings.empty() || method.follows_length) {
      readings.emplace_back();
      calls.clear();
    }
    calls.push_back(length - options.n_score);
    readings.back().push_back({.length = length, .sample = sample, .offset = offset, .calls = calls});
  }
  return readings;
}

// Reads on to where the case's scoring begins, and scores unless the case is known.
Result<PplScore> Run::RunCase(PplSample& sample, const std::string& attention, const PplCase& c, bool score) {
  const auto on_work = [&](bool scoring, int64_t n) {
    return hooks.on_work ? hooks.on_work(attention, c, scoring, n) : std::function<void(double)>();
  };
  const int64_t n_prompt = c.calls.back();
  LH_TRY(sample.ReadTo(n_prompt, hooks.cancel, on_work(/*scoring=*/false, n_prompt - sample.n_read())));
  if (!score) return PplScore{};
  return sample.Score(c.n_score(), hooks.cancel, on_work(/*scoring=*/true, c.n_score()));
}

Status Run::RunReading(Engine& engine, const std::string& attention, const std::vector<PplCase>& cases) {
  const auto left = [&](const PplCase& c) { return log.Find(setup, attention, c) == nullptr; };
  // Lengths that are known are read all the same, as parts of the longer ones; none behind the last new one.
  const auto end = std::find_if(cases.rbegin(), cases.rend(), left).base();
  LH_CHECK(end != cases.begin());
  std::vector<TokenId> piece = begin;
  const auto first = tokens.begin() + cases[0].offset;
  piece.insert(piece.end(), first, first + (std::prev(end)->length - static_cast<int64_t>(begin.size())));
  LH_TRY(engine.ExpectText(cases.back().length));
  PplSample sample(engine, piece);
  auto start = std::chrono::steady_clock::now();
  for (auto c = cases.begin(); c != end; ++c) {
    if (Cancelled(hooks.cancel)) return Interrupted();
    const bool score = left(*c);
    LH_ASSIGN(const PplScore scored, RunCase(sample, attention, *c, score));
    if (!score) continue;
    const auto now = std::chrono::steady_clock::now();
    LH_TRY(log.AddRun({.setup = setup,
                       .attention = attention,
                       .which = *c,
                       .score = scored,
                       .seconds = std::chrono::duration<double>(now - start).count(),
                       .by = by}));
    start = now;
  }
  return {};
}

Status Run::RunMethod(const MeasuredMethod& method) {
  std::vector<std::vector<PplCase>> left;  // readings with anything new
  for (int64_t sample = 0; sample < options.n_samples; ++sample) {
    for (std::vector<PplCase>& reading : Readings(method, sample)) {
      bool complete = true;
      for (const PplCase& c : reading) {
        const PplRecord* const done = log.Find(setup, method.attention, c);
        if (done != nullptr) log.AddFound(*done);
        complete = complete && done != nullptr;
      }
      if (!complete) left.push_back(std::move(reading));
    }
  }
  if (left.empty()) return {};
  LH_ASSIGN(const std::unique_ptr<Engine> engine, hooks.load(method.attention));
  // What it says of itself is about the longest text.
  LH_TRY(engine->ExpectText(options.lengths.back()));
  if (hooks.on_method) hooks.on_method(*engine, method.attention);
  for (const std::vector<PplCase>& reading : left) {
    LH_TRY(RunReading(*engine, method.attention, reading));
  }
  return {};
}

}  // namespace

int64_t PplOffset(int64_t sample, int64_t n_samples, int64_t n_text) { return sample * n_text / n_samples; }

Status RunPpl(const PplOptions& given, const PplHooks& hooks, std::vector<PplRecord>& records) {
  LH_TRY(CheckOptions(given));
  PplOptions options = given;
  DropRepeats(options.attention);
  DropRepeats(options.lengths);
  std::sort(options.lengths.begin(), options.lengths.end());
  const int64_t n_cases =
      static_cast<int64_t>(options.attention.size() * options.lengths.size()) * options.n_samples;
  Run run{.options = options,
          .hooks = hooks,
          .tokens = {},
          .begin = {},
          .setup = {},
          .methods = {},
          .log = {records, n_cases, hooks.on_case}};
  LH_TRY(run.CheckMethods());
  if (!options.out_dir.empty()) {
    LH_ASSIGN(PplJournal journal, OpenPplJournal(options.out_dir));
    run.log.KeepIn(std::move(journal));
  }
  Status status;
  for (const MeasuredMethod& method : run.methods) {
    status = run.RunMethod(method);
    if (!status) break;
  }
  return run.log.Finish(status);
}

}  // namespace longheads
