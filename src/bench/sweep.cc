#include "bench/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <span>

#include "base/check.h"
#include "base/memory.h"
#include "engine/sampler.h"

namespace longheads {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUpTokens = 2048;  // of a block of a prompt, unless keys and values are on disk
constexpr int64_t kTurnTokens = 8;       // of one engine, before the other's

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Neither a cache of prefixes nor a lucky text makes a prompt of them faster.
std::vector<TokenId> RandomTokens(int64_t n, int64_t vocab_size, std::mt19937_64& random) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size));
  return tokens;
}

// From anywhere in the text, which must be as long.
std::vector<TokenId> Piece(std::span<const TokenId> text, int64_t n, std::mt19937_64& random) {
  const auto from = random() % (text.size() - static_cast<std::size_t>(n) + 1);
  const auto piece = text.subspan(from, static_cast<std::size_t>(n));
  return {piece.begin(), piece.end()};
}

// A text that an engine has read, and goes on with.
class Text {
 public:
  static Result<Text> Read(Engine& engine, std::span<const TokenId> tokens, const ForwardControl& control) {
    Text text(engine);
    const auto start = Clock::now();
    LH_ASSIGN(text.hidden_, engine.Prefill(text.session_, tokens, Outputs::kLast, control));
    text.next_ = ArgMax(engine.Logits(text.hidden_));
    text.read_seconds_ = Since(start);
    return text;
  }

  double read_seconds() const { return read_seconds_; }

  // `given`: in the place of the token that the text would go on with. Adds the seconds it took.
  Status Decode(std::optional<TokenId> given, std::vector<double>& seconds) {
    Session* const self = &session_;
    const TokenId fed = given.value_or(next_);
    const auto start = Clock::now();
    LH_TRY(engine_->Decode(std::span(&self, 1), std::span(&fed, 1), hidden_));
    next_ = ArgMax(engine_->Logits(hidden_));
    seconds.push_back(Since(start));
    return {};
  }

 private:
  explicit Text(Engine& engine) : engine_(&engine), session_(engine.NewSession()) {}

  Engine* engine_;
  Session session_;
  std::vector<float> hidden_;
  TokenId next_ = 0;
  double read_seconds_ = 0;
};

class Runner {
 public:
  // `in_memory`: for SweepOptions::beside_memory, else null.
  Runner(Engine& engine, Engine* in_memory, const SweepOptions& options, const SweepHooks& hooks,
         std::span<const TokenId> text)
      : engine_(engine), in_memory_(in_memory), options_(options), hooks_(hooks), text_(text) {}

  Status Run(SweepRow& row) {
    LH_TRY(engine_.ExpectText(row.length + options_.n_decode));
    row.compute = engine_.compute();
    row.kv_type = engine_.kv_type();
    row.kernels = engine_.DescribeKernels();
    row.prefill_cost = engine_.PlanPrefill(row.length);
    LH_TRY(WarmUp(engine_, row.length));
    if (in_memory_ != nullptr) {
      LH_TRY(in_memory_->ExpectText(row.length + options_.n_decode));
      LH_TRY(WarmUp(*in_memory_, row.length));
    }
    ResetPeakMemory();
    prefill_.clear();
    decode_.clear();
    decode_in_memory_.clear();
    AttentionCounts met;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      LH_TRY(Repeat(row, options_.seed + static_cast<uint64_t>(repeat), met));
    }
    row.prefill = Summarise(prefill_);
    row.in_bf16 = met.pairs_in_bf16 / std::max(1.0, met.pairs);
    if (!decode_.empty()) {
      row.decode = Summarise(decode_);
      row.decode_bytes = engine_.DecodeBytes(row.length + options_.n_decode / 2,
                                             met.keys_read / static_cast<double>(decode_.size()));
    }
    if (!decode_in_memory_.empty()) row.decode_in_memory = Summarise(decode_in_memory_);
    row.peak_memory = PeakMemory();
    return {};
  }

 private:
  // Weights come into memory, and buffers grow to what a block of a prompt takes.
  Status WarmUp(Engine& engine, int64_t length) {
    std::mt19937_64 random(options_.seed - 1);
    const int64_t n = std::min(length, kWarmUpTokens);
    const std::vector<TokenId> tokens = RandomTokens(n, engine.config().vocab_size, random);
    LH_ASSIGN(Text text, Text::Read(engine, tokens, {.cancel = hooks_.cancel}));
    std::vector<double> seconds;
    return options_.n_decode == 0 ? Status() : text.Decode(std::nullopt, seconds);
  }

  // Adds to `met` what the prompt and its tokens meet.
  Status Repeat(SweepRow& row, uint64_t seed, AttentionCounts& met) {
    std::mt19937_64 random(seed);
    const std::vector<TokenId> all = text_.empty()
                                         ? RandomTokens(row.length, engine_.config().vocab_size, random)
                                         : Piece(text_, row.length + options_.n_decode, random);
    const std::span<const TokenId> prompt = std::span(all).first(static_cast<std::size_t>(row.length));
    const std::span<const TokenId> given = std::span(all).subspan(prompt.size());
    ForwardControl control{.cancel = hooks_.cancel};
    std::optional<Text> in_memory;
    if (in_memory_ != nullptr) {
      if (hooks_.on_work) control.progress = hooks_.on_work(row.attention + " in memory", row.length);
      LH_ASSIGN(in_memory, Text::Read(*in_memory_, prompt, control));
    }
    if (hooks_.on_work) control.progress = hooks_.on_work(row.attention, row.length);
    const KvTraffic before = engine_.kv_traffic();
    met.Add(engine_.attention_counts(), -1);
    LH_ASSIGN(Text text, Text::Read(engine_, prompt, control));
    prefill_.push_back(text.read_seconds());
    const KvTraffic prefilled = engine_.kv_traffic();
    row.prefill_traffic += prefilled - before;
    for (int64_t i = 0; i < options_.n_decode; i += kTurnTokens) {
      const int64_t n = std::min(kTurnTokens, options_.n_decode - i);
      const std::span<const TokenId> turn =
          given.empty() ? given : given.subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(n));
      if (in_memory) {
        LH_TRY(Turn(*in_memory, n, turn, decode_in_memory_));
      }
      LH_TRY(Turn(text, n, turn, decode_));
    }
    row.decode_traffic += engine_.kv_traffic() - prefilled;
    met.Add(engine_.attention_counts());
    return {};
  }

  // Tokens that follow each other; `given` is of as many, or empty.
  Status Turn(Text& text, int64_t n, std::span<const TokenId> given, std::vector<double>& seconds) {
    for (int64_t i = 0; i < n; ++i) {
      if (Cancelled(hooks_.cancel)) return MakeError(ErrorKind::kCancelled, "interrupted");
      LH_TRY(text.Decode(given.empty() ? std::nullopt : std::optional(given[static_cast<std::size_t>(i)]),
                         seconds));
    }
    return {};
  }

  Engine& engine_;
  Engine* in_memory_;
  const SweepOptions& options_;
  const SweepHooks& hooks_;
  std::span<const TokenId> text_;
  std::vector<double> prefill_, decode_, decode_in_memory_;
};

}  // namespace

