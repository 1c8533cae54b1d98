#include "attention/longheads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace longheads {

// Representations of the complete chunks, and the queries of the newest token's chunk, which its
// representation needs; they stay when the chunk is complete, until the next begins.
class LongHeads::State : public PolicyState {
 public:
  // Representations lie in blocks, so that a fork shares what is full and growth copies nothing.
  static constexpr int64_t kBlock = 64;

  State(int64_t chunk, int64_t n_rep_heads, int64_t q_floats, int64_t head_dim)
      : chunk_(chunk), n_rep_heads_(n_rep_heads), q_floats_(q_floats), head_dim_(head_dim) {
    open_q_.resize(static_cast<std::size_t>(chunk * q_floats));
  }

  std::unique_ptr<PolicyState> Fork() const override { return std::make_unique<State>(*this); }

  int64_t RewindPoint(int64_t n) const override { return n >= open_ * chunk_ ? n : n / chunk_ * chunk_; }

  void Truncate(int64_t m) override {
    LH_CHECK(m <= n_tokens_ && m == RewindPoint(m));
    n_tokens_ = m;
    open_ = std::min(open_, m / chunk_);
    blocks_.resize(static_cast<std::size_t>((m / chunk_ + kBlock - 1) / kBlock));
  }

  uint64_t Bytes() const override {
    return sizeof(float) * (open_q_.size() + blocks_.size() * static_cast<std::size_t>(BlockFloats()));
  }

  int64_t n_tokens() const { return n_tokens_; }
  // Tokens up to n > 0 are in; the queries of the last one's chunk are in open_q.
  void set_n_tokens(int64_t n) {
    n_tokens_ = n;
    open_ = (n - 1) / chunk_;
  }

  // The queries of the newest chunk's token at `offset`: [n_heads, head_dim].
  float* open_q(int64_t offset) { return open_q_.data() + offset * q_floats_; }

  // [head_dim] of one chunk; consecutive chunks of a block lie side by side.
  const float* representation(int64_t rep_head, int64_t chunk) const {
    const auto& block = blocks_[static_cast<std::size_t>(chunk / kBlock)];
    return block->data() + (rep_head * kBlock + chunk % kBlock) * head_dim_;
  }
  // For writing a new chunk's. Call MakeRoom first.
  float* representation(int64_t rep_head, int64_t chunk) {
    return const_cast<float*>(std::as_const(*this).representation(rep_head, chunk));
  }
  void MakeRoom(int64_t n_chunks) {
    const std::size_t n_blocks = static_cast<std::size_t>((n_chunks + kBlock - 1) / kBlock);
    // From where the next chunk goes; there are blocks behind it where an earlier Extend was cancelled.
    const std::size_t open = static_cast<std::size_t>(n_tokens_ / chunk_ / kBlock);
    for (std::size_t b = open; b < blocks_.size(); ++b) {
      if (blocks_[b].use_count() > 1) blocks_[b] = std::make_shared<std::vector<float>>(*blocks_[b]);
    }
    while (blocks_.size() < n_blocks) {
      blocks_.push_back(std::make_shared<std::vector<float>>(static_cast<std::size_t>(BlockFloats())));
    }
  }

 private:
  int64_t BlockFloats() const { return n_rep_heads_ * kBlock * head_dim_; }

  int64_t chunk_;
  int64_t n_rep_heads_;
  int64_t q_floats_;
  int64_t head_dim_;
  int64_t n_tokens_ = 0;
  int64_t open_ = 0;  // the chunk whose queries open_q_ holds, up to n_tokens_
  std::vector<std::shared_ptr<std::vector<float>>> blocks_;  // each [n_rep_heads, kBlock, head_dim]
  std::vector<float> open_q_;                                // [chunk, n_heads, head_dim]
};

struct LongHeads::Scratch : PolicyScratch {
  std::vector<const float*> queries;
  std::vector<float> scores;  // [rows, n_chunks] of the tokens that select
  Buffer<float> workspace;
  std::vector<int32_t> candidates;  // chunks, while one row chooses
  std::vector<int32_t> chosen;      // that row's chunks, ascending
  // The (chunk, row, x) entries of the plan in row order, before they are grouped by chunk.
  struct Entry {
    int32_t chunk;
    int32_t row;
    int32_t x;
  };
  std::vector<Entry> entries;
  std::vector<int64_t> counts;  // per chunk
};

