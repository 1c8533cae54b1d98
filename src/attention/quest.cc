#include "attention/quest.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/block_vectors.h"
#include "attention/full.h"
#include "attention/top_k.h"
#include "base/check.h"

namespace longheads {
namespace {

// [greatest, least] of every channel of keys [begin, end).
void Extremes(StoredKeys& keys, int64_t begin, int64_t end, int64_t d, float* extremes) {
  float* const greatest = extremes;
  float* const least = extremes + d;
  std::copy_n(keys[begin], d, greatest);
  std::copy_n(keys[begin], d, least);
  for (int64_t j = begin + 1; j < end; ++j) {
    const float* const key = keys[j];
    for (int64_t m = 0; m < d; ++m) greatest[m] = std::max(greatest[m], key[m]);
    for (int64_t m = 0; m < d; ++m) least[m] = std::min(least[m], key[m]);
  }
}

}  // namespace

struct Quest::Scratch : PolicyScratch {
  Buffer<float> rotated;              // [head_dim]
  std::vector<float> signs;           // [group, 2, head_dim]: the query's positive part, its negative part
  std::vector<const float*> queries;  // its rows
  std::vector<float> scores;          // [group, pages]
  std::vector<float> open;            // the open page's [2, head_dim]
  std::vector<float> page;            // of the store
  Buffer<float> workspace;
  TopK top_k;
  std::vector<int32_t> chosen;     // pages of one head
  std::vector<uint64_t> heads_of;  // [pages]: bit g where the group's g-th head chose it
  struct Page {
    uint64_t heads;
    int32_t page;
  };
  std::vector<Page> pages;  // that some head chose
};

Quest::Quest(const QuestOptions& options, bool dense, const HeadShape& shape, int64_t window)
    : options_(options), dense_(dense), shape_(shape), window_(window) {
  LH_CHECK(options.page > 0 && options.budget >= options.page && shape.group() <= 64);
}

std::unique_ptr<PolicyState> Quest::NewState() const {
  if (dense_) return std::make_unique<NoState>();
  return std::make_unique<BlockVectors>(options_.page, shape_.n_kv_heads, 2 * shape_.head_dim);
}

std::unique_ptr<PolicyScratch> Quest::NewScratch() const { return std::make_unique<Scratch>(); }

void Quest::Extend(const StepInput& input, PolicyState& state) const {
  if (!dense_) static_cast<BlockVectors&>(state).Extend(input, Extremes);
}

int64_t Quest::PagesToSee(int64_t n_tokens) const {
  if (options_.rule == QuestOptions::Rule::kKernel) return options_.budget / options_.page;
  return std::max<int64_t>(3, std::min(n_tokens, options_.budget) / options_.page);
}

void Quest::BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                      PolicyScratch& scratch, Plan& plan) const {
  const int64_t n = static_cast<int64_t>(block.tokens.size());
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {
    end = block.RunEnd(begin);
    if (dense_ || phase == Phase::kPrefill) {
      PlanFull(block, begin, end, shape_.group(), plan);
      continue;
    }
    for (int64_t t = begin; t < end; ++t) {
      const int64_t n_tokens = block.tokens[static_cast<std::size_t>(t)].position + 1;
      const int64_t n_pages = (n_tokens + options_.page - 1) / options_.page;
      if (n_pages <= PagesToSee(n_tokens)) {
        PlanFull(block, t, t + 1, shape_.group(), plan);
      } else {
        PlanChosen(block, t, kernels, static_cast<Scratch&>(scratch), plan);
      }
    }
  }
}

