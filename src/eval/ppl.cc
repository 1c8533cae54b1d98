#include "eval/ppl.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>

#include "base/check.h"
#include "engine/esa_compression.h"
#include "eval/experiment.h"
#include "eval/task_options.h"

namespace longheads {
namespace {

constexpr int64_t kMostSamples = 1000;
constexpr int64_t kLeastScore = 2;  // one token has no standard error

Status CheckOptions(const PplOptions& o) {
  if (o.attention.empty()) return InvalidInput("--attn names no method: 'longheads methods' lists them");
  if (o.lengths.empty()) return InvalidInput("--lengths is empty: give one or more, as in 1k,4k");
  if (o.n_samples < 1 || o.n_samples > kMostSamples) {
    return InvalidInput(fmt::format("--samples is {}, but must be 1 to {}", o.n_samples, kMostSamples));
  }
  if (o.n_score < kLeastScore || o.n_score > kLongestText) {
    return InvalidInput(
        fmt::format("--score is {}, but must be {} to {}", o.n_score, kLeastScore, kLongestText));
  }
  for (const int64_t length : o.lengths) {
    if (length > o.n_score && length <= kLongestText) continue;
    return InvalidInput(
        fmt::format("--lengths has {}, but must be {} to {}: the {} scored tokens (--score) "
                    "are part of it and at least one comes before them",
                    length, o.n_score + 1, kLongestText, o.n_score));
  }
  return {};
}

struct MeasuredMethod {
  std::string attention;
  std::string esa_compression = {};   // empty where it has none
  bool follows_length = false;        // it is another one for each length: nothing that was read serves two
  std::optional<Error> refused = {};  // why it cannot be loaded: its cases fail
};

tl::unexpected<Error> OutOfMemory() { return MakeError(ErrorKind::kOutOfMemory, "out of memory"); }

bool IsInterrupt(const Status& status) { return !status && status.error().kind == ErrorKind::kCancelled; }

// Everything of one run that its cases share.
struct PplRun {
  const PplOptions& options;  // lengths ascend
  const PplHooks& hooks;
  std::vector<TokenId> tokens;  // of the text
  std::vector<TokenId> begin;   // of every sample: BOS, or nothing
  PplSetup setup;
  std::vector<MeasuredMethod> methods;
  CaseLog<PplRecord> log;
  Provenance by = {};

