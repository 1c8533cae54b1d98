#include "attention/infllm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/shared_blocks.h"
#include "attention/state_archive.h"
#include "attention/top_k.h"
#include "base/cancel.h"
#include "base/check.h"

namespace longheads {

namespace {

int64_t PagesFor(int64_t n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

// The probability that queries gave to the newest keys, per query head: z of the paper's code. Pages of keys
// that no step can ask for any more make room for new ones.
class KeyMasses {
 public:
  KeyMasses(int64_t n_heads, int64_t n_pages) : n_pages_(n_pages), pages_(n_heads * kPageTokens) {}

  // [n_heads, kPageTokens]
  const float* operator[](int64_t page) const { return pages_[page % n_pages_]; }
  float* Mutable(int64_t page) { return pages_.Mutable(page % n_pages_); }
  int64_t PageFloats() const { return pages_.block_floats(); }

  // Room for a text of n tokens.
  void Resize(int64_t n) { pages_.Resize(NumPages(n)); }
  float* Clear(int64_t page) {
    float* const floats = Mutable(page);
    std::fill_n(floats, PageFloats(), 0.0f);
    return floats;
  }
  void CopyFrom(const KeyMasses& other) {
    for (int64_t page = 0; page < pages_.size(); ++page) {
      if (page < other.pages_.size()) {
        std::copy_n(other.pages_[page], PageFloats(), pages_.Mutable(page));
      } else {
        Clear(page);
      }
    }
  }
  uint64_t Bytes() const { return pages_.Bytes(); }

  // Those kept of a text of n tokens.
  int64_t NumPages(int64_t n) const { return std::min(n_pages_, PagesFor(n)); }
  void Save(int64_t begin_page, int64_t end_page, StateWriter& out) const {
    for (int64_t page = begin_page; page < end_page; ++page) {
      out.Floats({(*this)[page], static_cast<std::size_t>(PageFloats())});
    }
  }
  void Restore(int64_t begin_page, int64_t end_page, StateReader& in) {
    for (int64_t page = begin_page; page < end_page; ++page) {
      in.Floats({Mutable(page), static_cast<std::size_t>(PageFloats())});
    }
  }

 private:
  int64_t n_pages_;
  SharedBlocks pages_;
};

// Which blocks a cache of so many would hold.
class BlockCache {
 public:
  explicit BlockCache(int64_t n_blocks) : n_blocks_(static_cast<std::size_t>(n_blocks)) {}

  // All of these at once, at most as many as there is room for.
  void Use(std::span<const int32_t> blocks) {
    for (const int32_t block : blocks) {
      const auto at = std::find(by_use_.begin(), by_use_.end(), block);
      if (at == by_use_.end()) {
        ++statistics_.misses;
      } else {
        ++statistics_.hits;
        by_use_.erase(at);
      }
    }
    const std::size_t n = by_use_.size() + blocks.size();
    if (n > n_blocks_) by_use_.erase(by_use_.begin(), by_use_.begin() + static_cast<int64_t>(n - n_blocks_));
    by_use_.insert(by_use_.end(), blocks.begin(), blocks.end());
  }
  const InfLlm::CacheStatistics& statistics() const { return statistics_; }

  void Save(StateWriter& out) const {
    out.Int(static_cast<int64_t>(by_use_.size()));
    out.Ints(by_use_);
    out.Int(statistics_.hits);
    out.Int(statistics_.misses);
  }
  // Where the text has so many blocks.
  void Restore(int64_t n_blocks, StateReader& in) {
    constexpr int64_t kMost = int64_t{1} << 48;  // they are counted on, and summed up
    const int64_t n = in.Int(0, std::min<int64_t>(n_blocks, static_cast<int64_t>(n_blocks_)));
    if (!in.Has(n, sizeof(int32_t))) return;
    by_use_.resize(static_cast<std::size_t>(n));
    in.Ints(by_use_);
    for (const int32_t block : by_use_) {
      if (block < 0 || block >= n_blocks) in.Fail(fmt::format("it holds block {} of {}", block, n_blocks));
    }
    statistics_.hits = in.Int(0, kMost);
    statistics_.misses = in.Int(0, kMost);
  }

 private:
  std::size_t n_blocks_;
  std::vector<int32_t> by_use_;  // the latest last
  InfLlm::CacheStatistics statistics_;
};

// order = the indices of the `count` largest scores (Comparable ones), of equal ones the lower, ascending.
void TakeBest(std::span<const double> scores, int64_t count, std::vector<int32_t>& order) {
  order.resize(scores.size());
  std::iota(order.begin(), order.end(), 0);
  if (static_cast<int64_t>(order.size()) <= count) return;
  const auto better = [&](int32_t a, int32_t b) {
    const double score_a = scores[static_cast<std::size_t>(a)];
    const double score_b = scores[static_cast<std::size_t>(b)];
    return score_a != score_b ? score_a > score_b : a < b;
  };
  std::nth_element(order.begin(), order.begin() + count, order.end(), better);
  order.resize(static_cast<std::size_t>(count));
  std::sort(order.begin(), order.end());
}

}  // namespace

// The newest step's masses lie apart until the next one begins, so that it can be taken back; and the masses
// are kept as they were when decoding began, so that an answer can be.
class InfLlm::State : public PolicyState {
 public:
  explicit State(const InfLlm& policy)
      : policy_(policy),
        sums_(policy.shape_.n_heads, MassPages(policy.options_)),
        newest_(sums_),
        kept_(sums_),
        vectors_(policy.shape_.n_heads, policy.shape_.head_dim),
        caches_(static_cast<std::size_t>(policy.n_choices()), BlockCache(policy.options_.max_cached_block)),
        caches_before_(caches_),
        caches_kept_(caches_) {}