// One segment for each set of heads that share pages, with a list of their keys: hundreds of pages of 16 keys
// would be as many small products, and what heads share is read once.
void Quest::PlanChosen(const QueryBlock& block, int64_t t, const AttentionKernels& kernels, Scratch& scratch,
                       Plan& plan) const {
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const QueryToken& token = block.tokens[static_cast<std::size_t>(t)];
  const AttentionSequence& sequence = block.sequences[static_cast<std::size_t>(token.sequence)];
  const int64_t n_tokens = token.position + 1;
  const int64_t open_page = token.position / options_.page;  // the token's own, complete or not

  scratch.rotated.Reserve(d);
  scratch.signs.resize(static_cast<std::size_t>(group * 2 * d));
  scratch.queries.clear();
  for (int64_t g = 0; g < group; ++g) {
    kernels.rotate(token.q + (block.kv_head * group + g) * d, token.position, *sequence.rotations,
                   scratch.rotated.data());
    float* const signs = scratch.signs.data() + g * 2 * d;
    for (int64_t m = 0; m < d; ++m) {
      signs[m] = std::max(scratch.rotated.data()[m], 0.0f);
      signs[d + m] = std::min(scratch.rotated.data()[m], 0.0f);
    }
    scratch.queries.push_back(signs);
  }
  const bool open_competes = options_.rule == QuestOptions::Rule::kEvaluation;
  const int64_t n_candidates = open_page + (open_competes ? 1 : 0);
  scratch.scores.resize(static_cast<std::size_t>(group * n_candidates));
  scratch.workspace.Reserve(AttendWorkspace(kernels.row_tile, 2 * d));
  static_cast<const BlockVectors&>(*sequence.state)
      .Score(scratch.queries, block.kv_head, 0, open_page, kernels, scratch.workspace.data(),
             scratch.scores.data(), n_candidates);
  if (open_competes) {
    scratch.open.resize(static_cast<std::size_t>(2 * d));
    StoredKeys keys(*sequence.kv, block.layer, block.kv_head, scratch.page);
    Extremes(keys, open_page * options_.page, n_tokens, d, scratch.open.data());
    kernels.scores(scratch.queries, scratch.open.data(), 1, 2 * d, scratch.scores.data() + open_page,
                   n_candidates, scratch.workspace.data());
  }

  const int64_t n_chosen = PagesToSee(n_tokens) - (open_competes ? 0 : 1);
  scratch.heads_of.assign(static_cast<std::size_t>(open_page + 1), 0);
  for (int64_t g = 0; g < group; ++g) {
    scratch.chosen.clear();
    scratch.top_k.Choose(scratch.scores.data() + g * n_candidates, n_candidates, n_chosen, scratch.chosen);
    if (block.observer != nullptr) {
      const int64_t head = block.kv_head * group + g;
      BlockChoice choice =
          ChoiceOfHead(block, static_cast<std::size_t>(t), head, n_candidates, scratch.chosen);
      choice.scores = {scratch.scores.data() + g * n_candidates, static_cast<std::size_t>(n_candidates)};
      block.observer->OnChoice(choice);
    }
    if (!open_competes) scratch.chosen.push_back(static_cast<int32_t>(open_page));
    for (const int32_t page : scratch.chosen) {
      scratch.heads_of[static_cast<std::size_t>(page)] |= uint64_t{1} << g;
    }
  }
  scratch.pages.clear();
  for (int32_t page = 0; page <= open_page; ++page) {
    const uint64_t heads = scratch.heads_of[static_cast<std::size_t>(page)];
    if (heads != 0) scratch.pages.push_back({heads, page});
  }
  std::sort(scratch.pages.begin(), scratch.pages.end(), [](const Scratch::Page& a, const Scratch::Page& b) {
    return a.heads != b.heads ? a.heads < b.heads : a.page < b.page;
  });
  for (std::size_t at = 0; at < scratch.pages.size();) {
    const uint64_t heads = scratch.pages[at].heads;
    PlanSegment segment{.sequence = token.sequence,
                        .key_begin = static_cast<int64_t>(plan.keys.size()),
                        .row_begin = static_cast<int64_t>(plan.rows.size()),
                        .listed = true};
    for (; at < scratch.pages.size() && scratch.pages[at].heads == heads; ++at) {
      const int64_t begin = scratch.pages[at].page * options_.page;
      const int64_t end = std::min(begin + options_.page, n_tokens);
      for (int64_t j = begin; j < end; ++j) plan.keys.push_back(static_cast<int32_t>(j));
    }
    for (int64_t g = 0; g < group; ++g) {
      if ((heads >> g & 1) == 0) continue;
      plan.rows.push_back({static_cast<int32_t>(t * group + g), static_cast<int32_t>(token.position)});
    }
    segment.key_end = static_cast<int64_t>(plan.keys.size());
    segment.row_end = static_cast<int64_t>(plan.rows.size());
    plan.segments.push_back(segment);
  }
}

std::string Quest::Warning(int64_t n_tokens) const {
  if (n_tokens <= window_) return "";
  return fmt::format(
      "Quest leaves distances as they are: {} tokens go past the model's window of {}: expect "
      "nonsense "
      "(--attn auto or longheads reads longer texts)",
      n_tokens, window_);
}