LongHeads::LongHeads(const LongHeadsOptions& options, const HeadShape& shape, PairLayout layout,
                     int64_t trained_window)
    : options_(options), shape_(shape), layout_(layout), trained_window_(trained_window) {
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

void LongHeads::Extend(const ExtendInput& input, PolicyState& policy_state) const {
  State& state = static_cast<State&>(policy_state);
  LH_CHECK(state.n_tokens() == input.token_begin);
  const int64_t l = options_.chunk;
  const int64_t q_floats = shape_.n_heads * shape_.head_dim;
  const int64_t end = input.token_begin + input.n_tokens;
  state.MakeRoom(end / l);
  // Chunks that these tokens complete; only the first can have begun before them.
  for (int64_t chunk = input.token_begin / l; chunk < end / l; ++chunk) {
    Represent(input, chunk, state);
    // Raised in between, the representation may be half done: the state stays at the tokens it had.
    if (input.cancel != nullptr && input.cancel->cancelled()) return;
  }
  const int64_t open_begin = std::max((end - 1) / l * l, input.token_begin);
  for (int64_t j = open_begin; j < end; ++j) {
    std::memcpy(state.open_q(j % l), input.q + (j - input.token_begin) * q_floats,
                sizeof(float) * static_cast<std::size_t>(q_floats));
  }
  state.set_n_tokens(end);
}

void LongHeads::Represent(const ExtendInput& input, int64_t chunk, State& state) const {
  const int64_t l = options_.chunk;
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const int64_t q_floats = shape_.n_heads * d;
  // O: every query of the chunk over every key of the chunk, both at their chunk-local positions, no mask.
  std::vector<float> outputs(static_cast<std::size_t>(l * q_floats));
  std::vector<QueryToken> tokens;
  Plan plan;
  for (int64_t o = 0; o < l; ++o) {
    const int64_t j = chunk * l + o;
    const float* const q =
        j < input.token_begin ? state.open_q(o) : input.q + (j - input.token_begin) * q_floats;
    tokens.push_back({.sequence = 0, .position = j, .q = q, .out = outputs.data() + o * q_floats});
    for (int64_t g = 0; g < group; ++g) {
      plan.rows.push_back({static_cast<int32_t>(o * group + g), static_cast<int32_t>(o)});
    }
  }
  plan.segments.push_back({.key_begin = chunk * l,
                           .key_end = (chunk + 1) * l,
                           .row_end = l * group,
                           .min_distance = -PlanSegment::kAnyDistance});
  const KvSequence* const sequences[] = {input.sequence};
  input.pool->Run(shape_.n_kv_heads, [&](int64_t kv_head, int thread) {
    const QueryBlock block{
        .layer = input.layer, .kv_head = kv_head, .tokens = tokens, .sequences = sequences};
    input.executor->RunBlock(block, plan, *input.rotations, input.scale, thread, input.cancel);

    const int64_t heads_per_rep = shape_.n_heads / n_rep_heads();
    const int64_t reps_per_kv = group / heads_per_rep;
    std::vector<double> mean(static_cast<std::size_t>(d)), qc(mean), c(mean),
        logits(static_cast<std::size_t>(l));
    std::vector<float> page(static_cast<std::size_t>(2 * kPageTokens * d));
    for (int64_t rep = kv_head * reps_per_kv; rep < (kv_head + 1) * reps_per_kv; ++rep) {
      // qc: the mean row of O, over the group's heads too where they share a representation.
      std::fill(mean.begin(), mean.end(), 0.0);
      for (int64_t o = 0; o < l; ++o) {
        for (int64_t h = rep * heads_per_rep; h < (rep + 1) * heads_per_rep; ++h) {
          const float* const row = outputs.data() + o * q_floats + h * d;
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
      // w = softmax(scale qc . k), c = sum of w k, over the stored keys.
      KvSequence::Floats keys{};
      int64_t page_at = -1;
      const auto key = [&](int64_t o) {
        const int64_t j = chunk * l + o;
        if (j / kPageTokens != page_at) {
          page_at = j / kPageTokens;
          keys = input.sequence->Read(input.layer, kv_head, page_at, page.data());
        }
        return keys.k + j % kPageTokens * d;
      };
      double max = -std::numeric_limits<double>::infinity();
      for (int64_t o = 0; o < l; ++o) {
        const float* const k = key(o);
        double dot = 0;
        for (int64_t m = 0; m < d; ++m) dot += qc[static_cast<std::size_t>(m)] * static_cast<double>(k[m]);
        logits[static_cast<std::size_t>(o)] = dot * static_cast<double>(input.scale);
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
      float* const out = state.representation(rep, chunk);
      for (int64_t m = 0; m < d; ++m) out[m] = static_cast<float>(c[static_cast<std::size_t>(m)] / sum);
    }
  });
}

// ---- Choice

// scores[(t - first) * group + g][chunk] of tokens [first, last), for chunks [0, n_chunks).
void LongHeads::ScoreChunks(const QueryBlock& block, int64_t first, int64_t last, int64_t n_chunks,
                            const State& state, const AttentionKernels& kernels, Scratch& scratch) const {
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const bool per_head = options_.reps == LongHeadsOptions::Grouping::kHead;
  scratch.scores.resize(static_cast<std::size_t>((last - first) * group * n_chunks));
  scratch.workspace.Reserve(AttendWorkspace(kernels.row_tile, d));
  for (int64_t g = 0; g < group; ++g) {
    const int64_t head = block.kv_head * group + g;
    scratch.queries.clear();
    for (int64_t t = first; t < last; ++t) {
      scratch.queries.push_back(block.tokens[static_cast<std::size_t>(t)].q + head * d);
    }
    const int64_t rep_head = per_head ? head : block.kv_head;
    for (int64_t chunk = 0; chunk < n_chunks; chunk += State::kBlock) {
      const int64_t n = std::min(State::kBlock, n_chunks - chunk);
      kernels.scores(scratch.queries, state.representation(rep_head, chunk), n, d,
                     scratch.scores.data() + g * n_chunks + chunk, group * n_chunks,
                     scratch.workspace.data());
    }
  }
  if (options_.select == LongHeadsOptions::Grouping::kHead) return;
  for (int64_t t = 0; t < last - first; ++t) {  // the group's sum takes every head's place
    float* const rows = scratch.scores.data() + t * group * n_chunks;
    for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
      float sum = 0;
      for (int64_t g = 0; g < group; ++g) sum += rows[g * n_chunks + chunk];
      for (int64_t g = 0; g < group; ++g) rows[g * n_chunks + chunk] = sum;
    }
  }
}

// scratch.chosen = the chunks of one row that selects, ascending; its own chunk is the last.
void LongHeads::ChooseChunks(const QueryToken& token, Phase phase, const float* scores,
                             Scratch& scratch) const {
  const int64_t l = options_.chunk;
  const int64_t own = token.position / l;
  // The published decode step sees a chunk that this token completes as the last full one: one slot fewer,
  // and the chunk before it is a mere candidate.
  const bool at_end = options_.compat.chunk_end && phase == Phase::kDecode && (token.position + 1) % l == 0;
  const int64_t previous = at_end ? own : own - 1;  // candidates are chunks 1 .. previous - 1
  const int64_t n_free = n_slots() - 3;
  scratch.candidates.clear();
  for (int64_t chunk = 1; chunk < previous; ++chunk)
    scratch.candidates.push_back(static_cast<int32_t>(chunk));
  if (static_cast<int64_t>(scratch.candidates.size()) > n_free) {
    const auto better = [scores](int32_t a, int32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    };
    std::nth_element(scratch.candidates.begin(), scratch.candidates.begin() + n_free,
                     scratch.candidates.end(), better);
    scratch.candidates.resize(static_cast<std::size_t>(n_free));
    std::sort(scratch.candidates.begin(), scratch.candidates.end());
  }
  scratch.chosen.clear();
  scratch.chosen.push_back(0);
  scratch.chosen.insert(scratch.chosen.end(), scratch.candidates.begin(), scratch.candidates.end());
  if (!at_end && own > 1) scratch.chosen.push_back(static_cast<int32_t>(own - 1));
  if (own > 0) scratch.chosen.push_back(static_cast<int32_t>(own));
}

void LongHeads::BuildPlan(const QueryBlock& block, Phase phase, std::span<const PolicyState* const> states,
                          const AttentionKernels& kernels, PolicyScratch& policy_scratch, Plan& plan) const {
  Scratch& scratch = static_cast<Scratch&>(policy_scratch);
  plan.Clear();
  const int64_t l = options_.chunk;
  const int64_t group = shape_.group();
  const int64_t n = static_cast<int64_t>(block.tokens.size());
  const auto token_at = [&](int64_t t) -> const QueryToken& {
    return block.tokens[static_cast<std::size_t>(t)];
  };
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {  // runs of tokens of one sequence
    const int32_t sequence = token_at(begin).sequence;
    int64_t n_chunks = 0;
    int64_t selecting = -1;  // the first token that selects; those after it do too
    for (end = begin; end < n && token_at(end).sequence == sequence; ++end) {
      n_chunks = std::max(n_chunks, token_at(end).position / l + 1);
      if (selecting < 0 && Selects(token_at(end).position, phase)) selecting = end;
    }
    if (selecting < 0) selecting = end;
    // Representations below the last row's previous chunk may be asked for; later ones need not exist yet.
    const int64_t n_scored = std::max<int64_t>(n_chunks - 1, 0);
    if (selecting < end) {
      const State& state = static_cast<const State&>(*states[static_cast<std::size_t>(sequence)]);
      ScoreChunks(block, selecting, end, n_scored, state, kernels, scratch);
    }

    scratch.entries.clear();
    scratch.counts.assign(static_cast<std::size_t>(n_chunks) + 1, 0);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t own = token_at(t).position / l;
      const int64_t offset = token_at(t).position % l;
      for (int64_t g = 0; g < group; ++g) {
        if (t >= selecting) {
          ChooseChunks(token_at(t), phase, scratch.scores.data() + ((t - selecting) * group + g) * n_scored,
                       scratch);
        } else {
          scratch.chosen.clear();
          for (int64_t chunk = 0; chunk <= own; ++chunk)
            scratch.chosen.push_back(static_cast<int32_t>(chunk));
        }
        // Slot s of Ks: x = (Ks - 1 - s) l + offset. Before `begin` all chunks are chosen, and x = i - chunk
        // l.
        const int64_t n_slots_used = static_cast<int64_t>(scratch.chosen.size());
        for (int64_t s = 0; s < n_slots_used; ++s) {
          const int32_t chunk = scratch.chosen[static_cast<std::size_t>(s)];
          ++scratch.counts[static_cast<std::size_t>(chunk)];
          scratch.entries.push_back({chunk, static_cast<int32_t>(t * group + g),
                                     static_cast<int32_t>((n_slots_used - 1 - s) * l + offset)});
        }
      }
    }

    // Group the entries by chunk; within a chunk they stay in row order.
    const bool drop_own_key = options_.compat.own_key && phase == Phase::kPrefill;
    const int64_t base = static_cast<int64_t>(plan.rows.size());
    plan.rows.resize(static_cast<std::size_t>(base) + scratch.entries.size());
    int64_t at = base;
    for (int64_t& count : scratch.counts) {  // from how many rows to where they begin
      const int64_t n_rows = count;
      count = at;
      at += n_rows;
    }
    for (const Scratch::Entry& entry : scratch.entries) {
      plan.rows[static_cast<std::size_t>(scratch.counts[static_cast<std::size_t>(entry.chunk)]++)] = {
          entry.row, entry.x};
    }
    int64_t row_begin = base;
    for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
      const int64_t row_end = scratch.counts[static_cast<std::size_t>(chunk)];  // by now where they end
      PlanSegment segment{.sequence = sequence,
                          .key_begin = chunk * l,
                          .key_end = (chunk + 1) * l,
                          .row_begin = row_begin,
                          .row_end = row_end};
      row_begin = row_end;
      if (segment.row_begin == segment.row_end) continue;
      // The last chunks may be open: no key past the newest token.
      segment.key_end = std::min(segment.key_end, token_at(end - 1).position + 1);
      if (!drop_own_key) {
        plan.segments.push_back(segment);
        continue;
      }
      // Rows that select lose distance 0; rows before `begin` keep it. Rows are in token order: split there.
      PlanSegment keeps = segment;
      PlanSegment drops = segment;
      while (keeps.row_end > keeps.row_begin &&
             plan.rows[static_cast<std::size_t>(keeps.row_end - 1)].row >= selecting * group) {
        --keeps.row_end;
      }
      drops.row_begin = keeps.row_end;
      drops.min_distance = 1;
      if (keeps.row_begin < keeps.row_end) plan.segments.push_back(keeps);
      if (drops.row_begin < drops.row_end) plan.segments.push_back(drops);
    }
  }
}

// ---- What the user is told

std::string LongHeads::Warning(int64_t n_tokens) const {
  if (std::min(n_tokens, options_.begin) <= trained_window_) return "";
  return fmt::format(
      "full attention up to begin={} goes past the model's window of {} tokens: expect nonsense from "
      "there on (a smaller begin selects earlier)",
      options_.begin, trained_window_);
}

std::string LongHeads::Explain() const {
  return fmt::format(
      "LongHeads: full attention up to token {}, then each head selects {} chunks of {} tokens (attention "
      "window {}; "
      "the model's is {})",
      options_.begin, n_slots(), options_.chunk, options_.window, trained_window_);
}

uint64_t LongHeads::StateBytes(int64_t n) const {
  const int64_t n_blocks = (n / options_.chunk + State::kBlock - 1) / State::kBlock;
  return sizeof(float) * static_cast<uint64_t>(shape_.head_dim * (n_rep_heads() * State::kBlock * n_blocks +
                                                                  options_.chunk * shape_.n_heads));
}

}  // namespace longheads