  std::unique_ptr<PolicyState> Fork() const override { return std::make_unique<State>(*this); }

  int64_t RewindPoint(int64_t n) const override {
    if (n >= n_tokens_) return n_tokens_;
    if (n >= step_begin_) return step_begin_;
    return n >= kept_at_ ? kept_at_ : 0;
  }

  void Truncate(int64_t m) override {
    LH_CHECK(m <= n_tokens_ && m == RewindPoint(m));
    if (m == n_tokens_) return;
    if (m == step_begin_) {
      std::swap(caches_, caches_before_);
    } else if (m > 0) {  // kept_at
      sums_.CopyFrom(kept_);
      caches_ = caches_kept_;
    } else {
      sums_.Resize(0);
      caches_.assign(caches_.size(), BlockCache(policy_.options_.max_cached_block));
    }
    newest_begin_ = newest_end_ = 0;
    n_tokens_ = step_begin_ = m;
    if (m <= kept_at_) {
      kept_at_ = m;
      decoding_ = false;
    }
    Resize();
    vectors_.Resize(policy_.BlocksOf(m));
  }

  uint64_t Bytes() const override {
    return sums_.Bytes() + newest_.Bytes() + kept_.Bytes() + vectors_.Bytes();
  }
  std::vector<PolicyCounter> Counters() const override {
    const CacheStatistics sum = statistics();
    return {{"block_cache_hits", sum.hits}, {"block_cache_misses", sum.misses}};
  }
  static uint64_t BytesFor(const InfLlm& policy, int64_t n) {
    return ScoredVectors::BytesFor(policy.BlocksOf(n), policy.shape_.n_heads, policy.shape_.head_dim) +
           MassBytesFor(policy, n);
  }
  static uint64_t MassBytesFor(const InfLlm& policy, int64_t n) {
    const int64_t masses = 3 * std::min(MassPages(policy.options_), PagesFor(n)) * kPageTokens;
    return sizeof(float) * static_cast<uint64_t>(policy.shape_.n_heads * masses);
  }

  std::string Layout() const override {
    const InfLlmOptions& o = policy_.options_;
    return fmt::format("infllm 1: {} first, {} local, blocks of {}, steps of {}, {} x {}, caches {} x {}",
                       o.n_init, o.n_local, o.block, o.exec_block, policy_.shape_.n_heads,
                       policy_.shape_.head_dim, policy_.n_choices(), o.max_cached_block);
  }

