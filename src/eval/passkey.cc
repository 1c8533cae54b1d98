#include "eval/passkey.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "attention/spec.h"
#include "base/seconds.h"
#include "engine/esa_compression.h"
#include "engine/selection_trace.h"
#include "eval/experiment.h"
#include "eval/task_options.h"

namespace longheads {
namespace {

constexpr int64_t kShortestPrompt = 200;  // the prompt without filler takes most of it
constexpr int64_t kMostTimes = 1000;      // depths, repeats, tokens of an answer

Status CheckOptions(const PasskeyOptions& o) {
  if (o.attention.empty()) return InvalidInput("--attn names no method: 'longheads methods' lists them");
  if (o.lengths.empty()) return InvalidInput("--lengths is empty: give one or more, as in 4k,8k");
  for (const int64_t length : o.lengths) {
    if (length < kShortestPrompt || length > kLongestText) {
      return InvalidInput(
          fmt::format("--lengths has {}, but must be {} to {}: the task, the key and the question alone take "
                      "more than a hundred tokens",
                      length, kShortestPrompt, kLongestText));
    }
  }
  const auto check = [](const char* option, int64_t value, int64_t least) -> Status {
    if (value >= least && value <= kMostTimes) return {};
    return InvalidInput(fmt::format("{} is {}, but must be {} to {}", option, value, least, kMostTimes));
  };
  LH_TRY(check("--depths", o.n_depths, 1));
  LH_TRY(check("--repeats", o.n_repeats, 1));
  LH_TRY(check("-n", o.max_tokens, 0));
  if (o.form != "auto" && !FindPromptForm(o.form)) {
    return InvalidInput(fmt::format("--form is '{}', but must be auto, plain or chat", o.form));
  }
  if (!FindPasskeyFiller(o.filler)) {
    return InvalidInput(fmt::format("--filler is '{}', but must be lines or line", o.filler));
  }
  return {};
}

Result<PasskeySetup> Setup(const PasskeyOptions& options, const Engine& engine, PromptForm form) {
  const int64_t by_form = form == PromptForm::kChat ? kChatAnswerTokens : kPlainAnswerTokens;
  LH_ASSIGN(ModelSetup model, ModelSetupOf(engine, options.backend, options.rope));
  return PasskeySetup{.model = std::move(model),
                      .style = {.form = form, .filler = *FindPasskeyFiller(options.filler)},
                      .max_tokens = options.max_tokens > 0 ? options.max_tokens : by_form,
                      .seed = options.seed};
}

// Of all shards, in the order of their keys' places, so that each needs at most a little more of the common
// text.
std::vector<PasskeyCase> AllCases(const PasskeyOptions& options) {
  std::vector<PasskeyCase> cases;
  for (const int64_t length : options.lengths) {
    for (int64_t d = 0; d < options.n_depths; ++d) {
      for (int64_t repeat = 0; repeat < options.n_repeats; ++repeat) {
        cases.push_back(
            {.length = length, .depth_ppm = PasskeyDepthPpm(d, options.n_depths), .repeat = repeat});
      }
    }
  }
  std::stable_sort(cases.begin(), cases.end(), [](const PasskeyCase& a, const PasskeyCase& b) {
    return a.length * a.depth_ppm < b.length * b.depth_ppm;
  });
  return cases;
}

std::vector<PasskeyCase> CasesOf(const Shard& shard, const std::vector<PasskeyCase>& all) {
  std::vector<PasskeyCase> cases;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (shard.Has(static_cast<int64_t>(i))) cases.push_back(all[i]);
  }
  return cases;
}

int64_t DigitCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Counts the forced answer's digits that the model itself would have written at their places.
Status ForceAnswer(Engine& engine, Session& session, std::vector<float> hidden,
                   std::span<const TokenId> forced, const CancelToken* cancel, PasskeyAnswer& answer) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::size_t n_known = tokenizer.vocabulary().tokens.size();  // the rest of the rows is padding
  Session* const self = &session;
  std::size_t last = 0;  // nothing behind the last digit is asked for
  for (std::size_t i = 0; i < forced.size(); ++i) {
    if (DigitCount(tokenizer.TokenBytes(forced[i], /*special=*/false)) > 0) last = i;
  }
  for (std::size_t i = 0; i <= last; ++i) {
    if (Cancelled(cancel)) return Interrupted();
    const int64_t n_digits = DigitCount(tokenizer.TokenBytes(forced[i], /*special=*/false));
    if (n_digits > 0) {
      const std::vector<float> logits = engine.Logits(hidden);
      answer.digits += n_digits;
      if (ArgMax(std::span(logits).first(n_known)) == forced[i]) answer.digits_right += n_digits;
    }
    if (i == last) break;
    LH_ASSIGN(hidden, engine.Decode(std::span(&self, 1), forced.subspan(i, 1)));
  }
  return {};
}

