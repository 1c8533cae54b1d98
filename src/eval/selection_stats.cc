#include "eval/selection_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "eval/experiment.h"
#include "eval/passkey.h"
#include "eval/size.h"

namespace longheads {
namespace {

constexpr int64_t kSummaryTokens = 100;
constexpr const char* kSummaryRequest = "\n\nSum up the text above in a few sentences.";

// Takes the observer away again, however the sample ends.
class Observing {
 public:
  Observing(Engine& engine, SelectionObserver* observer) : engine_(engine) { engine_.SetObserver(observer); }
  ~Observing() { engine_.SetObserver(nullptr); }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  Engine& engine_;
};

}  // namespace

double GiniCoefficient(std::span<const int64_t> counts) {
  std::vector<int64_t> sorted(counts.begin(), counts.end());
  std::ranges::sort(sorted);
  // Of sorted counts the double sum is 2 sum_i (2 i - M + 1) x_i.
  double sum = 0, weighted = 0;
  const double m = static_cast<double>(sorted.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double x = static_cast<double>(sorted[i]);
    sum += x;
    weighted += (2 * static_cast<double>(i) - m + 1) * x;
  }
  return sum == 0 ? 0 : weighted / (m * sum);
}

BlockTally::BlockTally(int64_t n_layers, const HeadShape& shape, const BlockGrid& blocks, int64_t n_blocks)
    : shape_(shape),
      blocks_(blocks),
      n_blocks_(Size(n_blocks)),
      cells_(Size(n_layers * shape.n_heads) * n_blocks_) {}

std::span<BlockTally::Cell> BlockTally::Of(int64_t layer, int64_t head) {
  return std::span(cells_).subspan(Size(layer * shape_.n_heads + head) * n_blocks_, n_blocks_);
}

void BlockTally::OnChoice(const BlockChoice& choice) {
  const std::lock_guard lock(mutex_);
  const bool scored = !choice.scores.empty();
  const int64_t times = choice.token_end - choice.token_begin;
  if (!scored && choice.n_candidates > 0) has_scores_ = false;
  for (int64_t head = choice.head_begin; head < choice.head_end; ++head) {
    const std::span<Cell> cells = Of(choice.layer, head);
    for (int64_t i = 0; i < choice.n_candidates; ++i) {
      if (Size(choice.first + i) >= n_blocks_) break;
      Cell& cell = cells[Size(choice.first + i)];
      cell.candidate += times;
      if (scored) cell.score += static_cast<double>(times) * static_cast<double>(choice.scores[Size(i)]);
    }
    for (const int32_t block : choice.taken) {
      if (Size(block) < n_blocks_) cells[Size(block)].taken += times;
    }
  }
}

void BlockTally::OnPlan(const Policy&, const QueryBlock& block, Phase, Plan& plan) {
  std::vector<HeadSelection> heads(Size(shape_.group()));
  for (std::size_t token = 0; token < block.tokens.size(); ++token) {
    for (HeadSelection& head : heads) head.seen.clear();
    ReadSeen(block, plan, token, heads);
    const std::lock_guard lock(mutex_);
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const std::span<Cell> cells = Of(block.layer, block.kv_head * shape_.group() + static_cast<int64_t>(h));
      int64_t next = 0;  // a block that two ranges touch counts once
      for (const KeyRange& range : heads[h].seen) {
        if (range.end <= blocks_.first) continue;
        const int64_t first =
            std::max(next, (std::max(range.begin, blocks_.first) - blocks_.first) / blocks_.tokens);
        const int64_t last = (range.end - 1 - blocks_.first) / blocks_.tokens;
        for (int64_t b = first; b <= last && Size(b) < n_blocks_; ++b) ++cells[Size(b)].seen;
        next = std::max(next, last + 1);
      }
    }
  }
}

std::vector<int64_t> BlockTally::seen() const {
  std::vector<int64_t> sums(n_blocks_);
  for (std::size_t i = 0; i < cells_.size(); ++i) sums[i % n_blocks_] += cells_[i].seen;
  return sums;
}