  // What the newest step chose is its own alone. Of the rest, only what can still be asked for.
  void Save(int64_t from, int64_t n, StateWriter& added, StateWriter& latest) const override {
    LH_CHECK(n == n_tokens_);
    vectors_.Write(policy_.BlocksOf(from), policy_.BlocksOf(n), added);
    latest.Int(step_begin_);
    latest.Int(kept_at_);
    latest.Int(decoding_ ? 1 : 0);
    latest.Int(newest_end_);
    sums_.Save(0, sums_.NumPages(n), latest);
    newest_.Save(newest_begin_ / kPageTokens, PagesFor(newest_end_), latest);
    if (kept_at_ > 0) kept_.Save(0, kept_.NumPages(kept_at_), latest);
    for (const BlockCache& cache : caches_) cache.Save(latest);
    if (step_begin_ < n) {
      for (const BlockCache& cache : caches_before_) cache.Save(latest);
    }
    if (kept_at_ > 0) {
      for (const BlockCache& cache : caches_kept_) cache.Save(latest);
    }
  }
  void RestoreAdded(int64_t from, int64_t n, StateReader& added) override {
    vectors_.Read(added, policy_.BlocksOf(from), policy_.BlocksOf(n));
  }
  void RestoreLatest(int64_t n, StateReader& latest) override {
    n_tokens_ = n;
    step_begin_ = latest.Int(std::max<int64_t>(0, n - policy_.options_.exec_block), n);
    kept_at_ = latest.Int(0, step_begin_);
    decoding_ = latest.Int(0, 1) == 1;
    newest_end_ = latest.Int(0, n);
    newest_begin_ = newest_end_ == 0 ? 0 : policy_.MassBegin(step_begin_);
    if (newest_end_ != 0 && (newest_end_ != n || newest_begin_ >= n)) {
      latest.Fail(fmt::format("its newest step ends with token {} of {}", newest_end_, n));
    }
    if (!latest.Has(sums_.NumPages(n), sums_.PageFloats() * static_cast<int64_t>(sizeof(float)))) return;
    Resize();
    sums_.Restore(0, sums_.NumPages(n), latest);
    newest_.Restore(newest_begin_ / kPageTokens, PagesFor(newest_end_), latest);
    if (kept_at_ > 0) kept_.Restore(0, kept_.NumPages(kept_at_), latest);
    const int64_t n_blocks = policy_.BlocksOf(n);
    for (BlockCache& cache : caches_) cache.Restore(n_blocks, latest);
    if (step_begin_ < n) {
      for (BlockCache& cache : caches_before_) cache.Restore(n_blocks, latest);
    }
    if (kept_at_ > 0) {
      for (BlockCache& cache : caches_kept_) cache.Restore(n_blocks, latest);
    }
  }

  int64_t n_tokens() const { return n_tokens_; }      // up to the end of the newest step
  int64_t step_begin() const { return step_begin_; }  // where it begins

  // ---- Extend
  // Chosen blocks, ascending, of one choice for all heads or of each head.
  std::span<const int32_t> chosen(int64_t head) const {
    const std::size_t at = policy_.options_.per_head ? static_cast<std::size_t>(head) : 0;
    return std::span(chosen_).subspan(at * n_chosen_, n_chosen_);
  }
  std::span<int32_t> MakeChosen(int64_t n_chosen) {
    n_chosen_ = static_cast<std::size_t>(n_chosen);
    chosen_.resize(static_cast<std::size_t>(policy_.n_choices()) * n_chosen_);
    return chosen_;
  }
  // The next n tokens come as a step, for which blocks are chosen.
  void BeginStep(int64_t n, Phase phase) {
    for (int64_t page = newest_begin_ / kPageTokens; page < PagesFor(newest_end_); ++page) {
      const float* const from = newest_[page];
      float* const to = sums_.Mutable(page);
      for (int64_t i = 0; i < sums_.PageFloats(); ++i) to[i] += from[i];
    }
    newest_begin_ = newest_end_ = 0;
    if (phase == Phase::kDecode && !decoding_) {
      kept_at_ = n_tokens_;
      kept_.CopyFrom(sums_);
      caches_kept_ = caches_;
    }
    decoding_ = phase == Phase::kDecode;
    step_begin_ = n_tokens_;
    n_tokens_ += n;
    Resize();
    for (int64_t page = PagesFor(step_begin_); page < PagesFor(n_tokens_); ++page) sums_.Clear(page);
    caches_before_ = caches_;
    for (std::size_t choice = 0; choice < caches_.size(); ++choice) {
      caches_[choice].Use(std::span(chosen_).subspan(choice * n_chosen_, n_chosen_));
    }
  }

  // ---- Observe
  // The newest step gave its mass to keys [begin, end) at most: the pages to add it to are empty.
  void BeginMass(int64_t begin, int64_t end, std::vector<float*>& pages) {
    newest_begin_ = begin;
    newest_end_ = end;
    pages.clear();
    for (int64_t page = begin / kPageTokens; page < PagesFor(end); ++page)
      pages.push_back(newest_.Clear(page));
  }
  float mass(int64_t head, int64_t key) const {
    const int64_t page = key / kPageTokens;
    const int64_t at = head * kPageTokens + key % kPageTokens;
    const bool newest = page >= newest_begin_ / kPageTokens && page < PagesFor(newest_end_);
    return sums_[page][at] + (newest ? newest_[page][at] : 0);
  }

  // ---- Vectors of blocks, of every head
  const ScoredVectors& vectors() const { return vectors_; }
  ScoredVectors& vectors() { return vectors_; }

  CacheStatistics statistics() const {
    CacheStatistics sum;
    for (const BlockCache& cache : caches_) {
      sum.hits += cache.statistics().hits;
      sum.misses += cache.statistics().misses;
    }
    return sum;
  }

