#include "attention/landmark.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/block_vectors.h"
#include "attention/plan_parts.h"
#include "attention/rows_by_block.h"
#include "attention/top_k.h"
#include "base/check.h"

namespace longheads {
namespace {

void LandmarkKey(StoredKeys& keys, int64_t, int64_t end, int64_t d, float* vector) {
  std::copy_n(keys[end - 1], d, vector);
}

}  // namespace

struct Landmark::Scratch : PolicyScratch {
  std::vector<float> rotated;         // [rows, head_dim] of a window's tokens
  std::vector<const float*> queries;  // its rows
  std::vector<float> scores;          // [rows, blocks]
  Buffer<float> workspace;
  TopK top_k;
  std::vector<int32_t> chosen;  // of one row
  RowsByBlock rows;             // 2 b: that see block b by its landmark; 2 b + 1: whose own block it is
};

// Tokens [begin, end) of a query block that are of one window, and what lies before it.
struct Landmark::Window {
  std::size_t begin;
  std::size_t end;
  int64_t n_cached;   // complete blocks before the window
  int64_t n_slots;    // of them are seen: min(top_k, n_cached)
  int64_t slots_end;  // where the slots end: with the last cached block
  int64_t block;      // tokens

  int64_t oldest_of_last() const { return n_cached - n_slots; }
  // The rotation of a query at i, and with it the distance, for a block in this slot.
  int64_t x(int64_t i, int64_t slot) const { return i - (slots_end - (n_slots + 1 - slot) * block); }
};

Landmark::Landmark(const LandmarkOptions& options, const HeadShape& shape)
    : options_(options), shape_(shape) {
  LH_CHECK(options.block >= 2 && options.top_k >= 0 && options.window >= options.block &&
           options.window % options.block == 0);
}

// A window and the slots before it.
int64_t Landmark::RotationBound(int64_t) const {
  return options_.window + (options_.top_k + 1) * options_.block;
}

std::optional<InsertedToken> Landmark::Inserts() const {
  return InsertedToken{.id = options_.token, .period = options_.block - 1};
}

std::unique_ptr<PolicyState> Landmark::NewState() const {
  return std::make_unique<BlockVectors>(options_.block, shape_.n_kv_heads, shape_.head_dim);
}

std::unique_ptr<PolicyScratch> Landmark::NewScratch() const { return std::make_unique<Scratch>(); }

// A row has a score for each block before its window, and an entry of the plan for each block that it sees.
int64_t Landmark::PlanTokens(int64_t n) const {
  constexpr int64_t kEntries = 4 << 20;  // 48 MiB of entries, 16 of scores, on each thread
  const int64_t most_seen = options_.top_k + options_.window / options_.block;
  return std::max<int64_t>(1, kEntries / (shape_.group() * std::max(n / options_.block, most_seen)));
}

void Landmark::Extend(const StepInput& input, PolicyState& state) const {
  static_cast<BlockVectors&>(state).Extend(input, LandmarkKey);
}

// Windows follow each other from where the call begins; one that begins inside a block ends with it.
int64_t Landmark::WindowBegin(int64_t call_begin, int64_t position) const {
  const int64_t first_whole = (call_begin + options_.block - 1) / options_.block * options_.block;
  if (position < first_whole) return call_begin;
  return position - (position - first_whole) % options_.window;
}

void Landmark::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels& kernels,
                         PolicyScratch& policy_scratch, Plan& plan) const {
  Scratch& scratch = static_cast<Scratch&>(policy_scratch);
  ForEachRun(block, [&](const TokenRun& run) {
    const int64_t call_begin = block.sequences[static_cast<std::size_t>(run.sequence)].call_begin;
    const int64_t n_keys = block.tokens[run.end - 1].position + 1;
    scratch.rows.Begin(2 * ((n_keys - 1) / options_.block + 1));
    for (std::size_t begin = run.begin, end = begin; begin < run.end; begin = end) {
      const int64_t window_begin = WindowBegin(call_begin, block.tokens[begin].position);
      while (end < run.end && WindowBegin(call_begin, block.tokens[end].position) == window_begin) ++end;
      const int64_t n_cached = window_begin / options_.block;
      const Window window{.begin = begin,
                          .end = end,
                          .n_cached = n_cached,
                          .n_slots = std::min(options_.top_k, n_cached),
                          .slots_end = n_cached * options_.block,
                          .block = options_.block};
      AddWindow(block, window, kernels, scratch);
    }
    scratch.rows.Emit(plan, [&](int64_t index, int64_t row_begin, int64_t row_end) {
      const bool own = index % 2 != 0;
      const int64_t key_begin = index / 2 * options_.block;
      const int64_t landmark = key_begin + options_.block - 1;
      plan.segments.push_back({.sequence = run.sequence,
                               .key_begin = key_begin,
                               .key_end = std::min(landmark, n_keys),
                               .row_begin = row_begin,
                               .row_end = row_end,
                               .as_key = own ? PlanSegment::kNoKey : landmark});
    });
  });
}