std::vector<int64_t> BlockTally::taken() const {
  std::vector<int64_t> sums(n_blocks_);
  for (std::size_t i = 0; i < cells_.size(); ++i) sums[i % n_blocks_] += cells_[i].taken;
  return sums;
}

std::vector<double> BlockTally::scores() const {
  std::vector<double> sums(n_blocks_);
  std::vector<int64_t> candidate(n_blocks_);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    sums[i % n_blocks_] += cells_[i].score;
    candidate[i % n_blocks_] += cells_[i].candidate;
  }
  for (std::size_t b = 0; b < n_blocks_; ++b) {
    if (candidate[b] == 0) sums[b] = -std::numeric_limits<double>::infinity();
  }
  return sums;
}

int64_t BestRank(std::span<const double> values, std::span<const int64_t> ranked,
                 std::span<const int64_t> wanted) {
  int64_t best = 0;
  for (const int64_t block : wanted) {
    if (ranked[Size(block)] == 0) continue;
    int64_t rank = 1;
    for (std::size_t other = 0; other < values.size(); ++other) {
      if (ranked[other] == 0 || other == Size(block)) continue;
      const bool before = values[other] > values[Size(block)] ||
                          (values[other] == values[Size(block)] && other < Size(block));
      rank += before ? 1 : 0;
    }
    best = best == 0 ? rank : std::min(best, rank);
  }
  return best;
}

