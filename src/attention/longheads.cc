#include "attention/longheads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/shared_blocks.h"
#include "attention/state_archive.h"
#include "attention/top_k.h"
#include "base/check.h"
#include "kernels/vector_ops.h"

namespace longheads {

// Representations of the complete chunks, and the queries of the newest token's chunk, which its
// representation needs; they stay when the chunk is complete, until the next begins.
class LongHeads::State : public PolicyState {
 public:
  static constexpr int64_t kQueriesBlock = 32;  // tokens whose queries lie together

  State(int64_t chunk, int64_t n_rep_heads, int64_t q_floats, int64_t head_dim)
      : chunk_(chunk),
        q_floats_(q_floats),
        head_dim_(head_dim),
        n_rep_heads_(n_rep_heads),
        representations_(n_rep_heads, head_dim),
        open_q_(std::min(chunk, kQueriesBlock) * q_floats) {
    open_q_.Resize((chunk + kQueriesBlock - 1) / kQueriesBlock);
  }

  std::unique_ptr<PolicyState> Fork() const override { return std::make_unique<State>(*this); }

  int64_t RewindPoint(int64_t n) const override { return n >= open_ * chunk_ ? n : n / chunk_ * chunk_; }

  void Truncate(int64_t m) override {
    LH_CHECK(m <= n_tokens_ && m == RewindPoint(m));
    n_tokens_ = m;
    open_ = std::min(open_, m / chunk_);
    representations_.Resize(m / chunk_);
  }

  uint64_t Bytes() const override { return representations_.Bytes() + open_q_.Bytes(); }

  std::string Layout() const override {
    return fmt::format("longheads 1: chunks of {}, {} x {}, queries {}", chunk_, n_rep_heads_, head_dim_,
                       q_floats_);
  }
  // The choices of `fixed` are the newest step's alone.
  void Save(int64_t from, int64_t n, StateWriter& added, StateWriter& latest) const override {
    LH_CHECK(n == n_tokens_);
    representations_.Write(from / chunk_, n / chunk_, added);
    const int64_t n_open = n % chunk_;  // nobody asks for the queries of a chunk that is complete
    latest.Int(n_open);
    for (int64_t offset = 0; offset < n_open; ++offset) {
      latest.Floats({open_q(offset), static_cast<std::size_t>(q_floats_)});
    }
  }
  void RestoreAdded(int64_t from, int64_t n, StateReader& added) override {
    representations_.Read(added, from / chunk_, n / chunk_);
  }
  void RestoreLatest(int64_t n, StateReader& latest) override {
    const int64_t n_open = latest.Int(0, chunk_ - 1);
    if (n_open != n % chunk_) return latest.Fail(fmt::format("{} tokens end no chunk's {}", n, n_open));
    n_tokens_ = n;
    open_ = (n - n_open) / chunk_;
    for (int64_t offset = 0; offset < n_open; ++offset) {
      latest.Floats({mutable_open_q(offset), static_cast<std::size_t>(q_floats_)});
    }
  }

  static int64_t QueryTokensFor(int64_t chunk) {
    return chunk <= kQueriesBlock ? chunk : (chunk + kQueriesBlock - 1) / kQueriesBlock * kQueriesBlock;
  }

  int64_t n_tokens() const { return n_tokens_; }
  // Tokens up to n > 0 are in; the queries of the last one's chunk are in open_q.
  void set_n_tokens(int64_t n) {
    n_tokens_ = n;
    open_ = (n - 1) / chunk_;
  }

  // The queries of the newest chunk's token at `offset`: [n_heads, head_dim].
  const float* open_q(int64_t offset) const {
    return open_q_[offset / kQueriesBlock] + offset % kQueriesBlock * q_floats_;
  }
  void set_open_q(int64_t offset, const float* q) { std::copy_n(q, q_floats_, mutable_open_q(offset)); }

  // Choices that hold for more than one head or layer, of the newest step's tokens from `begin` on:
  // n_choosers of them a token, each a count and as many chunks, ascending.
  struct Fixed {
    int64_t begin = 0;
    int64_t n_choosers = 0;
    int64_t stride = 0;  // n_slots + 1
    std::vector<int32_t> choices;

    int32_t* of(int64_t token, int64_t chooser) {
      return choices.data() + ((token - begin) * n_choosers + chooser) * stride;
    }
    const int32_t* of(int64_t token, int64_t chooser) const {
      return choices.data() + ((token - begin) * n_choosers + chooser) * stride;
    }
  };
  Fixed fixed;

  // One for each complete chunk and head that has its own.
  const ScoredVectors& representations() const { return representations_; }
  ScoredVectors& representations() { return representations_; }

 private:
  float* mutable_open_q(int64_t offset) {
    return open_q_.Mutable(offset / kQueriesBlock) + offset % kQueriesBlock * q_floats_;
  }