 private:
  // The keys that may become a block's once the newest step is taken back, and that step's own, wherever
  // pages begin.
  static int64_t MassPages(const InfLlmOptions& options) {
    return (options.n_local + options.block - 1 + options.exec_block + kPageTokens - 2) / kPageTokens + 1;
  }
  void Resize() {
    for (KeyMasses* const masses : {&sums_, &newest_, &kept_}) masses->Resize(n_tokens_);
  }

  const InfLlm& policy_;
  int64_t n_tokens_ = 0;
  int64_t step_begin_ = 0;
  bool decoding_ = false;  // the newest step was a generated token
  std::size_t n_chosen_ = 0;
  std::vector<int32_t> chosen_;  // [n_choices, n_chosen], for the newest step

  KeyMasses sums_;    // up to step_begin
  KeyMasses newest_;  // the newest step's, in the pages of keys [newest_begin, newest_end)
  int64_t newest_begin_ = 0;
  int64_t newest_end_ = 0;
  KeyMasses kept_;  // up to kept_at, where decoding began
  int64_t kept_at_ = 0;
  ScoredVectors vectors_;

  std::vector<BlockCache> caches_;  // of each choice
  std::vector<BlockCache> caches_before_;
  std::vector<BlockCache> caches_kept_;
};

struct InfLlm::Scratch : PolicyScratch {
  std::vector<std::size_t> next;  // of a plan: each head's next chosen block
  Buffer<float> workspace;        // of scores
  std::vector<double> sum;        // [head_dim]
  std::vector<float> vector;      // the same
  std::vector<double> ranks;      // of what is chosen from
  std::vector<int32_t> order;     // what was chosen
  std::vector<float> gathered;    // keys and values of a page's worth of tokens
  std::vector<int32_t> tokens;    // that are gathered
  // Of one thread for all:
  std::vector<float> queries;  // [n_heads, head_dim]: means over the step, rotated
  std::vector<float> scores;   // [n_heads, n_blocks]
  std::vector<QueryToken> step;
  Plan plan;
  std::vector<float*> pages;
  std::vector<ScoredVectors::Place> places;
};

InfLlm::InfLlm(const InfLlmOptions& options, const HeadShape& shape, int64_t window)
    : options_(options), shape_(shape), window_(window) {
  LH_CHECK(options.n_init >= 0 && options.block >= 1 && options.top_k >= 1);
  LH_CHECK(options.exec_block >= 1 && options.exec_block <= options.n_local);
  LH_CHECK(options.representatives >= 1 && options.representatives <= options.block);
  LH_CHECK(options.max_cached_block >= options.top_k);
}

int64_t InfLlm::RotationBound(int64_t n) const { return n; }  // far ones are seen once n > n_local

std::unique_ptr<PolicyState> InfLlm::NewState() const { return std::make_unique<State>(*this); }

std::unique_ptr<PolicyScratch> InfLlm::NewScratch() const { return std::make_unique<Scratch>(); }

int64_t InfLlm::PlanTokens(int64_t) const {
  constexpr int64_t kRows = 4 << 20;  // 32 MiB of a plan's rows on each thread
  return std::max<int64_t>(1, kRows / (shape_.group() * (options_.top_k + 3)));
}

uint64_t InfLlm::StateBytes(int64_t n) const { return State::BytesFor(*this, n); }
uint64_t InfLlm::RewrittenBytes(int64_t n) const { return State::MassBytesFor(*this, n); }
uint64_t InfLlm::LastBlockBytes(int64_t n) const {
  return ScoredVectors::BytesFor(std::min<int64_t>(BlocksOf(n), 1), shape_.n_heads, shape_.head_dim);
}

InfLlm::CacheStatistics InfLlm::StatisticsOf(const PolicyState& state) {
  return static_cast<const State&>(state).statistics();
}

// The published code moves tokens after every step: the first ones as soon as they are no longer local, then
// whole blocks. That comes to the same for a text of n tokens whatever its steps were.
int64_t InfLlm::Absorbed(int64_t n) const {
  const int64_t past = std::max<int64_t>(0, n - options_.n_local);
  if (past <= options_.n_init) return past;
  return options_.n_init + (past - options_.n_init) / options_.block * options_.block;
}

int64_t InfLlm::BlocksOf(int64_t n) const {
  return std::max<int64_t>(0, Absorbed(n) - options_.n_init) / options_.block;
}

int64_t InfLlm::MassBegin(int64_t step_begin) const {
  return std::max(options_.n_init, step_begin - options_.n_local + 1);
}

// ---- Choice

void InfLlm::Extend(const StepInput& input, PolicyState& policy_state) const {
  State& state = static_cast<State&>(policy_state);
  LH_CHECK(state.n_tokens() == input.token_begin && input.n_tokens <= options_.exec_block);
  ChooseBlocks(input, state);
  state.BeginStep(input.n_tokens, input.phase);
}

void InfLlm::ChooseBlocks(const StepInput& input, State& state) const {
  const int64_t n_blocks = BlocksOf(input.token_begin);
  const int64_t n_chosen = std::min(n_blocks, options_.top_k);
  const std::span<int32_t> chosen = state.MakeChosen(n_chosen);
  if (n_blocks <= options_.top_k) {
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      chosen[i] = static_cast<int32_t>(static_cast<int64_t>(i) % n_chosen);
    }
    for (int64_t choice = 0; choice < n_choices() && n_blocks > 0; ++choice) {
      TellChoice(input, choice, n_blocks, chosen.first(static_cast<std::size_t>(n_chosen)), {});
    }
    return;
  }

