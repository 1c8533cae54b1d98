#include "attention/moba.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attention/block_vectors.h"
#include "attention/full.h"
#include "attention/rows_by_block.h"
#include "attention/top_k.h"
#include "base/check.h"

namespace longheads {
namespace {

void MeanKey(StoredKeys& keys, int64_t begin, int64_t end, int64_t d, float* mean) {
  double sums[kMaxHeadDim] = {};
  for (int64_t j = begin; j < end; ++j) {
    const float* const key = keys[j];
    for (int64_t m = 0; m < d; ++m) sums[m] += static_cast<double>(key[m]);
  }
  for (int64_t m = 0; m < d; ++m) mean[m] = static_cast<float>(sums[m] / static_cast<double>(end - begin));
}

}  // namespace

struct Moba::Scratch : PolicyScratch {
  std::vector<float> rotated;         // [rows, head_dim] of the tokens that choose
  std::vector<const float*> queries;  // its rows
  std::vector<float> scores;          // [rows, blocks]
  Buffer<float> workspace;
  TopK top_k;
  std::vector<int32_t> chosen;  // of one row
  RowsByBlock rows;
};

Moba::Moba(const MobaOptions& options, const HeadShape& shape, int64_t window)
    : options_(options), shape_(shape), window_(window) {
  LH_CHECK(options.chunk > 0 && options.top_k > 0 && shape.head_dim <= kMaxHeadDim);
}

std::unique_ptr<PolicyState> Moba::NewState() const {
  return std::make_unique<BlockVectors>(options_.chunk, shape_.n_kv_heads, shape_.head_dim);
}

std::unique_ptr<PolicyScratch> Moba::NewScratch() const { return std::make_unique<Scratch>(); }

// A row has a score for each block, and an entry of the plan for each it chooses.
int64_t Moba::PlanTokens(int64_t n) const {
  constexpr int64_t kEntries = 4 << 20;  // 48 MiB of entries, 16 of scores, on each thread
  return std::max<int64_t>(1, kEntries / (shape_.group() * (n / options_.chunk + 1)));
}

void Moba::Extend(const StepInput& input, PolicyState& state) const {
  static_cast<BlockVectors&>(state).Extend(input, MeanKey);
}

void Moba::BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                     PolicyScratch& scratch, Plan& plan) const {
  const bool gated = phase == Phase::kPrefill || options_.gate_decode;
  const int64_t n = static_cast<int64_t>(block.tokens.size());
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {
    end = block.RunEnd(begin);
    // Before this token there are not more blocks than may be seen.
    int64_t choosing = begin;
    while (choosing < end &&
           (!gated ||
            block.tokens[static_cast<std::size_t>(choosing)].position / options_.chunk < options_.top_k)) {
      ++choosing;
    }
    if (begin < choosing) PlanFull(block, begin, choosing, shape_.group(), plan);
    if (choosing < end) PlanGated(block, choosing, end, kernels, static_cast<Scratch&>(scratch), plan);
  }
}

// Tokens [begin, end) of one sequence, which have more blocks than they may see.
void Moba::PlanGated(const QueryBlock& block, int64_t begin, int64_t end, const AttentionKernels& kernels,
                     Scratch& scratch, Plan& plan) const {
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const int64_t n_rows = (end - begin) * group;
  const auto token_of = [&](int64_t row) -> const QueryToken& {
    return block.tokens[static_cast<std::size_t>(begin + row / group)];
  };
  const int32_t sequence_index = token_of(0).sequence;
  const AttentionSequence& sequence = block.sequences[static_cast<std::size_t>(sequence_index)];
  const int64_t n_keys = token_of(n_rows - 1).position + 1;
  const int64_t last_block = (n_keys - 1) / options_.chunk;  // a token's own block is no candidate

  scratch.rotated.resize(static_cast<std::size_t>(n_rows * d));
  scratch.queries.clear();
  for (int64_t row = 0; row < n_rows; ++row) {
    const QueryToken& token = token_of(row);
    float* const rotated = scratch.rotated.data() + row * d;
    kernels.rotate(token.q + (block.kv_head * group + row % group) * d, token.position, *sequence.rotations,
                   rotated);
    scratch.queries.push_back(rotated);
  }
  scratch.scores.resize(static_cast<std::size_t>(n_rows * last_block));
  scratch.workspace.Reserve(AttendWorkspace(kernels.row_tile, d));
  static_cast<const BlockVectors&>(*sequence.state)
      .Score(scratch.queries, block.kv_head, 0, last_block, kernels, scratch.workspace.data(),
             scratch.scores.data(), last_block);

  scratch.rows.Begin(last_block + 1);
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t position = token_of(row).position;
    const int64_t own = position / options_.chunk;
    scratch.chosen.clear();
    scratch.top_k.Choose(scratch.scores.data() + row * last_block, own, options_.top_k - 1, scratch.chosen);
    if (block.observer != nullptr) {
      const int64_t head = block.kv_head * group + row % group;
      BlockChoice choice =
          ChoiceOfHead(block, static_cast<std::size_t>(begin + row / group), head, own, scratch.chosen);
      choice.scores = {scratch.scores.data() + row * last_block, static_cast<std::size_t>(own)};
      block.observer->OnChoice(choice);
    }
    for (const int32_t chosen : scratch.chosen) scratch.rows.Add(chosen, begin * group + row, position);
    scratch.rows.Add(own, begin * group + row, position);
  }
  scratch.rows.Emit(plan, [&](int64_t chunk, int64_t row_begin, int64_t row_end) {
    plan.segments.push_back({.sequence = sequence_index,
                             .key_begin = chunk * options_.chunk,
                             .key_end = std::min((chunk + 1) * options_.chunk, n_keys),
                             .row_begin = row_begin,
                             .row_end = row_end});
  });
}