// Everything of one run that its cases share.
struct PasskeyRun {
  const PasskeyOptions& options;
  const PasskeyHooks& hooks;
  std::vector<PasskeyCase> cases;
  PasskeySetup setup;
  std::map<std::string, std::string> compressions = {};  // of methods that have one (EsaCompressionOf)
  CaseLog<PasskeyRecord> log;
  Provenance by = {};

  // With the answer; the same for all cases of a length, which is met within 1%.
  int64_t LongestText(int64_t length) const { return length + length / 100 + setup.max_tokens; }

  PasskeySetup SetupOf(const std::string& attention) const;
  // Null where the case is to be run.
  const PasskeyRecord* Done(const std::string& attention, const PasskeyCase& c) const;
  // Of a case that nothing is known of yet.
  PasskeyRecord Record(const std::string& attention, const PasskeyCase& c) const;
  Status CheckMethods();
  Status CheckModel(const Engine& engine);
  Result<std::unique_ptr<Engine>> Load(const std::string& attention) const;
  // Fills in what comes of the case.
  Status RunCase(Engine& engine, PromptReader& reader, PasskeyRecord& record);
  Status RunCases(Engine& engine, const std::string& attention, std::span<const PasskeyCase> left);
  Status FailCases(const std::string& attention, std::span<const PasskeyCase> left,
                   const std::string& reason);
  Status RunMethod(const std::string& attention);
};

PasskeySetup PasskeyRun::SetupOf(const std::string& attention) const {
  PasskeySetup own = setup;
  const auto compression = compressions.find(attention);
  if (compression != compressions.end()) own.model.esa_compression = compression->second;
  return own;
}

const PasskeyRecord* PasskeyRun::Done(const std::string& attention, const PasskeyCase& c) const {
  const PasskeyRecord* const found = log.Find(SetupOf(attention), attention, c);
  return found != nullptr && !found->failed.empty() && options.retry_failed ? nullptr : found;
}

PasskeyRecord PasskeyRun::Record(const std::string& attention, const PasskeyCase& c) const {
  return {.setup = SetupOf(attention),
          .attention = attention,
          .which = c,
          .key = PasskeyKey(options.seed, c),
          .answer = {},
          .by = by};
}

// Loads the model once with every method: what is wrong with one of them shows before hours of work. Who
// keeps going needs only one that can be loaded, for what all have in common, and those that were fitted to
// it.
Status PasskeyRun::CheckMethods() {
  bool checked = false;
  std::optional<Error> refused;
  for (const std::string& attention : options.attention) {
    const Result<AttentionSpec> spec = ParseSpec(attention);
    if (options.keep_going && checked && !(spec && spec->policy == "esa")) continue;
    const Result<std::unique_ptr<Engine>> engine = hooks.load(attention);
    if (!engine && options.keep_going) {
      refused = engine.error();
      continue;
    }
    if (!engine) return tl::unexpected<Error>(engine.error());
    LH_ASSIGN(std::string compression, EsaCompressionOf(**engine));
    if (!compression.empty()) compressions.emplace(attention, std::move(compression));
    if (!std::exchange(checked, true)) LH_TRY(CheckModel(**engine));
    if (options.keep_going) continue;
    for (const int64_t length : options.lengths) LH_TRY((*engine)->ExpectText(LongestText(length)));
  }
  if (!checked) return tl::unexpected<Error>(*refused);
  return {};
}