std::vector<int64_t> BlocksOf(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                              const std::string& text, const BlockGrid& blocks) {
  std::string bytes;
  std::vector<std::size_t> ends;  // of each token, in bytes
  for (const TokenId token : tokens) {
    bytes += tokenizer.TokenBytes(token, /*special=*/true);
    ends.push_back(bytes.size());
  }
  std::vector<int64_t> found;
  for (std::size_t at = 0; (at = bytes.find(text, at)) != std::string::npos; at += text.size()) {
    const auto first = std::ranges::upper_bound(ends, at) - ends.begin();
    const auto last = std::ranges::lower_bound(ends, at + text.size()) - ends.begin();
    for (int64_t token = first; token <= last; ++token) {
      if (token >= blocks.first) found.push_back((token - blocks.first) / blocks.tokens);
    }
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

SelectionTask::SelectionTask(std::optional<Haystack> haystack, SelectionOptions options)
    : haystack_(std::move(haystack)), options_(std::move(options)) {
  for (const int64_t length : options_.lengths) {
    for (int64_t s = 0; s < options_.n_samples; ++s) {
      samples_.push_back({.id = options_.summary ? fmt::format("{}-{}", length, s)
                                                 : fmt::format("{}-{}of{}", length, s, options_.n_samples),
                          .cell = {{"length", length}},
                          .tokens = length,
                          .number = s});
    }
  }
}

std::vector<std::string> SelectionTask::shown() const {
  if (options_.summary) return {"gini"};
  return {"gini", "top1", "top5", "accuracy"};
}

Json SelectionTask::Setup() const {
  // Before 2 a prompt to be summed up could be a token longer than its length.
  Json setup = {{"version", options_.summary ? 2 : 1}, {"text", options_.summary ? "summary" : "passkey"}};
  if (options_.summary) {
    setup["haystack"] = haystack_->name();
    setup["haystack_hash"] = haystack_->hash();
  } else {
    setup["seed"] = options_.seed;
  }
  setup["decode"] = options_.n_decode;
  return setup;
}

Result<SelectionTask::Asked> SelectionTask::Ask(const Engine& engine, PromptForm form, const Sample& sample,
                                                const CancelToken* cancel) const {
  Asked asked{.max_new = options_.n_decode};
  if (!options_.summary) {
    const PasskeyCase c{.length = sample.tokens,
                        .depth_ppm = PasskeyDepthPpm(sample.number, options_.n_samples)};
    const int64_t key = PasskeyKey(options_.seed, c);
    LH_ASSIGN(asked.prompt, BuildPasskeyPrompt(engine, {.form = form}, c, key, cancel));
    asked.key = fmt::format("{}", key);
    if (asked.max_new == 0)
      asked.max_new = form == PromptForm::kChat ? kChatAnswerTokens : kPlainAnswerTokens;
    return asked;
  }
  if (asked.max_new == 0) asked.max_new = kSummaryTokens;
  LH_ASSIGN(const Prompt frame, EncodePromptText(engine, form, {.rest = kSummaryRequest}, cancel));
  const int64_t n_wanted = sample.tokens - static_cast<int64_t>(frame.tokens.size());
  LH_ASSIGN(const std::vector<TokenId> tokens,
            haystack_->Tokens(engine.tokenizer(), sample.number, n_wanted, cancel));
  // Without a text the frame may be fewer tokens: line ends of template and request are one then. A text's
  // end, too, may become more tokens than it was, where it is cut inside a word.
  int64_t excess = 0;
  for (int64_t n_text = static_cast<int64_t>(tokens.size()); n_text > 0; n_text -= excess) {
    const std::string text =
        engine.tokenizer().Decode(std::span(tokens).first(Size(n_text)), /*special=*/false);
    LH_ASSIGN(asked.prompt, EncodePromptText(engine, form, {.rest = text + kSummaryRequest}, cancel));
    excess = static_cast<int64_t>(asked.prompt.tokens.size()) - sample.tokens;
    if (excess <= 0) return asked;
  }
  return InvalidInput(fmt::format(
      "--lengths {} leaves no tokens for a text beside the template and the request", sample.tokens));
}

Status SelectionTask::Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const {
  LH_TRY(Ask(engine, form, *std::ranges::min_element(samples_, {}, &Sample::tokens), cancel));
  return {};
}

Result<SampleOutcome> SelectionTask::Measure(const TaskContext& context, const Sample& sample) {
  Engine& engine = context.engine;
  LH_ASSIGN(const Asked asked, Ask(engine, context.form, sample, context.cancel));
  const std::span<const TokenId> prompt(asked.prompt.tokens);
  LH_TRY(engine.ExpectText(static_cast<int64_t>(prompt.size()) + asked.max_new));
  context.reader.Forget();
  const std::optional<BlockGrid> blocks = engine.SelectionBlocks();
  if (!blocks) {
    return Unsupported(
        "heads choose no blocks by this method: there is nothing to count (longheads, infllm, quest, "
        "moba and landmark choose)");
  }
  const std::vector<TokenId> model_tokens = engine.ModelTokens(prompt);
  const int64_t n_keys = static_cast<int64_t>(model_tokens.size());
  const int64_t n_blocks = std::max<int64_t>(0, n_keys - blocks->first + blocks->tokens - 1) / blocks->tokens;
  const ModelConfig& config = engine.config();
  BlockTally tally(config.n_layers,
                   {.n_heads = config.n_heads, .n_kv_heads = config.n_kv_heads, .head_dim = config.head_dim},
                   *blocks, n_blocks);

  const auto progress = context.on_prefill ? context.on_prefill(static_cast<int64_t>(prompt.size()))
                                           : std::function<void(double)>();
  Session session = engine.NewSession();
  // The prompt's last token chooses what the answer's first is made of: it is counted where it can be read
  // apart.
  const std::size_t n_before = engine.CallUnit() == 1 ? prompt.size() - 1 : prompt.size();
  LH_ASSIGN(std::vector<float> hidden, engine.Prefill(session, prompt.first(n_before), Outputs::kLast,
                                                      {.cancel = context.cancel, .progress = progress}));
  const Observing observing(engine, &tally);
  if (n_before < prompt.size()) {
    LH_ASSIGN(hidden,
              engine.Prefill(session, prompt.subspan(n_before), Outputs::kLast, {.cancel = context.cancel}));
  }
  LH_ASSIGN(Generated answer,
            engine.Generate(session, hidden, {.max_tokens = asked.max_new, .cancel = context.cancel}));
  if (answer.reason == StopReason::kCancelled) return Interrupted();

  const std::vector<int64_t> seen = tally.seen(), taken = tally.taken();
  const auto covered = std::ranges::count_if(seen, [](int64_t n) { return n > 0; });
  SampleOutcome measured{.score = static_cast<double>(covered) / static_cast<double>(n_blocks),
                         .values = {{"gini", GiniCoefficient(seen)},
                                    {"gini_chosen", GiniCoefficient(taken)},
                                    {"blocks", n_blocks}},
                         .answer = std::move(answer.text),
                         .tokens = static_cast<int64_t>(prompt.size()),
                         .generated = static_cast<int64_t>(answer.tokens.size())};
  if (asked.key.empty()) return measured;
  const std::vector<int64_t> wanted = BlocksOf(engine.tokenizer(), model_tokens, asked.key, *blocks);
  const std::vector<double> counts(taken.begin(), taken.end()), scores = tally.scores();
  std::vector<int64_t> candidates(scores.size());
  std::ranges::transform(scores, candidates.begin(), [](double s) { return s > -1e300 ? 1 : 0; });
  const auto add_hits = [&](const std::string& suffix, std::span<const double> values) {
    const int64_t rank = BestRank(values, candidates, wanted);
    if (rank == 0) return;  // never up for choice: no hit, and no miss
    measured.values["rank" + suffix] = rank;
    measured.values["top1" + suffix] = rank == 1 ? 1 : 0;
    measured.values["top5" + suffix] = rank <= 5 ? 1 : 0;
  };
  if (tally.has_scores()) add_hits("", scores);
  add_hits("_by_count", counts);
  measured.values["accuracy"] = AnswersPasskey(measured.answer, std::stoll(asked.key)) ? 1 : 0;
  measured.references = {asked.key};
  return measured;
}

TaskKind SelectionKind() {
  return {
      .name = "selection",
      .summary =
          "Counts what heads choose: cover rate, Gini coefficient, hits of the pass key (LongHeads, Table 3)",
      .options = {{"lengths", "N,N,...", "4k,8k", "tokens of the prompt; k is 1024"},
                  {"samples", "N", "5", "prompts of each length"},
                  {"text", "passkey|summary", "passkey",
                   "a pass key's prompt, or a haystack to be summed up"},
                  {"decode", "N", "0",
                   "most tokens of the answer, in which choices are counted; 0: a pass key's, or 100"},
                  {"seed", "S", "0", "of the keys"},
                  Haystack::Option()},
      .notes =
          "Counted are all layers, heads and tokens of the answer. 'cover' is the share of blocks that any "
          "head "
          "sees, 'gini'\nhow unevenly they are seen; 'top1' and 'top5': whether a block with the key is "
          "among "
          "the first by the sum of\nscores (in the CSV also by how often blocks are chosen). The table of "
          "the "
          "paper is of a window of 2048:\n\nExample:\n  longheads eval selection --attn "
          "longheads,window=2048,begin=window --lengths 4k,8k,16k,32k --out results",
      .make = [](TaskOptions& o) -> Result<std::unique_ptr<Task>> {
        constexpr int64_t kShortest = 200, kMostRounds = 10000;
        SelectionOptions options{.lengths = o.Counts("lengths", kShortest, kLongestText),
                                 .n_samples = o.Count("samples", 1, kMostRounds),
                                 .summary = o.Choice("text") == "summary",
                                 .n_decode = o.Count("decode", 0, kMostRounds),
                                 .seed = static_cast<uint64_t>(o.Count("seed", 0, INT64_MAX))};
        LH_TRY(o.status());
        std::optional<Haystack> haystack;
        if (options.summary) {
          LH_ASSIGN(haystack, Haystack::Load(o.Text("haystack")));
        }
        return std::make_unique<SelectionTask>(std::move(haystack), std::move(options));
      }};
}

}  // namespace longheads
