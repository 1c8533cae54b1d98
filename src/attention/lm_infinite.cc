#include "attention/lm_infinite.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/plan_parts.h"

namespace longheads {

namespace {

struct Candidate {
  float score;
  int32_t key;
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.key < b.key;
}

}  // namespace

struct LmInfinite::Scratch : PolicyScratch {
  Buffer<float> page;                        // keys and values of a page, expanded
  Buffer<float> workspace;                   // of the scores
  std::vector<float> queries;                // [group, head_dim], rotated
  std::vector<const float*> rows;            // of them
  std::vector<float> scores;                 // [group, kPageTokens]
  std::vector<std::vector<Candidate>> best;  // of each head of the group, a heap with the worst on top
};

int64_t LmInfinite::RotationBound(int64_t n) const { return looks_ ? std::max(n, options_.top_k_at + 1) : n; }

std::unique_ptr<PolicyScratch> LmInfinite::NewScratch() const { return std::make_unique<Scratch>(); }

void LmInfinite::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels& kernels,
                           PolicyScratch& scratch, Plan& plan) const {
  ForEachRun(block, [&](const TokenRun& run) {
    const int64_t call_end = block.sequences[static_cast<std::size_t>(run.sequence)].call_end;
    const int64_t first_tokens_at = options_.form == LmInfiniteOptions::Form::kInfLlm
                                        ? options_.local - 1
                                        : std::min(options_.limit, call_end - 1);
    AddSegment(
        block, run, shape_.group(),
        {.key_begin = 0, .key_end = options_.global, .min_distance = options_.local},
        [first_tokens_at](int64_t) { return first_tokens_at; }, plan);
    const bool ends_call = block.tokens[run.end - 1].position == call_end - 1;
    if (looks_ && ends_call && call_end - options_.local >= options_.global + options_.top_k) {
      AddMiddle(block, run.end - 1, kernels, static_cast<Scratch&>(scratch), plan);
    }
    AddSegment(
        block, run, shape_.group(),
        {.key_begin = 0, .key_end = kNewestKey, .max_distance = options_.local, .absolute = true},
        [](int64_t i) { return i; }, plan);
  });
}

