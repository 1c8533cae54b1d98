#include "attention/esa.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/esa_choice.h"
#include "attention/esa_vectors.h"
#include "attention/shared_blocks.h"
#include "attention/state_archive.h"
#include "base/check.h"
#include "base/checksum.h"

namespace longheads {
// What the newest step's queries see, and the compressed keys of all tokens.
class Esa::State : public PolicyState {
 public:
  // The keys' compression tells itself from others by its checksum.
  State(int64_t k, int64_t dim, uint64_t compression)
      : dim_(dim),
        compression_(compression),
        keys_(kPageTokens * dim),
        chosen_(static_cast<std::size_t>(k)) {}

  std::unique_ptr<PolicyState> Fork() const override { return std::make_unique<State>(*this); }
  void Truncate(int64_t m) override {
    LH_CHECK(m <= n_tokens);
    n_tokens = m;
    MakeRoom(m);
  }
  uint64_t Bytes() const override { return keys_.Bytes() + sizeof(int32_t) * chosen_.size(); }
  static uint64_t BytesFor(int64_t n, int64_t k, int64_t dim) {
    const int64_t n_pages = (n + kPageTokens - 1) / kPageTokens;
    return sizeof(float) * static_cast<uint64_t>(n_pages * kPageTokens * dim) +
           sizeof(int32_t) * static_cast<uint64_t>(k);
  }

  // The step's choice is its own alone.
  std::string Layout() const override { return fmt::format("esa 1: {} {:016x}", dim_, compression_); }
  void Save(int64_t from, int64_t n, StateWriter& added, StateWriter&) const override {
    LH_CHECK(n == n_tokens);
    if (dim_ > 0) vectors().Write(keys_, from, n, added);
  }
  void RestoreAdded(int64_t from, int64_t n, StateReader& added) override {
    if (dim_ > 0) vectors().Read(added, from, n, keys_);
  }
  void RestoreLatest(int64_t n, StateReader&) override { n_tokens = n; }

  void MakeRoom(int64_t n) {
    if (dim_ > 0) keys_.Resize((n + kPageTokens - 1) / kPageTokens);
  }
  // [kPageTokens, dim] of a page's tokens.
  const float* keys(int64_t page) const { return keys_[page]; }
  float* mutable_keys(int64_t page) { return keys_.Mutable(page); }

  // Far keys are [0, init_end) and the chosen ones, local ones begin at middle_end. Where all of the middle
  // is seen, init_end is middle_end and nothing is chosen.
  struct Step {
    int64_t init_end = 0;
    int64_t middle_end = 0;
    int64_t n_chosen = 0;
  };
  Step step;
  int64_t n_tokens = 0;

  const std::vector<int32_t>& chosen() const { return chosen_; }
  int32_t* mutable_chosen() { return chosen_.data(); }

 private:
  VectorBlocks vectors() const { return {.together = kPageTokens, .floats = dim_}; }

  int64_t dim_;
  uint64_t compression_;
  SharedBlocks keys_;  // [kPageTokens, dim] each
  std::vector<int32_t> chosen_;
};

struct Esa::Scratch : PolicyScratch {
  EsaChoice choice;
  std::vector<float> queries;     // [n_tokens, n_kv_heads, head_dim] or [n_tokens, n_heads, head_dim]
  std::vector<float> compressed;  // [n_tokens, dim]
  struct Thread {
    Buffer<float> workspace;
    std::vector<float> keys;  // [kEsaTile, n_kv_heads * head_dim]
  };
  std::vector<Thread> threads;
};

namespace {

// Keys as the store has them: a part is a KV head.
struct StoredEsaKeys : EsaKeys {
  const KvSequence* kv = nullptr;
  int64_t layer = 0;