  // A score is linear in the query: that of the mean is the mean over the step.
  const AttentionKernels& kernels = input.executor->kernels();
  const int64_t d = shape_.head_dim;
  Scratch& own = static_cast<Scratch&>(*input.scratch[0]);
  own.queries.resize(static_cast<std::size_t>(shape_.n_heads * d));
  own.scores.resize(static_cast<std::size_t>(shape_.n_heads * n_blocks));
  input.pool->Run(shape_.n_kv_heads, [&](int64_t kv_head, int thread) {
    Scratch& scratch = static_cast<Scratch&>(*input.scratch[static_cast<std::size_t>(thread)]);
    scratch.workspace.Reserve(AttendWorkspace(kernels.row_tile, d));
    for (int64_t head = kv_head * shape_.group(); head < (kv_head + 1) * shape_.group(); ++head) {
      scratch.sum.assign(static_cast<std::size_t>(d), 0.0);
      for (int64_t t = 0; t < input.n_tokens; ++t) {
        const float* const q = input.q + (t * shape_.n_heads + head) * d;
        for (int64_t m = 0; m < d; ++m) scratch.sum[static_cast<std::size_t>(m)] += q[m];
      }
      scratch.gathered.resize(static_cast<std::size_t>(2 * kPageTokens * d));
      float* const mean = scratch.gathered.data();
      for (int64_t m = 0; m < d; ++m) {
        mean[m] = static_cast<float>(scratch.sum[static_cast<std::size_t>(m)] /
                                     static_cast<double>(input.n_tokens));
      }
      float* const query = own.queries.data() + head * d;
      kernels.rotate(mean, options_.n_local - 1, *input.sequence->rotations, query);
      state.vectors().Score(std::span<const float* const>({query}), head, 0, n_blocks, kernels,
                            scratch.workspace.data(), own.scores.data() + head * n_blocks, n_blocks);
    }
  });
  const int64_t heads_per_choice = shape_.n_heads / n_choices();
  for (int64_t choice = 0; choice < n_choices(); ++choice) {
    own.ranks.assign(static_cast<std::size_t>(n_blocks), 0.0);
    for (int64_t head = choice * heads_per_choice; head < (choice + 1) * heads_per_choice; ++head) {
      for (int64_t block = 0; block < n_blocks; ++block) {
        own.ranks[static_cast<std::size_t>(block)] +=
            own.scores[static_cast<std::size_t>(head * n_blocks + block)];
      }
    }
    for (double& rank : own.ranks) rank = Comparable(rank);
    TakeBest(own.ranks, n_chosen, own.order);
    std::copy(own.order.begin(), own.order.end(), chosen.begin() + choice * n_chosen);
    TellChoice(input, choice, n_blocks, own.order, own.ranks);
  }
}

void InfLlm::TellChoice(const StepInput& input, int64_t choice, int64_t n_blocks,
                        std::span<const int32_t> taken, std::span<const double> ranks) const {
  if (input.observer == nullptr) return;
  const std::vector<float> scores(ranks.begin(), ranks.end());
  const int64_t heads_per_choice = shape_.n_heads / n_choices();
  input.observer->OnChoice({.layer = input.layer,
                            .sequence = input.sequence_index,
                            .token_begin = input.token_begin,
                            .token_end = input.token_begin + input.n_tokens,
                            .head_begin = choice * heads_per_choice,
                            .head_end = (choice + 1) * heads_per_choice,
                            .n_candidates = n_blocks,
                            .taken = taken,
                            .scores = scores});
}

void InfLlm::BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch& scratch,
                       Plan& plan) const {
  const int64_t n_local = options_.n_local;
  const auto constant = [n_local](int64_t) { return n_local - 1; };
  ForEachRun(block, [&](const TokenRun& run) {
    const State& state =
        static_cast<const State&>(*block.sequences[static_cast<std::size_t>(run.sequence)].state);
    const auto add = [&](const PlanSegment& segment, const auto& x_of) {
      AddSegment(block, run, shape_.group(), segment, x_of, plan);
    };
    const int64_t absorbed = Absorbed(state.step_begin());
    add({.key_begin = 0, .key_end = std::min(options_.n_init, absorbed)}, constant);
    AddChosen(block, run, state, static_cast<Scratch&>(scratch), plan);
    if (options_.double_remainder) {
      add({.key_begin = absorbed, .key_end = state.n_tokens() - n_local}, constant);
    } else {
      add({.key_begin = absorbed, .key_end = kNewestKey, .min_distance = n_local}, constant);
    }
    add({.key_begin = 0, .key_end = kNewestKey, .max_distance = n_local, .absolute = true},
        [](int64_t i) { return i; });
  });
}