AttentionWork Moba::Work(int64_t n, Phase phase, const HeadShape& shape) const {
  const int64_t own = (n - 1) / options_.chunk;
  const bool gated = phase == Phase::kPrefill || options_.gate_decode;
  if (!gated || own < options_.top_k) return Policy::Work(n, phase, shape);
  const double keys = static_cast<double>((options_.top_k - 1) * options_.chunk) +
                      static_cast<double>(options_.chunk + 1) / 2;
  return {.attended = static_cast<double>(shape.n_heads) * keys,
          .chosen_by = static_cast<double>(shape.n_heads * own * shape.head_dim)};
}

std::string Moba::Warning(int64_t n_tokens) const {
  if (n_tokens <= window_) return "";
  return fmt::format(
      "MoBA leaves distances as they are: {} tokens go past the model's window of {}: expect nonsense "
      "(--attn auto or longheads reads longer texts)",
      n_tokens, window_);
}

std::string Moba::Explain() const {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t from = options_.top_k > kMost / options_.chunk ? kMost : options_.top_k * options_.chunk;
  return fmt::format(
      "MoBA: from token {} on, each head sees the current block of {} tokens and the {} earlier ones that "
      "match best{}",
      from, options_.chunk, options_.top_k - 1,
      options_.gate_decode ? "" : "; generated tokens see everything");
}

uint64_t Moba::StateBytes(int64_t n) const {
  return BlockVectors::BytesFor(n, options_.chunk, shape_.n_kv_heads, shape_.head_dim);
}
uint64_t Moba::LastBlockBytes(int64_t n) const {
  return BlockVectors::LastBlockBytesFor(n, options_.chunk, shape_.n_kv_heads, shape_.head_dim);
}

// ---- How it is made

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  const int64_t usual = model.usual_window();
  // The paper's pairs lie on this line: 512 and 3 at 8k, 2048 and 3 at 32k, 4096 and 12 at 1M.
  MobaOptions o;
  o.chunk = std::clamp<int64_t>(usual / 16, 1, 4096);
  reader.Tokens("chunk", o.chunk);
  o.top_k = std::clamp<int64_t>(3 * usual / 16 / o.chunk, 3, 12);
  reader.Tokens("top_k", o.top_k);
  reader.Choice<bool>("decode", {{"full", false}, {"gated", true}}, o.gate_decode);
  int64_t full_layers = 0;
  reader.Tokens("full_layers", full_layers, 0);
  if (full_layers > model.n_layers) {
    reader.Fail(
        fmt::format("full_layers={} is more than the {} layers of the model", full_layers, model.n_layers));
  }
  if (o.chunk > model.window) {
    reader.Fail(
        fmt::format("chunk={} is longer than the model's window of {} tokens: nothing would be "
                    "chosen: use at most chunk={}",
                    o.chunk, model.window, model.window));
  }
  LH_TRY(reader.status());
  LayerPolicies layers = SameInEveryLayer(model, std::make_shared<Moba>(o, model.shape, model.window));
  const auto full = std::make_shared<FullAttention>(model.shape, model.window);
  std::fill(layers.end() - full_layers, layers.end(), full);
  return layers;
}

}  // namespace

Method MobaMethod() {
  return {{.name = "moba",
           .summary = "MoBA: in the prompt, each head attends to the current block and to the earlier ones "
                      "whose mean key matches its query best. For models trained with it.",
           .source = "Lu et al. 2025, \"MoBA: Mixture of Block Attention for Long-Context LLMs\"",
           .options = {{"chunk", "tokens", "a sixteenth of the trained window, at most 4096",
                        "1 .. the model's window", "tokens in a block, the unit that heads choose"},
                       {"top_k", "blocks", "3/16 of the trained window, at least 3 and at most 12", ">= 1",
                        "blocks that a token sees, the current one included"},
                       {"decode", "full|gated", "full", "",
                        "generated tokens see everything, as published, or choose blocks like the prompt's"},
                       {"full_layers", "layers", "0", "0 .. the model's layers",
                        "so many of the last layers see everything; the authors' Llama-8B-1M has 3 of 32"}}},
          Create};
}

}  // namespace longheads