void LmInfinite::AddMiddle(const QueryBlock& block, std::size_t token, const AttentionKernels& kernels,
                           Scratch& scratch, Plan& plan) const {
  const QueryToken& query = block.tokens[token];
  const AttentionSequence& sequence = block.sequences[static_cast<std::size_t>(query.sequence)];
  const std::size_t group = static_cast<std::size_t>(shape_.group());
  const std::size_t k = static_cast<std::size_t>(options_.top_k);
  const int64_t d = shape_.head_dim;
  scratch.page.Reserve(2 * kPageTokens * d);
  scratch.workspace.Reserve(AttendWorkspace(kernels.row_tile, d));
  scratch.queries.resize(group * static_cast<std::size_t>(d));
  scratch.scores.resize(group * kPageTokens);
  scratch.best.resize(group);
  scratch.rows.clear();
  for (std::size_t g = 0; g < group; ++g) {
    const int64_t head = block.kv_head * shape_.group() + static_cast<int64_t>(g);
    float* const rotated = scratch.queries.data() + g * static_cast<std::size_t>(d);
    kernels.rotate(query.q + head * d, options_.top_k_at, *sequence.rotations, rotated);
    scratch.rows.push_back(rotated);
    scratch.best[g].clear();
  }

  const int64_t end = query.position + 1 - options_.local;
  for (int64_t begin = options_.global; begin < end;) {
    const int64_t page = begin / kPageTokens;
    const int64_t page_end = std::min(end, (page + 1) * kPageTokens);
    const float* const keys =
        sequence.kv->Read(block.layer, block.kv_head, page, scratch.page.data()).k + begin % kPageTokens * d;
    kernels.scores(scratch.rows, keys, page_end - begin, d, scratch.scores.data(), kPageTokens,
                   scratch.workspace.data());
    for (std::size_t g = 0; g < group; ++g) {
      std::vector<Candidate>& best = scratch.best[g];
      const float* const scores = scratch.scores.data() + g * kPageTokens;
      for (int64_t j = begin; j < page_end; ++j) {
        const Candidate candidate{scores[j - begin], static_cast<int32_t>(j)};
        if (best.size() == k) {
          if (!Better(candidate, best.front())) continue;
          std::pop_heap(best.begin(), best.end(), Better);
          best.back() = candidate;
        } else {
          best.push_back(candidate);
        }
        std::push_heap(best.begin(), best.end(), Better);
      }
    }
    begin = page_end;
  }

  for (std::size_t g = 0; g < group; ++g) {
    PlanSegment segment{.sequence = query.sequence,
                        .key_begin = static_cast<int64_t>(plan.keys.size()),
                        .row_begin = static_cast<int64_t>(plan.rows.size()),
                        .listed = true};
    std::vector<Candidate>& best = scratch.best[g];
    std::sort(best.begin(), best.end(), [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
    for (const Candidate& candidate : best) plan.keys.push_back(candidate.key);
    plan.rows.push_back({static_cast<int32_t>(token * group + g), static_cast<int32_t>(options_.top_k_at)});
    segment.key_end = static_cast<int64_t>(plan.keys.size());
    segment.row_end = static_cast<int64_t>(plan.rows.size());
    plan.segments.push_back(segment);
    if (block.observer != nullptr) {
      const int64_t head = block.kv_head * shape_.group() + static_cast<int64_t>(g);
      std::vector<float> scores;
      for (const Candidate& candidate : best) scores.push_back(candidate.score);
      BlockChoice choice =
          ChoiceOfHead(block, token, head, end - options_.global, std::span(plan.keys).last(scores.size()));
      choice.first = options_.global;
      choice.taken_scores = scores;
      block.observer->OnChoice(choice);
    }
  }
}

AttentionWork LmInfinite::Work(int64_t n, Phase phase, const HeadShape& shape) const {
  const int64_t before = std::max<int64_t>(0, n - options_.local);  // keys that are not local
  int64_t keys = std::min(n, options_.local) + std::min(options_.global, before);
  AttentionWork work;
  // A prompt's tokens but the last do not look.
  if (looks_ && phase == Phase::kDecode && before >= options_.global + options_.top_k) {
    keys += options_.top_k;
    work.chosen_by = static_cast<double>(shape.n_heads * (before - options_.global) * shape.head_dim);
  }
  work.attended = static_cast<double>(shape.n_heads * keys);
  return work;
}

// ---- What the user is told

std::string LmInfinite::Warning(int64_t n_tokens) const {
  const int64_t n_seen = options_.global + options_.local;
  if (n_tokens <= n_seen || options_.top_k > 0) return "";
  return fmt::format(
      "lm-infinite over {} tokens: the answer sees the first {} and the last {} alone, and {} between them "
      "are as if they had not been there (top_k lets it look among them; --attn auto does so for every "
      "token)",
      n_tokens, options_.global, options_.local, n_tokens - n_seen);
}

std::string LmInfinite::Explain() const {
  const bool official = options_.form == LmInfiniteOptions::Form::kOfficial;
  const std::string at = fmt::format("distance {}{}", official ? options_.limit : options_.local - 1,
                                     official && options_.limit > options_.local ? " at most" : "");
  const std::string middle =
      options_.top_k == 0
          ? "; nothing between them"
          : fmt::format(
                "; from layer {} on each head of a prompt's last token and of generated ones also sees the "
                "{} tokens between that match it best, at distance {}",
                options_.top_k_from, options_.top_k, options_.top_k_at);
  return fmt::format(
      "LM-Infinite: every token sees the last {} tokens up to itself, and the first {} of the text at {}{} "
      "(the model's window is {})",
      options_.local, options_.global, at, middle, window_);
}

// ---- How it is made

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  using Form = LmInfiniteOptions::Form;
  // Frequencies may also make the window smaller.
  const int64_t usual = model.usual_window();
  LmInfiniteOptions o;
  reader.Choice<Form>("form", {{"official", Form::kOfficial}, {"infllm", Form::kInfLlm}}, o.form);
  reader.Tokens("global", o.global, /*least=*/0);
  o.local = usual;
  reader.Tokens("local", o.local);
  o.limit = o.local;
  reader.Tokens("limit", o.limit);
  reader.Tokens("top_k", o.top_k, /*least=*/0);
  o.top_k_from = std::min<int64_t>(o.top_k_from, model.n_layers - 1);
  reader.Tokens("top_k_from", o.top_k_from, /*least=*/0);
  o.top_k_at = std::clamp<int64_t>(usual / 2, 1, o.top_k_at);
  reader.Tokens("top_k_at", o.top_k_at);

  const auto within_window = [&](std::string_view name, int64_t value) {
    if (value <= model.window) return;
    reader.Fail(fmt::format("{}={} is larger than the model's window of {} tokens: use at most {}={}", name,
                            value, model.window, name, model.window));
  };
  within_window("local", o.local);
  if (o.form == Form::kInfLlm && reader.has("limit")) {
    reader.Fail(
        "limit belongs to form=official: with form=infllm the first tokens are always at distance local - 1");
  }
  within_window("limit", o.limit);
  within_window("top_k_at", o.top_k_at);
  if (o.top_k > 0 && o.form == Form::kOfficial && o.limit != o.local) {
    reader.Fail(
        fmt::format("top_k={} needs limit={} as local is: with limit={} the published code gives the keys "
                    "between the two a logit that no distance has",
                    o.top_k, o.local, o.limit));
  }
  if (o.top_k_from > model.n_layers) {
    reader.Fail(fmt::format("top_k_from={} is past the model's last layer: it has {}, counted from 0",
                            o.top_k_from, model.n_layers));
  }
  LH_TRY(reader.status());
  const auto without = std::make_shared<LmInfinite>(o, /*looks=*/false, model.shape, model.window);
  LayerPolicies layers = SameInEveryLayer(model, without);
  if (o.top_k > 0) {
    const auto with = std::make_shared<LmInfinite>(o, /*looks=*/true, model.shape, model.window);
    std::fill(layers.begin() + o.top_k_from, layers.end(), with);
  }
  return layers;
}

}  // namespace