std::string Quest::Explain() const {
  const int64_t n_dense = options_.dense_layers;
  const int64_t n_pages = PagesToSee(options_.budget);
  return fmt::format(
      "Quest: the prompt is read with full attention; generated tokens past {} see the {} pages of {} tokens "
      "that each head finds most promising{}",
      n_pages * options_.page, n_pages, options_.page,
      n_dense == 0 ? "" : fmt::format(", in all layers but the first {}", n_dense));
}

AttentionWork Quest::Work(int64_t n, Phase phase, const HeadShape& shape) const {
  const int64_t page = options_.page;
  const int64_t n_seen = PagesToSee(n);
  if (phase == Phase::kPrefill || dense_ || (n + page - 1) / page <= n_seen)
    return Policy::Work(n, phase, shape);
  int64_t n_scored = (n - 1) / page;
  double keys = static_cast<double>((n_seen - 1) * page) + static_cast<double>(page + 1) / 2;
  if (options_.rule == QuestOptions::Rule::kEvaluation) {  // the open page competes, and seldom wins
    ++n_scored;
    keys = static_cast<double>(n_seen * page);
  }
  return {.attended = static_cast<double>(shape.n_heads) * keys,
          .chosen_by = static_cast<double>(shape.n_heads * n_scored * 2 * shape.head_dim)};
}

uint64_t Quest::StateBytes(int64_t n) const {
  return dense_ ? 0 : BlockVectors::BytesFor(n, options_.page, shape_.n_kv_heads, 2 * shape_.head_dim);
}
uint64_t Quest::LastBlockBytes(int64_t n) const {
  if (dense_) return 0;
  return BlockVectors::LastBlockBytesFor(n, options_.page, shape_.n_kv_heads, 2 * shape_.head_dim);
}

// ---- How it is made

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  const int64_t usual = model.usual_window();
  QuestOptions o;
  reader.Tokens("page", o.page);
  o.budget = std::max(std::min<int64_t>(1024, usual / 8) / o.page, int64_t{3}) * o.page;
  reader.Tokens("budget", o.budget);
  o.dense_layers = std::min<int64_t>(2, model.n_layers);
  reader.Tokens("dense_layers", o.dense_layers, 0);
  reader.Choice<QuestOptions::Rule>(
      "rule", {{"kernel", QuestOptions::Rule::kKernel}, {"evaluation", QuestOptions::Rule::kEvaluation}},
      o.rule);
  if (o.page > model.window) {
    reader.Fail(
        fmt::format("page={} is longer than the model's window of {} tokens: nothing would be "
                    "chosen: use at most page={}",
                    o.page, model.window, model.window));
  }
  if (o.budget < o.page) {
    reader.Fail(fmt::format("budget={} does not hold one page of {}: try budget={}, or a smaller page",
                            o.budget, o.page, 3 * o.page));
  }
  if (o.dense_layers > model.n_layers) {
    reader.Fail(fmt::format("dense_layers={} is more than the {} layers of the model", o.dense_layers,
                            model.n_layers));
  }
  if (model.shape.group() > 64) {
    reader.Fail(fmt::format("{} query heads share a key/value head in this model, but quest takes at most 64",
                            model.shape.group()));
  }
  LH_TRY(reader.status());
  const auto dense = std::make_shared<Quest>(o, /*dense=*/true, model.shape, model.window);
  const auto choosing = std::make_shared<Quest>(o, /*dense=*/false, model.shape, model.window);
  LayerPolicies layers;
  for (int64_t layer = 0; layer < model.n_layers; ++layer) {
    layers.push_back(layer < o.dense_layers ? dense : choosing);
  }
  return layers;
}

}  // namespace

Method QuestMethod() {
  return {
      {.name = "quest",
       .summary = "Quest: prompts are read with full attention; generated tokens see the pages that could "
                  "match each head's query best. Faster decoding inside the trained window.",
       .source = "Tang et al. 2024, \"Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference\"",
       .options =
           {{"page", "tokens", "16", "1 .. the model's window",
             "tokens in a page, the unit that heads choose"},
            {"budget", "tokens",
             "1024, or an eighth of the trained window if that is smaller, in whole pages; at least 3 pages",
             ">= page", "tokens that a generated token sees, in whole pages"},
            {"dense_layers", "layers", "2", "0 .. the model's layers",
             "so many of the first layers see everything"},
            {"rule", "kernel|evaluation", "kernel", "",
             "the newest page is always seen, as in the published kernels, or competes with the others and "
             "at least 3 pages are seen, as in the published evaluation"}}},
      Create};
}

}  // namespace longheads