  PplSetup SetupOf(const std::string& attention) const;
  // Null where the case is to be run.
  const PplRecord* Done(const std::string& attention, const PplCase& c) const;
  Status CheckMethods();
  Status Tokenise(const Engine& engine);
  // Of one sample: a list for each reading of it, and in that by length.
  std::vector<std::vector<PplCase>> Readings(const MeasuredMethod& method, int64_t sample) const;
  // Those readings with anything to run; what is done is reported.
  std::vector<std::vector<PplCase>> ReadingsLeft(const MeasuredMethod& method);
  Result<std::unique_ptr<Engine>> Load(const MeasuredMethod& method) const;
  Status RunMethod(const MeasuredMethod& method);
  Status RunReading(Engine& engine, const std::string& attention, const std::vector<PplCase>& cases);
  Status FailReading(const std::string& attention, const std::vector<PplCase>& cases,
                     const std::string& reason);
  std::vector<TokenId> Piece(const PplCase& c) const;
  Status Begin(Engine& engine, std::span<const TokenId> piece, int64_t longest,
               std::optional<PplSample>& sample) const;
  Status ReadOn(PplSample& sample, const std::string& attention, const PplCase& c) const;
  Result<PplScore> Score(PplSample& sample, const std::string& attention, const PplCase& c) const;
  std::function<void(double)> Progress(const std::string& attention, const PplCase& c, bool scoring,
                                       int64_t n_tokens) const;
};

PplSetup PplRun::SetupOf(const std::string& attention) const {
  PplSetup own = setup;
  const auto method = std::ranges::find(methods, attention, &MeasuredMethod::attention);
  if (method != methods.end()) own.model.esa_compression = method->esa_compression;
  return own;
}

const PplRecord* PplRun::Done(const std::string& attention, const PplCase& c) const {
  const PplRecord* const found = log.Find(SetupOf(attention), attention, c);
  return found != nullptr && !found->failed.empty() && options.retry_failed ? nullptr : found;
}

// Loads the model once with every method: what is wrong with one of them shows before hours of work, or, for
// who keeps going, is remembered.
Status PplRun::CheckMethods() {
  bool loaded = false;
  for (const std::string& attention : options.attention) {
    const Result<std::unique_ptr<Engine>> engine = hooks.load(attention);
    if (!engine && options.keep_going) {
      methods.push_back({.attention = attention, .refused = engine.error()});
      continue;
    }
    if (!engine) return tl::unexpected<Error>(engine.error());
    if (!options.keep_going) {
      for (const int64_t length : options.lengths) LH_TRY((*engine)->ExpectText(length));
    }
    if (!loaded) {
      LH_TRY(Tokenise(**engine));
      by = ProvenanceOf(**engine);
    }
    loaded = true;
    LH_ASSIGN(std::string compression, EsaCompressionOf(**engine));
    methods.push_back({.attention = attention,
                       .esa_compression = std::move(compression),
                       .follows_length = (*engine)->FollowsTextLength()});
  }
  // Without a model not even their cases are known.
  if (!loaded) return tl::unexpected<Error>(*methods.front().refused);
  return {};
}

Status PplRun::Tokenise(const Engine& engine) {
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

std::vector<std::vector<PplCase>> PplRun::Readings(const MeasuredMethod& method, int64_t sample) const {
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

std::function<void(double)> PplRun::Progress(const std::string& attention, const PplCase& c, bool scoring,
                                             int64_t n_tokens) const {
  return hooks.on_work ? hooks.on_work(attention, c, scoring, n_tokens) : std::function<void(double)>();
}

// The sample's tokens up to the case's length.
std::vector<TokenId> PplRun::Piece(const PplCase& c) const {
  std::vector<TokenId> piece = begin;
  const auto first = tokens.begin() + c.offset;
  piece.insert(piece.end(), first, first + (c.length - static_cast<int64_t>(begin.size())));
  return piece;
}

Status PplRun::Begin(Engine& engine, std::span<const TokenId> piece, int64_t longest,
                     std::optional<PplSample>& sample) const try {
  LH_TRY(engine.ExpectText(longest));
  sample.emplace(engine, piece);
  return {};
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

// To where the case's scoring begins.
Status PplRun::ReadOn(PplSample& sample, const std::string& attention, const PplCase& c) const try {
  const int64_t n_prompt = c.calls.back();
  return sample.ReadTo(n_prompt, hooks.cancel,
                       Progress(attention, c, /*scoring=*/false, n_prompt - sample.n_read()));
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

Result<PplScore> PplRun::Score(PplSample& sample, const std::string& attention, const PplCase& c) const try {
  return sample.Score(c.n_score(), hooks.cancel, Progress(attention, c, /*scoring=*/true, c.n_score()));
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

Status PplRun::RunReading(Engine& engine, const std::string& attention, const std::vector<PplCase>& cases) {
  const auto left = [&](const PplCase& c) { return Done(attention, c) == nullptr; };
  // Lengths that are known are read all the same, as parts of the longer ones; none behind the last new one.
  const auto end = std::find_if(cases.rbegin(), cases.rend(), left).base();
  LH_CHECK(end != cases.begin());
  const std::vector<TokenId> piece = Piece(*std::prev(end));
  std::optional<PplSample> sample;
  auto start = std::chrono::steady_clock::now();
  // Where the sample cannot be read on it ends, for all longer cases.
  Status read = Begin(engine, piece, cases.back().length, sample);
  for (auto c = cases.begin(); c != end; ++c) {
    if (Cancelled(hooks.cancel)) return Interrupted();
    if (read) read = ReadOn(*sample, attention, *c);
    if (IsInterrupt(read)) return Interrupted();
    if (!left(*c)) continue;
    const Result<PplScore> scored =
        read ? Score(*sample, attention, *c) : Result<PplScore>(tl::unexpected<Error>(read.error()));
    if (!scored && scored.error().kind == ErrorKind::kCancelled) return Interrupted();
    const auto now = std::chrono::steady_clock::now();
    LH_TRY(log.AddRun({.setup = SetupOf(attention),
                       .attention = attention,
                       .which = *c,
                       .score = scored.value_or(PplScore{}),
                       .seconds = std::chrono::duration<double>(now - start).count(),
                       .by = by,
                       .failed = scored ? "" : scored.error().message}));
    start = now;
  }
  return {};
}

Status PplRun::FailReading(const std::string& attention, const std::vector<PplCase>& cases,
                           const std::string& reason) {
  for (const PplCase& c : cases) {
    if (Done(attention, c) != nullptr) continue;
    LH_TRY(log.AddRun(
        {.setup = SetupOf(attention), .attention = attention, .which = c, .by = by, .failed = reason}));
  }
  return {};
}

std::vector<std::vector<PplCase>> PplRun::ReadingsLeft(const MeasuredMethod& method) {
  std::vector<std::vector<PplCase>> left;
  for (int64_t sample = 0; sample < options.n_samples; ++sample) {
    if (!options.shard.Has(sample)) continue;
    for (std::vector<PplCase>& reading : Readings(method, sample)) {
      bool complete = true;
      for (const PplCase& c : reading) {
        const PplRecord* const done = Done(method.attention, c);
        if (done != nullptr) log.AddFound(*done);
        complete = complete && done != nullptr;
      }
      if (!complete) left.push_back(std::move(reading));
    }
  }
  return left;
}

// What it says of itself is about the longest text.
Result<std::unique_ptr<Engine>> PplRun::Load(const MeasuredMethod& method) const {
  if (method.refused) return tl::unexpected<Error>(*method.refused);
  LH_ASSIGN(std::unique_ptr<Engine> engine, hooks.load(method.attention));
  const Result<bool> expected = engine->ExpectText(options.lengths.back());
  // Shorter ones may do.
  if (!expected && !options.keep_going) return tl::unexpected<Error>(expected.error());
  return engine;
}

Status PplRun::RunMethod(const MeasuredMethod& method) {
  const std::vector<std::vector<PplCase>> left = ReadingsLeft(method);
  if (left.empty()) return {};
  const Result<std::unique_ptr<Engine>> engine = Load(method);
  if (!engine && !options.keep_going) return tl::unexpected<Error>(engine.error());
  if (engine && hooks.on_method) hooks.on_method(**engine, method.attention);
  for (const std::vector<PplCase>& reading : left) {
    LH_TRY(engine ? RunReading(**engine, method.attention, reading)
                  : FailReading(method.attention, reading, engine.error().message));
  }
  return {};
}

// How many of n samples are this shard's.
int64_t CountOf(const Shard& shard, int64_t n) { return (n - shard.index + shard.count) / shard.count; }

}  // namespace

int64_t PplOffset(int64_t sample, int64_t n_samples, int64_t n_text) { return sample * n_text / n_samples; }

Status RunPpl(const PplOptions& given, const PplHooks& hooks, std::vector<PplRecord>& records) {
  LH_TRY(CheckOptions(given));
  PplOptions options = given;
  DropRepeats(options.attention);
  DropRepeats(options.lengths);
  std::sort(options.lengths.begin(), options.lengths.end());
  const int64_t n_cases = static_cast<int64_t>(options.attention.size() * options.lengths.size()) *
                          CountOf(options.shard, options.n_samples);
  PplRun run{.options = options,
             .hooks = hooks,
             .tokens = {},
             .begin = {},
             .setup = {},
             .methods = {},
             .log = {records, n_cases, hooks.on_case}};
  LH_TRY(run.CheckMethods());
  if (!options.out_dir.empty()) {
    LH_ASSIGN(PplJournal journal, OpenPplShard(options.out_dir, options.shard));
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