// The chosen blocks, ascending. Neighbours that all heads chose are one segment.
void InfLlm::AddChosen(const QueryBlock& block, const TokenRun& run, const State& state, Scratch& scratch,
                       Plan& plan) const {
  const auto keys_of = [&](int64_t begin, int64_t end) {
    return PlanSegment{.sequence = run.sequence,
                       .key_begin = options_.n_init + begin * options_.block,
                       .key_end = options_.n_init + end * options_.block};
  };
  const int64_t x = options_.n_local - 1;
  if (!options_.per_head) {
    const std::span<const int32_t> chosen = state.chosen(0);
    for (std::size_t begin = 0, end = 0; begin < chosen.size(); begin = end) {
      for (end = begin + 1; end < chosen.size() && chosen[end] == chosen[end - 1] + 1;) ++end;
      AddSegment(
          block, run, shape_.group(), keys_of(chosen[begin], chosen[end - 1] + 1), [x](int64_t) { return x; },
          plan);
    }
    return;
  }
  const std::size_t group = static_cast<std::size_t>(shape_.group());
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  scratch.next.assign(group, 0);
  const auto next_of = [&](std::size_t g) {
    const std::span<const int32_t> chosen =
        state.chosen(block.kv_head * shape_.group() + static_cast<int64_t>(g));
    return scratch.next[g] < chosen.size() ? chosen[scratch.next[g]] : kNone;
  };
  for (;;) {
    int32_t at = kNone;
    for (std::size_t g = 0; g < group; ++g) at = std::min(at, next_of(g));
    if (at == kNone) return;
    PlanSegment segment = keys_of(at, at + 1);
    segment.row_begin = static_cast<int64_t>(plan.rows.size());
    for (std::size_t t = run.begin; t < run.end; ++t) {
      for (std::size_t g = 0; g < group; ++g) {
        if (next_of(g) != at) continue;
        plan.rows.push_back({static_cast<int32_t>(t * group + g), static_cast<int32_t>(x)});
      }
    }
    segment.row_end = static_cast<int64_t>(plan.rows.size());
    plan.segments.push_back(segment);
    for (std::size_t g = 0; g < group; ++g) scratch.next[g] += next_of(g) == at;
  }
}

AttentionWork InfLlm::Work(int64_t n, Phase phase, const HeadShape& shape) const {
  const int64_t step = phase == Phase::kPrefill ? options_.exec_block : 1;
  const int64_t step_begin = std::max<int64_t>(0, n - 1 - step / 2);
  const int64_t absorbed = Absorbed(step_begin);
  const int64_t n_blocks = BlocksOf(step_begin);
  const int64_t keys = std::min(n, options_.n_local) + std::min(options_.n_init, absorbed) +
                       std::min(n_blocks, options_.top_k) * options_.block +
                       std::max<int64_t>(0, n - options_.n_local - absorbed);
  // What the token gave to each local key is summed up, for the representatives of blocks to come.
  auto products =
      static_cast<double>(std::max<int64_t>(0, n - std::max(options_.n_init, n - options_.n_local)));
  if (n_blocks > options_.top_k) products += static_cast<double>(n_blocks) / static_cast<double>(step);
  return {.attended = static_cast<double>(shape.n_heads * keys),
          .chosen_by = static_cast<double>(shape.n_heads * shape.head_dim) * products};
}

// ---- What the softmax says