  int64_t chunk_;
  int64_t q_floats_;
  int64_t head_dim_;
  int64_t n_rep_heads_;
  int64_t n_tokens_ = 0;
  int64_t open_ = 0;  // the chunk whose queries open_q_ holds, up to n_tokens_
  ScoredVectors representations_;
  SharedBlocks open_q_;  // [kQueriesBlock, n_heads, head_dim] each, of one chunk
};

struct LongHeads::Scratch : PolicyScratch {
  std::vector<const float*> queries;
  std::vector<float> scores;  // [choosers, n_chunks] of the tokens that select
  std::vector<float> summed;  // queries, or scores, that meet others
  Buffer<float> workspace;
  std::vector<int32_t> candidates;  // chunks, while one row chooses; then those that it took
  int64_t candidate_begin = 0;      // what it chose from
  int64_t candidate_end = 0;
  TopK top_k;
  std::vector<float> turned;    // scores, where the worst are chosen
  std::vector<int32_t> drawn;   // where it chooses at random
  std::vector<int32_t> chosen;  // that row's chunks, ascending
  // Whether the row's next best, as many as it chose by score, are added to `nearly`: those that the text's
  // next token may choose.
  bool wants_nearly = false;
  std::vector<int32_t> nearly;
  // The (chunk, row, x) entries of the plan in row order, before they are grouped by chunk.
  struct Entry {
    int32_t chunk;
    int32_t row;
    int32_t x;
  };
  std::vector<Entry> entries;
  std::vector<int64_t> counts;  // per chunk
  // While chunks are represented: one's queries, what they attend to within it, and its outputs [l, group,
  // d] and keys.
  std::vector<QueryToken> tokens;
  Plan within;
  std::vector<float> outputs;
  std::vector<float> page;
  std::vector<float> represented;
  std::vector<ScoredVectors::Place> places;  // of the representations
};

LongHeads::LongHeads(const LongHeadsOptions& options, const HeadShape& shape, PairLayout layout,
                     int64_t window)
    : options_(options), shape_(shape), layout_(layout), window_(window) {
  LH_CHECK(options.chunk > 0 && options.window % options.chunk == 0 && options.window / options.chunk >= 3);
  LH_CHECK(options.begin >= options.window && options.begin % options.chunk == 0);
}

int64_t LongHeads::RotationBound(int64_t n) const {
  // Before `begin` x < begin; past it the slots stay below the window.
  return std::min(n, options_.begin) + options_.chunk;
}

std::unique_ptr<PolicyState> LongHeads::NewState() const {
  return std::make_unique<State>(options_.chunk, n_rep_heads(), shape_.n_heads * shape_.head_dim,
                                 shape_.head_dim);
}

std::unique_ptr<PolicyScratch> LongHeads::NewScratch() const { return std::make_unique<Scratch>(); }

bool LongHeads::Selects(int64_t position, Phase phase) const {
  const bool one_early = options_.compat.begin && phase == Phase::kDecode;
  return position >= options_.begin - (one_early ? 1 : 0);
}

// ---- Representations (equations 1 and 2 of the paper)

// A plan has an entry for each row and chunk it sees.
int64_t LongHeads::PlanTokens(int64_t n) const {
  constexpr int64_t kEntries = 1 << 20;  // 12 MiB on each thread
  const int64_t most_chunks =
      std::min(std::max(n_slots(), options_.begin / options_.chunk), n / options_.chunk + 1);
  return std::max<int64_t>(1, kEntries / (shape_.group() * (most_chunks + 1)));
}

int64_t LongHeads::FullPlanTokens(int64_t n) const {
  constexpr int64_t kRows = 64;  // that see a chunk, if all are chosen alike: some tiles full, one not
  constexpr int64_t kMostRows = 16 * 1024;  // 4 MiB of states on each thread, with heads of 64
  return std::min(kRows * (n / options_.chunk) / n_slots(), kMostRows) / shape_.group();
}

int64_t LongHeads::ScoredTokens(int64_t n_chunks) const {
  constexpr int64_t kScores = 1 << 20;  // 4 MiB on each thread
  // All of them are scored for the chunks of the last.
  const int64_t most = std::max<int64_t>(options_.chunk, 64);
  return std::clamp<int64_t>(kScores / (shape_.group() * (n_chunks + 1)), 1, most);
}

void LongHeads::Extend(const StepInput& input, PolicyState& policy_state) const {
  State& state = static_cast<State&>(policy_state);
  LH_CHECK(state.n_tokens() == input.token_begin);
  const int64_t l = options_.chunk;
  const int64_t q_floats = shape_.n_heads * shape_.head_dim;
  const int64_t end = input.token_begin + input.n_tokens;
  state.representations().Resize(end / l);
  // Chunks that these tokens complete; only the first can have begun before them.
  Represent(input, input.token_begin / l, end / l, state);
  // Raised in between, representations may be missing: the state stays at the tokens it had.
  if (Cancelled(input.cancel)) return;
  const int64_t open_begin = std::max((end - 1) / l * l, input.token_begin);
  for (int64_t j = open_begin; j < end; ++j) {
    state.set_open_q(j % l, input.q + (j - input.token_begin) * q_floats);
  }
  state.set_n_tokens(end);
  if (shares_choices() && (!fixes_layers() || input.layer == 0)) FixChoices(input, state);
}

void LongHeads::Represent(const StepInput& input, int64_t begin, int64_t end, State& state) const {
  if (options_.represent != LongHeadsOptions::Represent::kPaper) {
    for (int64_t chunk = begin; chunk < end; ++chunk) RepresentByKeys(input, chunk, state);
    return;
  }
  if (begin == end) return;
  // Asked for by one thread: blocks that a fork shares are copied.
  std::vector<ScoredVectors::Place>& places = static_cast<Scratch&>(*input.scratch[0]).places;
  places.clear();
  for (int64_t chunk = begin; chunk < end; ++chunk) places.push_back(state.representations().PlaceOf(chunk));
  input.pool->Run((end - begin) * shape_.n_kv_heads, [&](int64_t task, int thread) {
    if (Cancelled(input.cancel)) return;
    const int64_t nth = task / shape_.n_kv_heads;
    RepresentByOutputs(input, begin + nth, task % shape_.n_kv_heads, thread, state,
                       places[static_cast<std::size_t>(nth)]);
  });
}

// O: every query of the chunk over every key of the chunk, both at their chunk-local positions, no mask.
void LongHeads::AttendWithin(const StepInput& input, int64_t chunk, int64_t kv_head, int thread,
                             const State& state, Scratch& scratch) const {
  const int64_t l = options_.chunk;
  const int64_t group = shape_.group();
  const int64_t q_floats = shape_.n_heads * shape_.head_dim;
  const int64_t out_floats = group * shape_.head_dim;
  scratch.outputs.resize(static_cast<std::size_t>(l * out_floats));
  scratch.tokens.clear();
  Plan& plan = scratch.within;
  plan.Clear();
  for (int64_t o = 0; o < l; ++o) {
    const int64_t j = chunk * l + o;
    const float* const q =
        j < input.token_begin ? state.open_q(o) : input.q + (j - input.token_begin) * q_floats;
    scratch.tokens.push_back(
        {.sequence = 0, .position = j, .q = q, .out = scratch.outputs.data() + o * out_floats});
    for (int64_t g = 0; g < group; ++g) {
      plan.rows.push_back({static_cast<int32_t>(o * group + g), static_cast<int32_t>(o)});
    }
  }
  plan.segments.push_back({.key_begin = chunk * l,
                           .key_end = (chunk + 1) * l,
                           .row_end = l * group,
                           .min_distance = -PlanSegment::kAnyDistance});
  const QueryBlock block{.layer = input.layer,
                         .kv_head = kv_head,
                         .first_out_head = kv_head * group,
                         .tokens = scratch.tokens,
                         .sequences = std::span(input.sequence, 1)};
  input.executor->RunBlock(block, plan, Plane(), thread, input.cancel);
}

namespace {

// a . b, in eight sums that add side by side.
double Dot(std::span<const double> a, const float* b) {
  double sums[8] = {};
  std::size_t m = 0;
  for (; m + 8 <= a.size(); m += 8) {
    for (std::size_t i = 0; i < 8; ++i) sums[i] += a[m + i] * static_cast<double>(b[m + i]);
  }
  for (std::size_t i = 0; m + i < a.size(); ++i) sums[i] += a[m + i] * static_cast<double>(b[m + i]);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

// c = sum of w k over the chunk's stored keys, w = softmax(scale qc . k), qc the mean row of O [l, group,
// d].
void LongHeads::RepresentByOutputs(const StepInput& input, int64_t chunk, int64_t kv_head, int thread,
                                   const State& state, ScoredVectors::Place place) const {
  Scratch& scratch = static_cast<Scratch&>(*input.scratch[static_cast<std::size_t>(thread)]);
  AttendWithin(input, chunk, kv_head, thread, state, scratch);
  const int64_t l = options_.chunk;
  const int64_t d = shape_.head_dim;
  const int64_t heads_per_rep = shape_.n_heads / n_rep_heads();
  const int64_t reps_per_kv = shape_.group() / heads_per_rep;
  std::vector<double> mean(static_cast<std::size_t>(d)), qc(mean), c(mean),
      logits(static_cast<std::size_t>(l));
  std::vector<float>& page = scratch.page;
  page.resize(static_cast<std::size_t>(kPageTokens * d));
  // qc is not rotated: the keys alone have an amplitude.
  const double scale = static_cast<double>(input.sequence->scale) / input.sequence->amplitude;
  const float* keys = nullptr;
  int64_t page_at = -1;
  const auto key = [&](int64_t o) {
    const int64_t j = chunk * l + o;
    if (j / kPageTokens != page_at) {
      page_at = j / kPageTokens;
      keys = input.sequence->kv->ReadKeys(input.layer, kv_head, page_at, page.data());
    }
    return keys + j % kPageTokens * d;
  };
  for (int64_t rep = kv_head * reps_per_kv; rep < (kv_head + 1) * reps_per_kv; ++rep) {
    // Over the group's heads too where they share a representation.
    std::fill(mean.begin(), mean.end(), 0.0);
    for (int64_t o = 0; o < l; ++o) {
      for (int64_t h = rep * heads_per_rep; h < (rep + 1) * heads_per_rep; ++h) {
        const float* const row = scratch.outputs.data() + ((o - kv_head) * shape_.group() + h) * d;
        for (int64_t m = 0; m < d; ++m) mean[static_cast<std::size_t>(m)] += row[m];
      }
    }
    for (double& value : mean) value /= static_cast<double>(l * heads_per_rep);
    // qc is a vector of value space, which GGUF does not permute, and it meets keys, which GGUF does: bring
    // it into the keys' order (methods: the layout trap).
    for (int64_t m = 0; m < d; ++m) {
      const int64_t from = layout_ == PairLayout::kInterleaved ? m / 2 + (m % 2) * (d / 2) : m;
      qc[static_cast<std::size_t>(m)] = mean[static_cast<std::size_t>(from)];
    }
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t o = 0; o < l; ++o) {
      const float* const k = key(o);
      logits[static_cast<std::size_t>(o)] = Dot(qc, k) * scale;
      max = std::max(max, logits[static_cast<std::size_t>(o)]);
    }
    double sum = 0;
    std::fill(c.begin(), c.end(), 0.0);
    for (int64_t o = 0; o < l; ++o) {
      const double w = std::exp(logits[static_cast<std::size_t>(o)] - max);
      sum += w;
      const float* const k = key(o);
      for (int64_t m = 0; m < d; ++m) c[static_cast<std::size_t>(m)] += w * static_cast<double>(k[m]);
    }
    scratch.represented.clear();
    for (const double value : c) scratch.represented.push_back(static_cast<float>(value / sum));
    place.Set(rep, scratch.represented);
  }
}

// The mean of the chunk's stored keys, or the last of them: equal for all heads of a KV head.
void LongHeads::RepresentByKeys(const StepInput& input, int64_t chunk, State& state) const {
  const int64_t d = shape_.head_dim;
  const int64_t end = (chunk + 1) * options_.chunk;
  const int64_t begin =
      options_.represent == LongHeadsOptions::Represent::kMean ? chunk * options_.chunk : end - 1;
  const int64_t reps_per_kv = n_rep_heads() / shape_.n_kv_heads;
  ScoredVectors::Place place = state.representations().PlaceOf(chunk);
  std::vector<float> page(static_cast<std::size_t>(2 * kPageTokens * d));
  for (int64_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
    std::vector<double> sum(static_cast<std::size_t>(d));
    for (int64_t j = begin; j < end;) {
      const int64_t page_end = std::min(end, (j / kPageTokens + 1) * kPageTokens);
      const PageLayout::Floats keys =
          input.sequence->kv->Read(input.layer, kv_head, j / kPageTokens, page.data());
      for (; j < page_end; ++j) {
        const float* const k = keys.k + j % kPageTokens * d;
        for (int64_t m = 0; m < d; ++m) sum[static_cast<std::size_t>(m)] += static_cast<double>(k[m]);
      }
    }
    std::vector<float> vector;
    for (const double value : sum)
      vector.push_back(static_cast<float>(value / static_cast<double>(end - begin)));
    for (int64_t rep = kv_head * reps_per_kv; rep < (kv_head + 1) * reps_per_kv; ++rep)
      place.Set(rep, vector);
  }
}

// ---- Choice

namespace {

uint64_t Finalise(uint64_t z) {  // SplitMix64's output function
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Leaves `count` of the candidates, each subset equally likely, in their order; a function of the numbers
// that seed it (Floyd's sampling over SplitMix64). `taken` is scratch.
void Draw(std::initializer_list<int64_t> seeds, int64_t count, std::vector<int32_t>& candidates,
          std::vector<int32_t>& taken) {
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;
  uint64_t state = 0;
  for (const int64_t x : seeds) state = Finalise(state + (static_cast<uint64_t>(x) + 1) * kGamma);
  const int64_t n = static_cast<int64_t>(candidates.size());
  taken.clear();
  for (int64_t top = std::max<int64_t>(n - count, 0); top < n; ++top) {
    state += kGamma;
    const int32_t index = static_cast<int32_t>(Finalise(state) % static_cast<uint64_t>(top + 1));
    const bool again = std::find(taken.begin(), taken.end(), index) != taken.end();
    taken.push_back(again ? static_cast<int32_t>(top) : index);
  }
  std::sort(taken.begin(), taken.end());
  for (int32_t& index : taken) index = candidates[static_cast<std::size_t>(index)];
  candidates.swap(taken);
}

}  // namespace

// scores[(t - first) * choosers + c][chunk] of tokens [first, last), for chunks [0, n_chunks). A KV head's
// choosers are its heads, or all of them together by the sum of their scores.
void LongHeads::ScoreChunks(const QueryBlock& block, int64_t first, int64_t last, int64_t n_chunks,
                            const State& state, const AttentionKernels& kernels, Scratch& scratch) const {
  const int64_t n_rows = (last - first) * (shape_.group() / heads_per_choice());
  scratch.scores.resize(static_cast<std::size_t>(n_rows * n_chunks));
  scratch.workspace.Reserve(AttendWorkspace(kernels.row_tile, shape_.head_dim));
  const std::span<const QueryToken> tokens =
      block.tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  if (options_.reps == LongHeadsOptions::Grouping::kHead) {
    ScoreOwnVectors(tokens, block.kv_head, n_chunks, state, kernels, scratch);
  } else {
    ScoreSharedVectors(tokens, block.kv_head, n_chunks, state, kernels, scratch);
  }
}

// Where the KV head's heads have the same vectors. The sum of what several queries give with a vector is what
// their sum gives.
void LongHeads::ScoreSharedVectors(std::span<const QueryToken> tokens, int64_t kv_head, int64_t n_chunks,
                                   const State& state, const AttentionKernels& kernels,
                                   Scratch& scratch) const {
  const int64_t d = shape_.head_dim;
  const int64_t together = heads_per_choice();
  const auto add = FastestVectorKernels().add;
  scratch.summed.resize(together > 1 ? tokens.size() * static_cast<std::size_t>(d) : 0);
  scratch.queries.clear();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const float* const group = tokens[t].q + kv_head * shape_.group() * d;
    if (together == 1) {
      for (int64_t g = 0; g < shape_.group(); ++g) scratch.queries.push_back(group + g * d);
      continue;
    }
    float* const sum = scratch.summed.data() + static_cast<int64_t>(t) * d;
    std::copy_n(group, d, sum);
    for (int64_t g = 1; g < together; ++g) add(sum, group + g * d, d);
    scratch.queries.push_back(sum);
  }
  state.representations().Score(scratch.queries, kv_head, 0, n_chunks, kernels, scratch.workspace.data(),
                                scratch.scores.data(), n_chunks);
}

// Where each head has its own.
void LongHeads::ScoreOwnVectors(std::span<const QueryToken> tokens, int64_t kv_head, int64_t n_chunks,
                                const State& state, const AttentionKernels& kernels, Scratch& scratch) const {
  constexpr int64_t kTogether = ScoredVectors::kTogether;
  const int64_t group = shape_.group();
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  const bool summed = heads_per_choice() > 1;
  const auto add = FastestVectorKernels().add;
  scratch.summed.resize(summed ? static_cast<std::size_t>(n_tokens * kTogether) : 0);
  scratch.queries.clear();
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (const QueryToken& token : tokens) scratch.queries.push_back(token.q + head * shape_.head_dim);
  }
  // In the order in which they lie in memory: of so many chunks the first head's, then the next one's.
  for (int64_t begin = 0; begin < n_chunks; begin += kTogether) {
    const int64_t end = std::min(n_chunks, begin + kTogether);
    if (end < n_chunks) state.representations().Fetch(kv_head * group, end);
    for (int64_t g = 0; g < group; ++g) {
      const auto queries =
          std::span(scratch.queries)
              .subspan(static_cast<std::size_t>(g * n_tokens), static_cast<std::size_t>(n_tokens));
      const auto score = [&](float* scores, int64_t stride) {
        state.representations().Score(queries, kv_head * group + g, begin, end, kernels,
                                      scratch.workspace.data(), scores, stride);
      };
      float* const scores = scratch.scores.data() + begin;
      if (!summed) {
        score(scores + g * n_chunks, group * n_chunks);
      } else if (g == 0) {
        score(scores, n_chunks);
      } else {
        score(scratch.summed.data(), kTogether);
        for (int64_t t = 0; t < n_tokens; ++t) {
          add(scores + t * n_chunks, scratch.summed.data() + t * kTogether, end - begin);
        }
      }
    }
  }
}

// scratch.chosen = the chunks of one row that selects, ascending; its own chunk is the last.
void LongHeads::ChooseChunks(int64_t position, Phase phase, Chooser chooser, const float* scores,
                             Scratch& scratch) const {
  using Choose = LongHeadsOptions::Choose;
  const int64_t l = options_.chunk;
  const int64_t own = position / l;
  // The published decode step sees a chunk that this token completes as the last full one: one slot fewer,
  // and the chunk before it is a mere candidate.
  const bool at_end = options_.compat.chunk_end && phase == Phase::kDecode && (position + 1) % l == 0;
  const bool keeps = options_.choose != Choose::kRandom;  // the first chunk and the one before its own
  const bool keeps_first = keeps && options_.first;
  const bool keeps_previous = keeps && !at_end && own > 1;
  const int64_t candidate_begin = !keeps && options_.first ? 0 : 1;
  const int64_t candidate_end = keeps && !at_end ? own - 1 : own;
  const int64_t n_free = n_slots() - at_end - 1 - (keeps && !at_end) - keeps_first;
  std::vector<int32_t>& candidates = scratch.candidates;
  scratch.candidate_begin = std::min(candidate_begin, candidate_end);
  scratch.candidate_end = candidate_end;
  candidates.clear();
  const int64_t n_candidates = candidate_end - scratch.candidate_begin;
  if (!chooses_by_score() || n_candidates <= n_free) {
    for (int64_t chunk = candidate_begin; chunk < candidate_end; ++chunk) {
      candidates.push_back(static_cast<int32_t>(chunk));
    }
    if (!chooses_by_score()) Draw({chooser.layer, chooser.head, position}, n_free, candidates, scratch.drawn);
  } else {
    const float* from = scores + candidate_begin;
    if (options_.choose == Choose::kLastK) {
      scratch.turned.resize(static_cast<std::size_t>(n_candidates));
      std::transform(from, from + n_candidates, scratch.turned.begin(), std::negate<>());
      from = scratch.turned.data();
    }
    const std::size_t n_nearly = scratch.nearly.size();
    scratch.top_k.Choose(from, n_candidates, n_free, candidates,
                         scratch.wants_nearly ? &scratch.nearly : nullptr);
    for (int32_t& chunk : candidates) chunk += static_cast<int32_t>(candidate_begin);
    for (int32_t& chunk : std::span(scratch.nearly).subspan(n_nearly)) {
      chunk += static_cast<int32_t>(candidate_begin);
    }
  }
  scratch.chosen.clear();
  if (keeps_first) scratch.chosen.push_back(0);
  scratch.chosen.insert(scratch.chosen.end(), candidates.begin(), candidates.end());
  if (keeps_previous) scratch.chosen.push_back(static_cast<int32_t>(own - 1));
  if (own > 0) scratch.chosen.push_back(static_cast<int32_t>(own));
}

// Choices that several heads or layers share, for all tokens of the step that select.
void LongHeads::FixChoices(const StepInput& input, State& state) const {
  const int64_t l = options_.chunk;
  const int64_t end = input.token_begin + input.n_tokens;
  int64_t begin = input.token_begin;
  while (begin < end && !Selects(begin, input.phase)) ++begin;
  const int64_t n_scored = shape_.n_heads / heads_per_choice();
  const int64_t n_choosers = fixes_heads() ? 1 : n_scored;
  State::Fixed& fixed = state.fixed;
  fixed.begin = begin;
  fixed.n_choosers = n_choosers;
  fixed.stride = n_slots() + 1;
  fixed.choices.resize(static_cast<std::size_t>((end - begin) * n_choosers * fixed.stride));

  const int64_t per_kv = n_scored / shape_.n_kv_heads;
  const int64_t n_chunks = (end - 1) / l;  // those before the newest token's own
  const int64_t most = ScoredTokens(n_chunks);
  const int64_t q_floats = shape_.n_heads * shape_.head_dim;
  for (int64_t first = begin; first < end; first += most) {
    const int64_t n = std::min(most, end - first);
    std::vector<QueryToken> tokens;
    for (int64_t i = first; i < first + n; ++i) {
      tokens.push_back(
          {.sequence = 0, .position = i, .q = input.q + (i - input.token_begin) * q_floats, .out = nullptr});
    }
    // [kv_head][n, per_kv, n_chunks]
    std::vector<Scratch> scratch(static_cast<std::size_t>(shape_.n_kv_heads));
    input.pool->Run(shape_.n_kv_heads, [&](int64_t kv_head, int) {
      const QueryBlock block{.layer = input.layer,
                             .kv_head = kv_head,
                             .tokens = tokens,
                             .sequences = std::span(input.sequence, 1)};
      ScoreChunks(block, 0, n, n_chunks, state, input.executor->kernels(),
                  scratch[static_cast<std::size_t>(kv_head)]);
    });
    std::vector<float> sum(static_cast<std::size_t>(n_chunks));
    for (int64_t t = 0; t < n; ++t) {
      const auto scores_of = [&](int64_t nth) {
        const std::vector<float>& scores = scratch[static_cast<std::size_t>(nth / per_kv)].scores;
        return scores.empty() ? nullptr : scores.data() + (t * per_kv + nth % per_kv) * n_chunks;
      };
      if (fixes_heads()) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t nth = 0; nth < n_scored; ++nth) {
          const float* const scores = scores_of(nth);
          for (int64_t chunk = 0; chunk < n_chunks; ++chunk)
            sum[static_cast<std::size_t>(chunk)] += scores[chunk];
        }
      }
      for (int64_t chooser = 0; chooser < n_choosers; ++chooser) {
        const float* const scores = fixes_heads() ? sum.data() : scores_of(chooser);
        const int64_t n_heads = shape_.n_heads / n_choosers, head = chooser * n_heads;
        ChooseChunks(first + t, input.phase, ChooserOf(input.layer, head), scores, scratch[0]);
        TellChoice(input.observer, input.layer, input.sequence_index, first + t, head, head + n_heads, scores,
                   scratch[0]);
        int32_t* const choice = fixed.of(first + t, chooser);
        choice[0] = static_cast<int32_t>(scratch[0].chosen.size());
        std::copy(scratch[0].chosen.begin(), scratch[0].chosen.end(), choice + 1);
      }
    }
  }
}