// What is the same for all methods.
Status PasskeyRun::CheckModel(const Engine& engine) {
  LH_ASSIGN(const PromptForm form, ResolvePromptForm(options.form, engine));
  LH_ASSIGN(setup, Setup(options, engine, form));
  by = ProvenanceOf(engine);
  const int64_t shortest = *std::min_element(options.lengths.begin(), options.lengths.end());
  for (const PasskeyCase& c : AllCases(options)) {
    if (c.length == shortest && c.repeat == 0)
      LH_TRY(BuildPasskeyPrompt(engine, setup.style, c, PasskeyKey(options.seed, c), hooks.cancel));
  }
  return {};
}

// "longheads,window=2048-4096-0.5-0.trace": method, length, depth, repeat.
std::string TracePath(const PasskeyOptions& options, const std::string& attention, const PasskeyCase& c) {
  return std::filesystem::path(options.trace_dir) /
         fmt::format("{}-{}-{}-{}.trace", attention, c.length, c.depth(), c.repeat);
}

Status PasskeyRun::RunCase(Engine& engine, PromptReader& reader, PasskeyRecord& record) try {
  const std::string& attention = record.attention;
  const PasskeyCase& c = record.which;
  LH_ASSIGN(const Prompt prompt, BuildPasskeyPrompt(engine, setup.style, c, record.key, hooks.cancel));
  LH_ASSIGN(const bool changed, engine.ExpectText(LongestText(c.length)));
  if (changed) reader.Forget();
  const auto on_prefill = [&](int64_t n_tokens) {
    return hooks.on_prefill ? hooks.on_prefill(attention, c, n_tokens) : std::function<void(double)>();
  };
  std::unique_ptr<SelectionTrace> trace;
  if (!options.trace_dir.empty()) {
    LH_ASSIGN(trace, SelectionTrace::Start(engine,
                                           {.path = TracePath(options, attention, c),
                                            .program = by.program,
                                            .attention = attention,
                                            .needle = PasskeySentence(record.key)},
                                           prompt.tokens));
  }
  LH_ASSIGN(PromptReader::Prompted prompted, reader.Read(prompt, hooks.cancel, on_prefill));
  const int64_t shared = prompted.shared;
  LH_ASSIGN(PasskeyAnswer answer,
            AnswerPasskey(engine, setup.style.form, prompt, record.key, std::move(prompted), setup.max_tokens,
                          hooks.cancel, trace.get()));
  record.tokens = static_cast<int64_t>(prompt.tokens.size());
  record.shared = shared;
  record.answer = std::move(answer.text);
  record.correct = answer.correct;
  record.digits_right = answer.digits_right;
  record.digits = answer.digits;
  return {};
} catch (const std::bad_alloc&) {
  return MakeError(ErrorKind::kOutOfMemory, "out of memory");
}

// What it says of itself is about the longest text.
Result<std::unique_ptr<Engine>> PasskeyRun::Load(const std::string& attention) const {
  LH_ASSIGN(std::unique_ptr<Engine> engine, hooks.load(attention));
  const Result<bool> expected = engine->ExpectText(LongestText(*std::ranges::max_element(options.lengths)));
  // Shorter ones may do.
  if (!expected && !options.keep_going) return tl::unexpected<Error>(expected.error());
  return engine;
}

Status PasskeyRun::FailCases(const std::string& attention, std::span<const PasskeyCase> left,
                             const std::string& reason) {
  for (const PasskeyCase& c : left) {
    PasskeyRecord record = Record(attention, c);
    record.failed = reason;
    LH_TRY(log.AddRun(record));
  }
  return {};
}