void InfLlm::Observe(const StepInput& input, PolicyState& policy_state) const {
  State& state = static_cast<State&>(policy_state);
  AddMass(input, state);
  if (Cancelled(input.cancel)) return;
  const int64_t begin = BlocksOf(state.step_begin());
  const int64_t end = BlocksOf(state.n_tokens());
  if (begin == end) return;
  state.vectors().Resize(end);
  Scratch& own = static_cast<Scratch&>(*input.scratch[0]);
  own.places.clear();
  for (int64_t block = begin; block < end; ++block) own.places.push_back(state.vectors().PlaceOf(block));
  input.pool->Run((end - begin) * shape_.n_kv_heads, [&](int64_t task, int thread) {
    const int64_t block = begin + task / shape_.n_kv_heads;
    Represent(input, block, task % shape_.n_kv_heads, state,
              static_cast<Scratch&>(*input.scratch[static_cast<std::size_t>(thread)]),
              own.places[static_cast<std::size_t>(block - begin)]);
  });
}

// What the step's queries gave to the keys that are local to them, first tokens of the text apart: those need
// no vector.
void InfLlm::AddMass(const StepInput& input, State& state) const {
  const int64_t end = input.token_begin + input.n_tokens;
  const int64_t begin = MassBegin(input.token_begin);
  if (begin >= end) return;
  Scratch& own = static_cast<Scratch&>(*input.scratch[0]);
  state.BeginMass(begin, end, own.pages);
  own.step.clear();
  own.plan.Clear();
  for (int64_t t = 0; t < input.n_tokens; ++t) {
    own.step.push_back({.sequence = 0,
                        .position = input.token_begin + t,
                        .q = input.q + t * shape_.n_heads * shape_.head_dim,
                        .out = nullptr,
                        .softmax = input.softmax + t * shape_.n_heads * 2});
    for (int64_t g = 0; g < shape_.group(); ++g) {
      own.plan.rows.push_back(
          {static_cast<int32_t>(t * shape_.group() + g), static_cast<int32_t>(input.token_begin + t)});
    }
  }
  const int64_t first = begin / kPageTokens;
  input.pool->Run(static_cast<int64_t>(own.pages.size()) * shape_.n_kv_heads, [&](int64_t task, int thread) {
    const int64_t at = task / shape_.n_kv_heads;
    const int64_t kv_head = task % shape_.n_kv_heads;
    const PlanSegment segment{.key_begin = std::max(begin, (first + at) * kPageTokens),
                              .key_end = std::min(end, (first + at + 1) * kPageTokens),
                              .row_end = static_cast<int64_t>(own.plan.rows.size()),
                              .max_distance = options_.n_local,
                              .absolute = true};
    const QueryBlock block{.layer = input.layer,
                           .kv_head = kv_head,
                           .tokens = own.step,
                           .sequences = std::span(input.sequence, 1)};
    input.executor->ColumnMass(block, own.plan, segment, Plane(), thread, input.cancel,
                               own.pages[static_cast<std::size_t>(at)] +
                                   kv_head * shape_.group() * kPageTokens + segment.key_begin % kPageTokens,
                               kPageTokens);
  });
}

// A new block's vectors for the heads of one KV head: for each the mean key of the tokens that it looked at
// most.
void InfLlm::Represent(const StepInput& input, int64_t block, int64_t kv_head, const State& state,
                       Scratch& scratch, ScoredVectors::Place place) const {
  const int64_t d = shape_.head_dim;
  const int64_t begin = options_.n_init + block * options_.block;
  scratch.gathered.resize(static_cast<std::size_t>(2 * kPageTokens * d));
  float* const keys = scratch.gathered.data();
  for (int64_t head = kv_head * shape_.group(); head < (kv_head + 1) * shape_.group(); ++head) {
    scratch.ranks.clear();
    for (int64_t j = begin; j < begin + options_.block; ++j) {
      scratch.ranks.push_back(Comparable(static_cast<double>(state.mass(head, j))));
    }
    TakeBest(scratch.ranks, options_.representatives, scratch.order);
    for (int32_t& token : scratch.order) token += static_cast<int32_t>(begin);
    // Summed in the order of the text: equal blocks have equal vectors.
    scratch.sum.assign(static_cast<std::size_t>(d), 0.0);
    const std::span<const int32_t> tokens = scratch.order;
    for (std::size_t at = 0; at < tokens.size(); at += kPageTokens) {
      const std::size_t n = std::min<std::size_t>(kPageTokens, tokens.size() - at);
      input.sequence->kv->Gather(input.layer, kv_head, tokens.subspan(at, n), keys, keys + kPageTokens * d);
      for (std::size_t i = 0; i < n; ++i) {
        const float* const key = keys + static_cast<int64_t>(i) * d;
        for (int64_t m = 0; m < d; ++m) scratch.sum[static_cast<std::size_t>(m)] += key[m];
      }
    }
    scratch.vector.clear();
    for (const double sum : scratch.sum) {
      scratch.vector.push_back(static_cast<float>(sum / static_cast<double>(tokens.size())));
    }
    place.Set(head, scratch.vector);
  }
}