LongHeads::Chooser LongHeads::ChooserOf(int64_t layer, int64_t head) const {
  if (fixes_layers()) layer = 0;
  if (fixes_heads()) return {.layer = layer, .head = 0};
  return {.layer = layer, .head = head / heads_per_choice()};
}

void LongHeads::TellChoice(SelectionObserver* observer, int64_t layer, int32_t sequence, int64_t position,
                           int64_t head_begin, int64_t head_end, const float* scores,
                           const Scratch& scratch) const {
  if (observer == nullptr) return;
  const int64_t n = scratch.candidate_end - scratch.candidate_begin;
  BlockChoice choice{.layer = layer,
                     .sequence = sequence,
                     .token_begin = position,
                     .token_end = position + 1,
                     .head_begin = head_begin,
                     .head_end = head_end,
                     .first = scratch.candidate_begin,
                     .n_candidates = n,
                     .taken = scratch.candidates};
  if (chooses_by_score()) {
    choice.scores = std::span(scores + scratch.candidate_begin, static_cast<std::size_t>(n));
  }
  observer->OnChoice(choice);
}

void LongHeads::BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                          PolicyScratch& policy_scratch, Plan& plan) const {
  Scratch& scratch = static_cast<Scratch&>(policy_scratch);
  const int64_t n = static_cast<int64_t>(block.tokens.size());
  const auto token_at = [&](int64_t t) -> const QueryToken& {
    return block.tokens[static_cast<std::size_t>(t)];
  };
  for (int64_t begin = 0; begin < n;) {
    TokenRun run{.sequence = token_at(begin).sequence, .begin = begin, .selecting = begin, .end = begin};
    for (; run.end < n && token_at(run.end).sequence == run.sequence; ++run.end) {
      const int64_t position = token_at(run.end).position;
      run.n_chunks = std::max(run.n_chunks, position / options_.chunk + 1);
      if (!Selects(position, phase)) run.selecting = run.end + 1;  // those after it may
    }
    scratch.nearly.clear();
    scratch.wants_nearly =
        phase == Phase::kDecode && block.sequences[static_cast<std::size_t>(run.sequence)].kv->on_disk();
    ListEntries(block, phase, run, kernels, scratch);
    GroupByChunk(block, run, options_.compat.own_key && phase == Phase::kPrefill, scratch, plan);
    for (const int64_t chunk : scratch.nearly) {
      plan.hints.push_back({run.sequence, chunk * options_.chunk, (chunk + 1) * options_.chunk});
    }
    begin = run.end;
  }
}