// Of the window's rows with the landmarks of the blocks before it: [rows, n_cached]. They compete from where
// they are, the last n_slots blocks, or from slot 0, all older ones.
void Landmark::Score(const QueryBlock& block, const Window& window, const AttentionKernels& kernels,
                     Scratch& scratch) const {
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const AttentionSequence& sequence =
      block.sequences[static_cast<std::size_t>(block.tokens[window.begin].sequence)];
  const std::size_t n_rows = (window.end - window.begin) * static_cast<std::size_t>(group);
  scratch.rotated.resize(n_rows * static_cast<std::size_t>(d));
  scratch.queries.clear();
  for (std::size_t row = 0; row < n_rows; ++row) {
    scratch.queries.push_back(scratch.rotated.data() + row * static_cast<std::size_t>(d));
  }
  scratch.workspace.Reserve(AttendWorkspace(kernels.row_tile, d));
  const auto score = [&](int64_t begin, int64_t end, int64_t slot) {
    float* rotated = scratch.rotated.data();
    for (std::size_t t = window.begin; t < window.end; ++t) {
      const QueryToken& token = block.tokens[t];
      for (int64_t g = 0; g < group; ++g, rotated += d) {
        kernels.rotate(token.q + (block.kv_head * group + g) * d, window.x(token.position, slot),
                       *sequence.rotations, rotated);
      }
    }
    static_cast<const BlockVectors&>(*sequence.state)
        .Score(scratch.queries, block.kv_head, begin, end, kernels, scratch.workspace.data(),
               scratch.scores.data() + begin, window.n_cached);
  };
  const int64_t oldest = window.oldest_of_last();
  score(0, oldest, 0);
  for (int64_t slot = 1; slot <= window.n_slots; ++slot) score(oldest + slot - 1, oldest + slot, slot);
}

// What each row of the window sees.
void Landmark::AddWindow(const QueryBlock& block, const Window& window, const AttentionKernels& kernels,
                         Scratch& scratch) const {
  const int64_t group = shape_.group();
  const auto n_rows = static_cast<int64_t>(window.end - window.begin) * group;
  scratch.scores.resize(static_cast<std::size_t>(n_rows * window.n_cached));
  const bool competes = 0 < window.n_slots && window.n_slots < window.n_cached;
  if (competes) Score(block, window, kernels, scratch);
  for (int64_t row = 0; row < n_rows; ++row) {
    const std::size_t t = window.begin + static_cast<std::size_t>(row / group);
    const int64_t plan_row = static_cast<int64_t>(t) * group + row % group;
    const int64_t i = block.tokens[t].position;
    scratch.chosen.clear();
    scratch.top_k.Choose(scratch.scores.data() + row * window.n_cached, window.n_cached, window.n_slots,
                         scratch.chosen);
    if (block.observer != nullptr) {
      const int64_t head = block.kv_head * group + row % group;
      BlockChoice choice = ChoiceOfHead(block, t, head, window.n_cached, scratch.chosen);
      if (competes) {
        choice.scores = {scratch.scores.data() + row * window.n_cached,
                         static_cast<std::size_t>(window.n_cached)};
      }
      block.observer->OnChoice(choice);
    }
    int64_t rank = 0;
    for (const int64_t chosen : scratch.chosen) {
      const int64_t slot = chosen < window.oldest_of_last() ? rank : rank + 1;
      scratch.rows.Add(2 * chosen, plan_row, window.x(i, slot));
      ++rank;
    }
    const int64_t own = i / options_.block;
    for (int64_t b = window.n_cached; b < own; ++b) {
      scratch.rows.Add(2 * b, plan_row, i - b * options_.block);
    }
    scratch.rows.Add(2 * own + 1, plan_row, i - own * options_.block);
  }
}