// ---- What the user is told

std::string InfLlm::Explain() const {
  return fmt::format(
      "InfLLM: every token sees the last {} tokens up to itself, and at distance {} the first {} of the text "
      "and {} blocks of {} tokens between, chosen {} for every {} tokens of a prompt and for each generated "
      "one (the model's window is {})",
      options_.n_local, options_.n_local - 1, options_.n_init, options_.top_k, options_.block,
      options_.per_head ? "by each head" : "for all heads together", options_.exec_block, window_);
}

// ---- How it is made

namespace {

Result<LayerPolicies> Create(OptionReader& reader, const AttentionModel& model) {
  const int64_t usual = model.usual_window();
  InfLlmOptions o;
  o.n_init = std::clamp<int64_t>(usual / 32, 1, o.n_init);
  reader.Tokens("n_init", o.n_init, /*least=*/0);
  o.n_local = std::clamp<int64_t>(usual / 2, 1, o.n_local);
  reader.Tokens("n_local", o.n_local);
  o.block = std::clamp<int64_t>(usual / 32, 1, o.block);
  reader.Tokens("block", o.block);
  reader.Tokens("top_k", o.top_k);
  o.representatives = std::min(o.representatives, o.block);
  reader.Tokens("representatives", o.representatives);
  o.exec_block = std::min(o.exec_block, o.n_local);
  reader.Tokens("exec_block", o.exec_block);
  o.max_cached_block = std::max(o.max_cached_block, o.top_k);
  reader.Tokens("max_cached_block", o.max_cached_block);
  reader.OnOff("per_head", o.per_head);
  reader.Choice<bool>("compat", {{"none", false}, {"all", true}}, o.double_remainder);
  if (o.n_local > model.window) {
    reader.Fail(
        fmt::format("n_local={} is larger than the model's window of {} tokens: use at most n_local={}",
                    o.n_local, model.window, model.window));
  }
  if (o.exec_block > o.n_local) {
    reader.Fail(fmt::format(
        "exec_block={} is larger than n_local={}: its last queries would see its first keys as far "
        "ones; use at most exec_block={}",
        o.exec_block, o.n_local, o.n_local));
  }
  if (o.representatives > o.block) {
    reader.Fail(fmt::format("representatives={} is more than the block={} tokens of a block",
                            o.representatives, o.block));
  }
  if (o.max_cached_block < o.top_k) {
    reader.Fail(
        fmt::format("max_cached_block={} does not hold the top_k={} blocks of one choice: use at least "
                    "max_cached_block={}",
                    o.max_cached_block, o.top_k, o.top_k));
  }
  LH_TRY(reader.status());
  return SameInEveryLayer(model, std::make_shared<InfLlm>(o, model.shape, model.window));
}

}  // namespace

Method InfLlmMethod() {
  return {
      {.name = "infllm",
       .summary = "InfLLM: the newest tokens, the first few, and the blocks between that match a stretch of "
                  "queries best, at one constant distance.",
       .source = "Xiao et al. 2024, \"InfLLM: Training-Free Long-Context Extrapolation for LLMs with an "
                 "Efficient Context Memory\"",
       .options =
           {
               {"n_init", "tokens", "128, or a 32nd of the trained window if that is smaller", ">= 0",
                "tokens of the text's beginning that are always seen"},
               {"n_local", "tokens", "4096, or half the trained window if that is smaller",
                "1 .. the model's window",
                "newest tokens that are seen at their true distance, the query's own among them"},
               {"block", "tokens", "128, or a 32nd of the trained window if that is smaller", ">= 1",
                "length of a block, the unit that is chosen"},
               {"top_k", "blocks", "16", ">= 1", "blocks that are chosen"},
               {"representatives", "tokens", "4, or block if that is smaller", "1 .. block",
                "tokens of a block whose mean key stands for it when blocks are chosen: those that attention "
                "went to"},
               {"exec_block", "tokens", "512, or n_local if that is smaller", "1 .. n_local",
                "tokens of a prompt that choose together"},
               {"max_cached_block", "blocks", "32, or top_k if that is more", ">= top_k",
                "size of the cache of blocks that the statistics of hits and misses are about; changes no "
                "result"},
               {"per_head", "on|off", "off", "",
                "every query head chooses for itself, instead of all of a layer by the sum of their scores"},
               {"compat", "none|all", "none", "",
                "all: as in the published code, near keys that a prompt's later tokens see as far ones count "
                "twice"},
           }},
      Create};
}

}  // namespace longheads