// The chunks that each row of the run sees, and where they lie for it.
void LongHeads::ListEntries(const QueryBlock& block, Phase phase, const TokenRun& run,
                            const AttentionKernels& kernels, Scratch& scratch) const {
  const int64_t l = options_.chunk;
  const int64_t group = shape_.group();
  const AttentionSequence& view = block.sequences[static_cast<std::size_t>(run.sequence)];
  const State& state = static_cast<const State&>(fixes_layers() ? *view.first_state : *view.state);
  const bool scores_here = chooses_by_score() && !shares_choices();
  const int64_t together = heads_per_choice();
  // The rows whose scores are there, and for how many chunks.
  int64_t scored_begin = run.selecting, scored_end = run.selecting, n_scored = 0;

  scratch.entries.clear();
  scratch.counts.assign(static_cast<std::size_t>(run.n_chunks) + 1, 0);
  for (int64_t t = run.begin; t < run.end; ++t) {
    const int64_t position = block.tokens[static_cast<std::size_t>(t)].position;
    if (scores_here && t == scored_end) {
      scored_begin = t;
      scored_end = std::min(run.end, t + ScoredTokens(run.n_chunks));
      // Representations below the last row's previous chunk may be asked for; later ones need not exist yet.
      n_scored = block.tokens[static_cast<std::size_t>(scored_end - 1)].position / l;
      ScoreChunks(block, scored_begin, scored_end, n_scored, state, kernels, scratch);
    }
    for (int64_t g = 0; g < group; ++g) {
      const int64_t head = block.kv_head * group + g;
      if (t < run.selecting) {
        scratch.chosen.resize(static_cast<std::size_t>(position / l + 1));
        std::iota(scratch.chosen.begin(), scratch.chosen.end(), 0);
      } else if (shares_choices()) {
        const int32_t* const choice = state.fixed.of(position, fixes_heads() ? 0 : head / together);
        scratch.chosen.assign(choice + 1, choice + 1 + choice[0]);
      } else if (g % together == 0) {  // else it is the choice of the head before
        const int64_t chooser = ((t - scored_begin) * group + g) / together;
        const float* const scores = scratch.scores.empty() ? nullptr  // the choice is not by scores
                                                           : scratch.scores.data() + chooser * n_scored;
        ChooseChunks(position, phase, ChooserOf(block.layer, head), scores, scratch);
        TellChoice(block.observer, block.layer, run.sequence, position, head, head + together, scores,
                   scratch);
      }
      // Slot s of Ks: x = (Ks - 1 - s) l + offset. Before `begin` all chunks are chosen, and x = i - chunk l.
      int64_t x = (static_cast<int64_t>(scratch.chosen.size()) - 1) * l + position % l;
      for (const int32_t chunk : scratch.chosen) {
        ++scratch.counts[static_cast<std::size_t>(chunk)];
        scratch.entries.push_back({chunk, static_cast<int32_t>(t * group + g), static_cast<int32_t>(x)});
        x -= l;
      }
    }
  }
}