AttentionWork Landmark::Work(int64_t n, Phase phase, const HeadShape& shape) const {
  // A generated token's window is its own block.
  const int64_t window = phase == Phase::kPrefill ? options_.window : options_.block;
  const int64_t n_cached = (n - 1) / window * (window / options_.block);
  const int64_t n_slots = std::min(options_.top_k, n_cached);
  // Its window up to itself, and of each block that it retrieves the tokens and the landmark.
  const double place = n <= window ? static_cast<double>(n) : static_cast<double>(window + 1) / 2;
  const double own = place - 1.0 / static_cast<double>(options_.block);
  AttentionWork work{.attended = static_cast<double>(shape.n_heads) *
                                 (own + static_cast<double>(n_slots * options_.block))};
  if (0 < n_slots && n_slots < n_cached) {
    work.chosen_by = static_cast<double>(shape.n_heads * n_cached * shape.head_dim);
  }
  return work;
}

std::string Landmark::Explain() const {
  return fmt::format(
      "Landmark attention: a text is read in windows of {} tokens; before its window each head sees the {} "
      "blocks of {} tokens whose landmarks match best (token {} is put after every {} tokens)",
      options_.window, options_.top_k, options_.block, options_.token, options_.block - 1);
}

uint64_t Landmark::StateBytes(int64_t n) const {
  return BlockVectors::BytesFor(n, options_.block, shape_.n_kv_heads, shape_.head_dim);
}
uint64_t Landmark::LastBlockBytes(int64_t n) const {
  return BlockVectors::LastBlockBytesFor(n, options_.block, shape_.n_kv_heads, shape_.head_dim);
}

// ---- How it is made

namespace {

constexpr const char* kLandmarkText = "<landmark>";  // in the published checkpoints' vocabulary

// The landmark's id, as given or as the vocabulary has it.
int32_t ReadToken(OptionReader& reader, const AttentionModel& model) {
  int64_t token = model.find_token ? model.find_token(kLandmarkText).value_or(-1) : -1;
  reader.Tokens("token", token, /*least=*/0);
  if (token < 0) {
    reader.Fail(
        fmt::format("the vocabulary has no '{}', but the model must have been trained with a landmark token: "
                    "say which it is "
                    "with token=ID, or use another method",
                    kLandmarkText));
  } else if (token >= model.vocab_size) {
    reader.Fail(fmt::format("token={} is outside the vocabulary (0 .. {})", token, model.vocab_size - 1));
  }
  return static_cast<int32_t>(token);
}

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  LandmarkOptions o;
  reader.Tokens("block", o.block, /*least=*/2);
  reader.Tokens("top_k", o.top_k, /*least=*/0);
  int64_t context = model.trained_window;
  reader.Tokens("train_context", context);
  o.token = ReadToken(reader, model);
  if (context > model.window) {
    reader.Fail(
        fmt::format("train_context={} is larger than the {} tokens that the model reads: use at most "
                    "train_context={}",
                    context, model.window, model.window));
  }
  // The window, the chosen blocks and an empty slot: no more than the model knows.
  const int64_t n_blocks = context / o.block;
  if (n_blocks < 2) {
    reader.Fail(
        fmt::format("block={} leaves no room for a window and a slot before it in the {} tokens that the "
                    "model was trained "
                    "on: use at most block={}",
                    o.block, context, std::max<int64_t>(2, context / 2)));
  } else if (o.top_k > n_blocks - 2) {
    reader.Fail(fmt::format(
        "top_k={} leaves no room for a window in the {} tokens that the model was trained on, which are {} "
        "blocks of {}: use at most top_k={}, or a smaller block",
        o.top_k, context, n_blocks, o.block, n_blocks - 2));
  }
  LH_TRY(reader.status());
  o.window = (n_blocks - o.top_k - 1) * o.block;
  return SameInEveryLayer(model, std::make_shared<Landmark>(o, model.shape));
}

}  // namespace

Method LandmarkMethod() {
  return {
      {.name = "landmark",
       .summary = "Landmark attention: each head looks up the blocks of the text whose landmark tokens match "
                  "its query best. For models trained with landmarks.",
       .source = "Mohtashami and Jaggi 2023, \"Landmark Attention: Random-Access Infinite Context Length for "
                 "Transformers\"",
       .options =
           {{"block", "tokens", "51", ">= 2, as the model was trained",
             "tokens in a block, the unit that heads choose; the last is its landmark"},
            {"top_k", "blocks", "5", "0 .. what leaves room for a window of one block",
             "blocks before its window that a token sees"},
            {"token", "id", "the vocabulary's `<landmark>`", "0 .. the vocabulary's last",
             "the landmark, which is put after every block - 1 tokens of a text"},
            {"train_context", "tokens", "the trained window", "2 blocks .. the model's window",
             "length of the texts that the model saw landmarks in: a window and the blocks looked up before "
             "it stay within"}}},
      Create};
}

}  // namespace longheads