  const float* Page(int64_t part, int64_t page, float* scratch) const override {
    return kv->ReadKeys(layer, part, page, scratch);
  }
  int64_t PageFloats() const override { return kPageTokens * kv->geometry().head_dim; }
};

}  // namespace

Esa::Esa(const EsaOptions& options, const HeadShape& shape, std::shared_ptr<const EsaProjections> projections)
    : options_(options), shape_(shape), projections_(std::move(projections)) {
  LH_CHECK(options.k > 0 && options.n_local > 0 && options.chunk > 0);
  if (!compressed()) return;
  LH_CHECK(options.share == EsaOptions::Share::kSum && projections_ != nullptr);
  LH_CHECK(options.dim <= projections_->n_rows && projections_->n_columns == columns());
  for (const EsaProjections::Layer& layer : projections_->layers) {
    for (const std::vector<float>* const matrix : {&layer.q, &layer.k}) {
      const uint64_t sums[] = {compression_, Checksum(std::as_bytes(std::span(*matrix)))};
      compression_ = Checksum(std::as_bytes(std::span(sums)));
    }
  }
}

int64_t Esa::RotationBound(int64_t n) const { return n; }  // far ones are seen once n > n_local

std::unique_ptr<PolicyState> Esa::NewState() const {
  return std::make_unique<State>(options_.k, compressed() ? options_.dim : 0, compression_);
}

std::unique_ptr<PolicyScratch> Esa::NewScratch() const { return std::make_unique<Scratch>(); }

// ---- The choice

void Esa::Extend(const StepInput& input, PolicyState& policy_state) const {
  State& state = static_cast<State&>(policy_state);
  Scratch& scratch = static_cast<Scratch&>(*input.scratch[0]);
  LH_CHECK(state.n_tokens == input.token_begin);
  scratch.threads.resize(static_cast<std::size_t>(input.pool->n_threads()));
  if (compressed()) CompressKeys(input, state, scratch);

  const int64_t left_behind = std::max<int64_t>(0, input.token_begin - options_.n_local);
  const int64_t init_end = std::min(options_.n_init, left_behind);
  State::Step step{.init_end = left_behind, .middle_end = left_behind};
  if (left_behind - init_end > options_.k) {
    const bool individual = options_.share == EsaOptions::Share::kIndividual;
    scratch.queries.resize(static_cast<std::size_t>(
        input.n_tokens * (individual ? shape_.n_heads * shape_.head_dim : columns())));
    RotateEsaQueries(input, options_.n_local, /*fold=*/!individual, scratch.queries.data());
    StoredEsaKeys stored;
    stored.kv = input.sequence->kv;
    stored.layer = input.layer;
    struct CompressedEsaKeys : EsaKeys {
      const State* state = nullptr;
      const float* Page(int64_t, int64_t page, float*) const override { return state->keys(page); }
    } compressed_keys;
    compressed_keys.state = &state;
    EsaQuestion question{.keys = &stored,
                         .n_parts = shape_.n_kv_heads,
                         .floats = shape_.head_dim,
                         .rows = scratch.queries.data(),
                         .n_queries = input.n_tokens,
                         .rows_per_part = individual ? shape_.group() : 1,
                         .largest = individual,
                         .begin = init_end,
                         .end = left_behind,
                         .k = options_.k,
                         .eps = options_.eps};
    if (compressed()) {
      CompressQueries(input, scratch);
      question.keys = &compressed_keys;
      question.n_parts = 1;
      question.floats = options_.dim;
      question.rows = scratch.compressed.data();
    }
    if (!scratch.choice.Choose(question, input.executor->kernels(), *input.pool, input.cancel,
                               state.mutable_chosen())) {
      return;  // the state stays at the tokens it had
    }
    step.init_end = init_end;
    step.n_chosen = options_.k;
    if (input.observer != nullptr) {
      const std::span taken(state.chosen());
      std::vector<float> scores;
      for (const int32_t token : taken) scores.push_back(scratch.choice.Score(question, token));
      input.observer->OnChoice({.layer = input.layer,
                                .sequence = input.sequence_index,
                                .token_begin = input.token_begin,
                                .token_end = input.token_begin + input.n_tokens,
                                .head_end = shape_.n_heads,
                                .first = init_end,
                                .n_candidates = left_behind - init_end,
                                .taken = taken,
                                .taken_scores = scores});
    }
  }
  state.step = step;
  state.n_tokens = input.token_begin + input.n_tokens;
}

void Esa::CompressQueries(const StepInput& input, Scratch& scratch) const {
  const EsaProjections::Layer& layer = projections_->layers[static_cast<std::size_t>(input.layer)];
  scratch.compressed.resize(static_cast<std::size_t>(input.n_tokens * options_.dim));
  input.pool->Run((input.n_tokens + kEsaTile - 1) / kEsaTile, [&](int64_t task, int thread) {
    const int64_t begin = task * kEsaTile;
    ProjectEsaRows(scratch.queries.data() + begin * columns(), std::min(kEsaTile, input.n_tokens - begin),
                   layer.q, columns(), options_.dim, input.executor->kernels(),
                   scratch.threads[static_cast<std::size_t>(thread)].workspace,
                   scratch.compressed.data() + begin * options_.dim);
  });
}

void Esa::CompressKeys(const StepInput& input, State& state, Scratch& scratch) const {
  const EsaProjections::Layer& layer = projections_->layers[static_cast<std::size_t>(input.layer)];
  const int64_t begin = input.token_begin;
  const int64_t end = begin + input.n_tokens;
  state.MakeRoom(end);
  for (int64_t page = begin / kPageTokens; page * kPageTokens < end; ++page) state.mutable_keys(page);
  const int64_t first_tile = begin / kEsaTile;
  input.pool->Run((end + kEsaTile - 1) / kEsaTile - first_tile, [&](int64_t task, int thread) {
    Scratch::Thread& own = scratch.threads[static_cast<std::size_t>(thread)];
    own.keys.resize(static_cast<std::size_t>(kEsaTile * columns()));
    const int64_t from = std::max(begin, (first_tile + task) * kEsaTile);
    const int64_t to = std::min(end, (first_tile + task + 1) * kEsaTile);
    CopyEsaKeys(input, from, to, own.keys.data());
    ProjectEsaRows(own.keys.data(), to - from, layer.k, columns(), options_.dim, input.executor->kernels(),
                   own.workspace, state.mutable_keys(from / kPageTokens) + from % kPageTokens * options_.dim);
  });
}

// ---- The plan

std::span<const int32_t> Esa::Chosen(const PolicyState& policy_state) const {
  const State& state = static_cast<const State&>(policy_state);
  return std::span(state.chosen()).first(static_cast<std::size_t>(state.step.n_chosen));
}

void Esa::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch&,
                    Plan& plan) const {
  const int64_t n = static_cast<int64_t>(block.tokens.size());
  const int64_t group = shape_.group();
  const auto add_rows = [&](PlanSegment& segment, int64_t begin, int64_t end, auto x_of) {
    segment.row_begin = static_cast<int64_t>(plan.rows.size());
    for (int64_t t = begin; t < end; ++t) {
      const auto x = static_cast<int32_t>(x_of(block.tokens[static_cast<std::size_t>(t)].position));
      for (int64_t g = 0; g < group; ++g) plan.rows.push_back({static_cast<int32_t>(t * group + g), x});
    }
    segment.row_end = static_cast<int64_t>(plan.rows.size());
  };
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {  // runs of tokens of one sequence
    const int32_t sequence = block.tokens[static_cast<std::size_t>(begin)].sequence;
    int64_t last = 0;
    for (; end < n && block.tokens[static_cast<std::size_t>(end)].sequence == sequence; ++end) {
      last = std::max(last, block.tokens[static_cast<std::size_t>(end)].position);
    }
    const State& state =
        static_cast<const State&>(*block.sequences[static_cast<std::size_t>(sequence)].state);
    const State::Step& step = state.step;
    PlanSegment far{.sequence = sequence, .key_begin = 0, .key_end = step.init_end};
    if (step.middle_end > 0) add_rows(far, begin, end, [this](int64_t) { return options_.n_local; });
    if (step.init_end > 0) plan.segments.push_back(far);
    if (step.n_chosen > 0) {
      far.listed = true;
      far.key_begin = static_cast<int64_t>(plan.keys.size());
      plan.keys.insert(plan.keys.end(), state.chosen().begin(), state.chosen().begin() + step.n_chosen);
      far.key_end = static_cast<int64_t>(plan.keys.size());
      plan.segments.push_back(far);
    }
    PlanSegment local{
        .sequence = sequence, .key_begin = step.middle_end, .key_end = last + 1, .absolute = true};
    add_rows(local, begin, end, [](int64_t i) { return i; });
    plan.segments.push_back(local);
  }
}