// A segment for each chunk, with the rows that see it in row order.
void LongHeads::GroupByChunk(const QueryBlock& block, const TokenRun& run, bool drop_own_key,
                             Scratch& scratch, Plan& plan) const {
  const int64_t l = options_.chunk;
  const int64_t base = static_cast<int64_t>(plan.rows.size());
  plan.rows.resize(static_cast<std::size_t>(base) + scratch.entries.size());
  int64_t at = base;
  for (int64_t& count : scratch.counts) {  // from how many rows to where they begin
    const int64_t n_rows = count;
    count = at;
    at += n_rows;
  }
  for (const Scratch::Entry& entry : scratch.entries) {
    plan.rows[static_cast<std::size_t>(scratch.counts[static_cast<std::size_t>(entry.chunk)]++)] = {entry.row,
                                                                                                    entry.x};
  }
  const int64_t newest = block.tokens[static_cast<std::size_t>(run.end - 1)].position;
  int64_t row_begin = base;
  for (int64_t chunk = 0; chunk < run.n_chunks; ++chunk) {
    const int64_t row_end = scratch.counts[static_cast<std::size_t>(chunk)];  // by now where they end
    PlanSegment segment{.sequence = run.sequence,
                        .key_begin = chunk * l,
                        .key_end = std::min((chunk + 1) * l, newest + 1),  // the last chunks may be open
                        .row_begin = row_begin,
                        .row_end = row_end};
    row_begin = row_end;
    if (segment.row_begin == segment.row_end) continue;
    if (!drop_own_key) {
      plan.segments.push_back(segment);
      continue;
    }
    // Rows that select lose distance 0; rows before `begin` keep it. Rows are in token order: split there.
    PlanSegment keeps = segment;
    PlanSegment drops = segment;
    while (keeps.row_end > keeps.row_begin &&
           plan.rows[static_cast<std::size_t>(keeps.row_end - 1)].row >= run.selecting * shape_.group()) {
      --keeps.row_end;
    }
    drops.row_begin = keeps.row_end;
    drops.min_distance = 1;
    if (keeps.row_begin < keeps.row_end) plan.segments.push_back(keeps);
    if (drops.row_begin < drops.row_end) plan.segments.push_back(drops);
  }
}