namespace {

Status CheckOptions(const SweepOptions& options) {
  if (options.lengths.empty() || *std::min_element(options.lengths.begin(), options.lengths.end()) < 1) {
    return InvalidInput("--lengths must name prompts of at least one token");
  }
  if (options.repeats < 1) return InvalidInput("--repeats must be at least 1");
  if (options.n_decode < 0) return InvalidInput("--predict must not be negative");
  if (options.beside_memory && options.n_decode == 0) {
    return InvalidInput("--beside-memory compares generated tokens: --predict must be at least 1");
  }
  return {};
}

// The tokens of options.text; none where prompts are random. Refuses a text that is shorter than a prompt
// with what follows it.
Result<std::vector<TokenId>> EncodeText(const Engine& engine, const SweepOptions& options,
                                        const CancelToken* cancel) {
  if (options.text.empty()) return std::vector<TokenId>();
  LH_ASSIGN(std::vector<TokenId> tokens, engine.tokenizer().Encode(options.text, {.cancel = cancel}));
  const int64_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  if (static_cast<int64_t>(tokens.size()) >= longest + options.n_decode) return tokens;
  return InvalidInput(fmt::format("--text has {} tokens; a prompt of {} and {} after it need a longer one",
                                  tokens.size(), longest, options.n_decode));
}

// For SweepOptions::beside_memory, else null. Refuses where memory has no room for the longest text.
Result<std::unique_ptr<Engine>> LoadInMemory(const std::string& attention, const SweepOptions& options,
                                             const SweepHooks& hooks) {
  if (!options.beside_memory) return nullptr;
  LH_ASSIGN(std::unique_ptr<Engine> engine, hooks.load_in_memory(attention));
  LH_CHECK(engine->kv_ram() == 0);
  const int64_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  const Status fits = engine->CheckOpening(longest + options.n_decode);
  if (fits) return engine;
  return MakeError(fits.error().kind,
                   fmt::format("--beside-memory wants everything in memory once: {}", fits.error().message));
}

}  // namespace

Status CheckSweep(const SweepOptions& options, const SweepHooks& hooks) {
  LH_TRY(CheckOptions(options));
  for (const std::string& attention : options.attention) {
    LH_ASSIGN(const std::unique_ptr<Engine> engine, hooks.load(attention));
    LH_TRY(EncodeText(*engine, options, hooks.cancel));
    for (const int64_t length : options.lengths) LH_TRY(engine->ExpectText(length + options.n_decode));
    LH_TRY(LoadInMemory(attention, options, hooks));
  }
  return {};
}

Status RunSweep(SweepOptions options, const SweepHooks& hooks, std::vector<SweepRow>& rows) {
  LH_TRY(CheckOptions(options));
  std::sort(options.lengths.begin(), options.lengths.end());
  for (const std::string& attention : options.attention) {
    ReturnFreeMemory();  // of the method before
    LH_ASSIGN(const std::unique_ptr<Engine> engine, hooks.load(attention));
    if (hooks.on_method) hooks.on_method(*engine, attention);
    LH_ASSIGN(const std::unique_ptr<Engine> in_memory, LoadInMemory(attention, options, hooks));
    LH_ASSIGN(const std::vector<TokenId> text, EncodeText(*engine, options, hooks.cancel));
    Runner runner(*engine, in_memory.get(), options, hooks, text);
    for (const int64_t length : options.lengths) {
      SweepRow row{.attention = attention, .length = length};
      LH_TRY(runner.Run(row));
      rows.push_back(row);
      if (hooks.on_row) hooks.on_row(row);
    }
  }
  return {};
}

}  // namespace longheads