AttentionWork Esa::Work(int64_t n, Phase phase, const HeadShape& shape) const {
  const int64_t step_begin = n - 1 - (phase == Phase::kPrefill ? options_.chunk / 2 : 0);
  const int64_t left_behind = std::max<int64_t>(0, step_begin - options_.n_local);
  const int64_t init = std::min(options_.n_init, left_behind);
  AttentionWork work{.attended = static_cast<double>(shape.n_heads * n)};
  // The key of the token is compressed in any case.
  if (compressed()) work.chosen_by = static_cast<double>(columns() * options_.dim);
  if (left_behind - init <= options_.k) return work;
  work.attended = static_cast<double>(shape.n_heads * (init + options_.k + n - left_behind));
  const int64_t floats = compressed()                                       ? options_.dim
                         : options_.share == EsaOptions::Share::kIndividual ? shape.n_heads * shape.head_dim
                                                                            : columns();
  work.chosen_by += static_cast<double>((left_behind - init) * floats);
  if (compressed()) work.chosen_by += static_cast<double>(columns() * options_.dim);
  return work;
}

// ---- What the user is told

std::string Esa::Warning(int64_t) const { return ""; }

std::string Esa::Explain() const {
  return fmt::format(
      "ESA: full attention up to token {}; then each chunk of {} tokens sees itself and the {} tokens before "
      "it, the first {} of the text, and the {} tokens between that match it best (by {} scores), these and "
      "the first ones at distance {}",
      options_.n_local, options_.chunk, options_.n_local, options_.n_init, options_.k,
      compressed() ? fmt::format("compressed, dim {},", options_.dim) : "exact", options_.n_local);
}