Method LmInfiniteMethod() {
  return {
      {.name = "lm-infinite",
       .summary = "LM-Infinite: the newest tokens, and the first few at a constant distance, at constant "
                  "cost; optionally each head's best matches between them.",
       .source = "Han et al. 2024, \"LM-Infinite: Zero-Shot Extreme Length Generalization for Large "
                 "Language Models\"",
       .options =
           {
               {"global", "tokens", "10", ">= 0", "tokens of the text's beginning that are always seen"},
               {"local", "tokens", "the trained window", "1 .. the model's window",
                "newest tokens that are seen at their true distance, the query's own among them"},
               {"limit", "tokens", "local", "1 .. the model's window; form=official alone",
                "distance of the first tokens once they are no longer local; above local, the length of "
                "the text so far where that is less"},
               {"top_k", "tokens", "0", ">= 0; more than 0 needs limit equal to local",
                "tokens between that each query head looks for, for the last token of a prompt and every "
                "generated one; 0: none"},
               {"top_k_from", "layer", "4, or the last layer if there are fewer", "0 .. the number of layers",
                "the first layer that looks for them, counted from 0"},
               {"top_k_at", "tokens", "2048, or half the trained window if that is smaller",
                "1 .. the model's window", "the distance at which they are scored and seen"},
               {"form", "official|infllm", "official", "",
                "distance of the first tokens: limit, as in the authors' code, or local - 1, as in InfLLM's "
                "version"},
           }},
      Create};
}

}  // namespace longheads