Status PasskeyRun::RunMethod(const std::string& attention) {
  std::vector<PasskeyCase> left;
  for (const PasskeyCase& c : cases) {
    if (const PasskeyRecord* const done = Done(attention, c)) {
      log.AddFound(*done);
    } else {
      left.push_back(c);
    }
  }
  if (left.empty()) return {};
  const Result<std::unique_ptr<Engine>> engine = Load(attention);
  if (!engine && options.keep_going) return FailCases(attention, left, engine.error().message);
  if (!engine) return tl::unexpected<Error>(engine.error());
  if (hooks.on_method) hooks.on_method(**engine, attention);
  if ((*engine)->FollowsTextLength()) {  // what was read for one length is of no use for another
    std::ranges::stable_sort(left, {}, &PasskeyCase::length);
  }
  return RunCases(**engine, attention, left);
}

Status PasskeyRun::RunCases(Engine& engine, const std::string& attention, std::span<const PasskeyCase> left) {
  PromptReader reader(engine, /*share=*/true);
  for (const PasskeyCase& c : left) {
    if (Cancelled(hooks.cancel)) return Interrupted();
    const auto start = std::chrono::steady_clock::now();
    PasskeyRecord record = Record(attention, c);
    const Status done = RunCase(engine, reader, record);
    if (!done && done.error().kind == ErrorKind::kCancelled) return Interrupted();
    if (!done) {
      record.failed = done.error().message;
      reader.Forget();  // frees what it kept, should memory have been short
    }
    record.seconds = SecondsSince(start);
    LH_TRY(log.AddRun(record));
  }
  return {};
}

}  // namespace

Result<PasskeyAnswer> AnswerPasskey(Engine& engine, PromptForm form, const Prompt& prompt, int64_t key,
                                    PromptReader::Prompted prompted, int64_t max_tokens,
                                    const CancelToken* cancel, SelectionTrace* trace) {
  PasskeyAnswer answer;
  Session forced_session = engine.Fork(prompted.session);
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.cancel = cancel;
  LH_ASSIGN(Generated free, engine.Generate(prompted.session, prompted.hidden, options));
  if (free.reason == StopReason::kCancelled) return Interrupted();
  if (trace != nullptr) LH_TRY(trace->Finish(free.tokens));
  answer.text = std::move(free.text);
  answer.correct = AnswersPasskey(answer.text, key);
  LH_ASSIGN(const std::vector<TokenId> forced, ForcedPasskeyAnswer(engine, form, prompt, key));
  LH_TRY(ForceAnswer(engine, forced_session, std::move(prompted.hidden), forced, cancel, answer));
  return answer;
}

Status RunPasskey(const PasskeyOptions& given, const PasskeyHooks& hooks,
                  std::vector<PasskeyRecord>& records) {
  LH_TRY(CheckOptions(given));
  PasskeyOptions options = given;
  DropRepeats(options.attention);
  DropRepeats(options.lengths);
  std::vector<PasskeyCase> cases = CasesOf(options.shard, AllCases(options));
  const int64_t n_cases = static_cast<int64_t>(options.attention.size() * cases.size());
  PasskeyRun run{.options = options,
                 .hooks = hooks,
                 .cases = std::move(cases),
                 .setup = {},
                 .log = {records, n_cases, hooks.on_case}};
  LH_TRY(run.CheckMethods());
  if (!options.trace_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.trace_dir, error);
    if (error) {
      return InvalidInput(
          fmt::format("--trace {}: cannot make the directory: {}", options.trace_dir, error.message()));
    }
  }
  if (!options.out_dir.empty()) {
    LH_ASSIGN(PasskeyJournal journal, OpenPasskeyShard(options.out_dir, options.shard));
    run.log.KeepIn(std::move(journal));
  }
  Status status;
  for (const std::string& attention : options.attention) {
    status = run.RunMethod(attention);
    if (!status) break;
  }
  return run.log.Finish(status);
}

}  // namespace longheads