uint64_t Esa::StateBytes(int64_t n) const {
  return State::BytesFor(n, options_.k, compressed() ? options_.dim : 0);
}
uint64_t Esa::LastBlockBytes(int64_t n) const {
  return compressed() && n > 0 ? sizeof(float) * static_cast<uint64_t>(kPageTokens * options_.dim) : 0;
}

// ---- How it is made

namespace {

// The paper's number, or the same share of a window that is shorter than its models'.
int64_t OfEsaWindow(int64_t value, int64_t trained_window) {
  constexpr int64_t kWindow = 8192;
  return trained_window >= kWindow ? value : value * trained_window / kWindow;
}

constexpr int64_t kMostEps = 1000;   // every token's scan is as wide
constexpr int64_t kMostK = 1 << 20;  // every layer's state holds as many numbers

}  // namespace

EsaOptions DefaultEsaOptions(const AttentionModel& model) {
  const int64_t columns = model.shape.n_kv_heads * model.shape.head_dim;
  EsaOptions o;
  // Frequencies may make the window smaller; it is 0 where they are not known yet.
  const int64_t usual =
      model.window > 0 ? std::min(model.trained_window, model.window) : model.trained_window;
  o.n_init = OfEsaWindow(o.n_init, usual);
  o.k = std::max<int64_t>(1, OfEsaWindow(o.k, usual));
  o.n_local = DefaultEsaDistance(usual);
  o.chunk = std::max<int64_t>(1, OfEsaWindow(o.chunk, usual));
  o.dim = std::min(columns, std::clamp<int64_t>(columns / 8, 16, 128));
  return o;
}

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  const int64_t columns = model.shape.n_kv_heads * model.shape.head_dim;
  EsaOptions o = DefaultEsaOptions(model);
  reader.Tokens("n_init", o.n_init, /*least=*/0);
  reader.Tokens("k", o.k);
  reader.Tokens("n_local", o.n_local);
  reader.Tokens("chunk", o.chunk);
  reader.Tokens("dim", o.dim);
  reader.Tokens("eps", o.eps, /*least=*/0);
  reader.Choice<EsaOptions::Score>(
      "score", {{"compressed", EsaOptions::Score::kCompressed}, {"exact", EsaOptions::Score::kExact}},
      o.score);
  reader.Choice<EsaOptions::Share>(
      "share", {{"sum", EsaOptions::Share::kSum}, {"individual", EsaOptions::Share::kIndividual}}, o.share);
  // chunk may be as large as the window: subtract, the sum could overflow.
  if (o.n_local >= model.window || o.chunk > model.window - o.n_local) {
    reader.Fail(fmt::format(
        "n_local={} and chunk={} do not fit together in the model's window of {} tokens: use less", o.n_local,
        o.chunk, model.window));
  }
  if (o.k > kMostK) reader.Fail(fmt::format("k={} is too large: use at most k={}", o.k, kMostK));
  if (o.eps > kMostEps) reader.Fail(fmt::format("eps={} is too large: use at most eps={}", o.eps, kMostEps));
  if (o.dim > columns) {
    reader.Fail(fmt::format("dim={} is more than the {} dimensions of a token's keys: use at most dim={}",
                            o.dim, columns, columns));
  }
  if (o.score == EsaOptions::Score::kCompressed && o.share == EsaOptions::Share::kIndividual) {
    reader.Fail("share=individual needs score=exact: the compression is of the sum of the heads' scores");
  }
  LH_TRY(reader.status());
  std::shared_ptr<const EsaProjections> projections;
  if (o.score == EsaOptions::Score::kCompressed) {
    if (!model.esa_projections) {
      reader.Fail(
          "score=compressed needs a compression fitted to the model, and there is none: use "
          "score=exact");
      return tl::unexpected<Error>(reader.status().error());
    }
    const Result<std::shared_ptr<const EsaProjections>> fitted = model.esa_projections(o.n_local);
    if (!fitted) {
      reader.Fail(fitted.error().message);
      return tl::unexpected<Error>(reader.status().error());
    }
    projections = *fitted;
    if (projections->n_rows < o.dim) {
      reader.Fail(
          fmt::format("dim={}: the compression was fitted for dim={} at most", o.dim, projections->n_rows));
    }
    LH_TRY(reader.status());
  }
  return SameInEveryLayer(model, std::make_shared<Esa>(o, model.shape, std::move(projections)));
}

}  // namespace