AttentionWork LongHeads::Work(int64_t n, Phase phase, const HeadShape& shape) const {
  const int64_t l = options_.chunk;
  AttentionWork work;
  if (Selects(n - 1, phase)) {
    work.attended = static_cast<double>(shape.n_heads) *
                    (static_cast<double>((n_slots() - 1) * l) + static_cast<double>(l + 1) / 2);
    if (chooses_by_score()) {
      // Where heads share both, their queries' sum is scored.
      const bool summed = options_.reps == LongHeadsOptions::Grouping::kKv && heads_per_choice() > 1;
      const int64_t n_scored = summed ? shape.n_kv_heads : shape.n_heads;
      work.chosen_by = static_cast<double>(n_scored * ((n - 1) / l) * shape.head_dim);
    }
  } else {
    work.attended = static_cast<double>(shape.n_heads * n);
  }
  // A chunk's representation is made once: l queries over l keys.
  if (options_.represent == LongHeadsOptions::Represent::kPaper) {
    work.for_later = static_cast<double>(shape.n_heads * l);
    work.attended += work.for_later;
  }
  return work;
}

// ---- What the user is told

std::string LongHeads::Warning(int64_t n_tokens) const {
  if (std::min(n_tokens, options_.begin) <= window_) return "";
  return fmt::format(
      "full attention up to begin={} goes past the model's window of {} tokens: expect nonsense from "
      "there on (a smaller begin selects earlier)",
      options_.begin, window_);
}

std::string LongHeads::Explain() const {
  return fmt::format(
      "LongHeads: full attention up to token {}, then each head selects {} chunks of {} tokens (attention "
      "window {}; "
      "the model's is {})",
      options_.begin, n_slots(), options_.chunk, options_.window, window_);
}

uint64_t LongHeads::StateBytes(int64_t n) const {
  return ScoredVectors::BytesFor(n / options_.chunk, n_rep_heads(), shape_.head_dim) + RewrittenBytes(n);
}

uint64_t LongHeads::LastBlockBytes(int64_t n) const {
  return ScoredVectors::BytesFor(std::min<int64_t>(n / options_.chunk, 1), n_rep_heads(), shape_.head_dim);
}

// The queries of the newest chunk.
uint64_t LongHeads::RewrittenBytes(int64_t) const {
  return sizeof(float) *
         static_cast<uint64_t>(shape_.head_dim * State::QueryTokensFor(options_.chunk) * shape_.n_heads);
}

}  // namespace longheads