int64_t DefaultEsaDistance(int64_t trained_window) {
  return std::max<int64_t>(1, OfEsaWindow(EsaOptions{}.n_local, trained_window));
}

Method EsaMethod() {
  return {
      {.name = "esa",
       .summary = "ESA: the newest tokens, the first few, and the single tokens between that match a chunk "
                  "of queries best, chosen once for all heads.",
       .source = "Wang et al. 2025, \"Unshackling Context Length: An Efficient Selective Attention Approach "
                 "through Query-Key Compression\"",
       .options =
           {
               {"n_init", "tokens", "128; for a trained window below 8192 the same share of it", ">= 0",
                "first tokens of the text, which are always seen"},
               {"k", "tokens", "2048; for a trained window below 8192 the same share of it", "1 .. 1048576",
                "tokens between that are chosen for a chunk"},
               {"n_local", "tokens", "4096; for a trained window below 8192 the same share of it",
                "1 .. the model's window less chunk",
                "tokens before a chunk that are seen at their true distance, and the distance of all others"},
               {"chunk", "tokens", "512; for a trained window below 8192 the same share of it",
                "1 .. the model's window less n_local",
                "tokens of a prompt that choose together; a generated token chooses for itself"},
               {"dim", "dimensions", "an eighth of a token's keys, but 16 .. 128",
                "1 .. n_kv_heads * head_dim", "what scores are compressed to; with score=compressed"},
               {"eps", "tokens", "3", "0 .. 1000", "how far a token's score lifts its neighbours'"},
               {"score", "compressed|exact", "compressed", "",
                "how a token is scored: in dim dimensions, by a compression fitted to the model, or in all"},
               {"share", "sum|individual", "sum", "individual needs score=exact",
                "a token's score: the sum of the heads' products, or the largest of them"},
           }},
      Create};
}

}  // namespace longheads
