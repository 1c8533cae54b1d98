#include "attention/executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "attention/near_keys.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/pause.h"

namespace longheads {

struct AttentionExecutor::Scratch {
  std::vector<float> states;  // [rows, StateFloats]
  std::vector<float> parts;   // the same, of one as_key segment: its tokens', then its key's
  std::vector<RotatedRow> rows;
  std::vector<int64_t> pages;  // that a plan reads
  std::vector<int64_t> nearly_pages;
  std::vector<int64_t> readers;  // the newest token that reads a page
  Buffer<float> page;            // a page expanded to float32, or gathered keys and values
  Buffer<std::byte> unpacked;    // pages that lie packed
  Buffer<float> turned;          // keys on another plane than the stored one
  Buffer<float> workspace;       // the kernels' own
  std::vector<float> masses;     // [rows, kMaxRun] of a page
  AttentionCounts counts;
  std::vector<KvPage*> coming;  // from disk, of pieces that nobody took yet
  // Theirs: the block, and which of its own.
  std::vector<std::pair<std::size_t, std::size_t>> coming_pieces;
};

namespace {

// Pages that a thread looks for at a time, of those that come: in the order in which they were sent for,
// mostly.
constexpr std::size_t kMostAwaited = 64;

// Calls part(begin, end) for the pieces of a segment that lie in so many pages, or are as long as a page.
// Where they meet does not depend on where the segment begins.
template <typename PartFunction>
void ForEachPart(const PlanSegment& segment, int64_t n_pages, const PartFunction& part) {
  const int64_t most = n_pages * kPageTokens;
  for (int64_t begin = segment.key_begin; begin < segment.key_end;) {
    const int64_t part_end = segment.listed ? begin + kPageTokens : (begin / most + 1) * most;
    const int64_t end = std::min(segment.key_end, part_end);
    part(begin, end);
    begin = end;
  }
}

// Calls with the pages that a segment reads, some more than once.
template <typename PageFunction>
void ForEachPage(const Plan& plan, const PlanSegment& segment, const PageFunction& read) {
  if (segment.as_key != PlanSegment::kNoKey) read(segment.as_key / kPageTokens);
  for (int64_t key = segment.key_begin; key < segment.key_end;) {
    const int64_t token = segment.listed ? plan.keys[static_cast<std::size_t>(key)] : key;
    read(token / kPageTokens);
    key = segment.listed ? key + 1 : (key / kPageTokens + 1) * kPageTokens;
  }
}

}  // namespace

// One block's plan on one thread.
class AttentionExecutor::Run {
 public:
  // `next` is what is most likely read after it.
  Run(const AttentionExecutor& executor, const QueryBlock& block, const Plan& plan, const KeyPlane& plane,
      Scratch& scratch, const std::byte* next = nullptr)
      : shape_(executor.shape_),
        kernels_(executor.kernels_),
        block_(block),
        plan_(plan),
        plane_(plane),
        scratch_(scratch),
        next_(next) {}

  // Pages whose keys Attend takes together.
  int64_t PagesTogether(const PlanSegment& segment, bool few) const {
    return !few && MultipliesBf16(segment) ? kPagesTogether : 1;
  }

  // Merges what keys [begin, end) of the segment, in PagesTogether, give its k-th plan row into state_of(k).
  template <typename StateOf>
  void Attend(const PlanSegment& segment, int64_t begin, int64_t end, bool few, const StateOf& state_of) {
    CollectRows(segment, begin, end, state_of);
    if (scratch_.rows.empty()) return;
    if (!few) CountPairs(MultipliesBf16(segment));
    const RotationTable& rotations = *SequenceOf(segment).rotations;
    if (few && !segment.listed && !Turns(segment)) {
      // A few rows take less time than widening the page for them.
      if (AttendStored(segment, begin, end)) return;
    }
    if (!few && MultipliesBf16(segment)) return AttendPages(segment, begin, end);
    const KeyRun run = ReadKeys(segment, begin, end, /*with_values=*/true);
    const auto attend = few ? kernels_.attend_few : kernels_.attend;
    attend(scratch_.rows, run, rotations, scratch_.workspace.data());
  }

  // The same for all of a segment that enters as one key.
  template <typename StateOf>
  void AttendAsKey(const PlanSegment& segment, bool few, const StateOf& state_of) {
    const int64_t d = shape_.head_dim;
    const int64_t floats = StateFloats(d);
    const int64_t n_rows = segment.row_end - segment.row_begin;
    scratch_.parts.resize(static_cast<std::size_t>(2 * n_rows * floats));
    const auto tokens_of = [&](int64_t k) {
      return scratch_.parts.data() + (k - segment.row_begin) * floats;
    };
    const auto key_of = [&](int64_t k) { return tokens_of(k) + n_rows * floats; };
    for (int64_t row = 0; row < 2 * n_rows; ++row) ClearState(scratch_.parts.data() + row * floats, d);
    ForEachPart(segment, PagesTogether(segment, few),
                [&](int64_t begin, int64_t end) { Attend(segment, begin, end, few, tokens_of); });
    PlanSegment key = segment;
    key.key_begin = segment.as_key;
    key.key_end = segment.as_key + 1;
    key.listed = key.absolute = false;
    Attend(key, key.key_begin, key.key_end, few, key_of);
    for (int64_t k = segment.row_begin; k < segment.row_end; ++k) {
      float* const tokens = tokens_of(k);
      const float* const as_key = key_of(k);
      if (tokens[d + 1] == 0 || as_key[d + 1] == 0) continue;  // the row sees none of them, or not the key
      for (int64_t m = 0; m < d; ++m) tokens[m] /= tokens[d + 1];
      tokens[d] = as_key[d];
      tokens[d + 1] = 1;
      kernels_.merge(state_of(k), tokens, d);
    }
  }

  // What keys [begin, end) get from a single token's rows.
  void MassOfFew(const PlanSegment& segment, int64_t begin, int64_t end, float* mass, int64_t stride) {
    CollectRows(segment, begin, end, [&](int64_t k) {
      return block_.tokens[0].softmax + 2 * HeadOf(plan_.rows[static_cast<std::size_t>(k)].row);
    });
    const auto n_rows = static_cast<int64_t>(scratch_.rows.size());
    if (n_rows == 0) return;
    LH_CHECK(n_rows == shape_.group());  // in the order of the heads
    scratch_.masses.assign(static_cast<std::size_t>(n_rows * kMaxRun), 0.0f);
    const RotationTable& rotations = *SequenceOf(segment).rotations;
    const int64_t page = begin / kPageTokens;
    const int64_t n_keys = (end - 1) % kPageTokens + 1;
    const NearKeys* const near = NearOf(segment);
    if (near != nullptr && near->in_bf16()) {
      kernels_.column_mass_few_bf16(scratch_.rows,
                                    {.k = near->InBf16(block_.kv_head, page),
                                     .v = nullptr,
                                     .v_stride = 0,
                                     .n_keys = n_keys,
                                     .head_dim = shape_.head_dim},
                                    rotations, scratch_.masses.data(), scratch_.workspace.data());
    } else {
      kernels_.column_mass_few(scratch_.rows, ReadKeys(segment, begin, end, /*with_values=*/false), rotations,
                               scratch_.masses.data(), scratch_.workspace.data());
    }
    for (int64_t g = 0; g < n_rows; ++g) {
      const float* const of_row = scratch_.masses.data() + g * kMaxRun + begin % kPageTokens;
      for (int64_t i = 0; i < end - begin; ++i) mass[g * stride + i] += of_row[i];
    }
  }

  // column_mass of keys [begin, end); the heads of the group are `stride` apart.
  void Mass(const PlanSegment& segment, int64_t begin, int64_t end, float* mass, int64_t stride) {
    const KeyRun run = ReadKeys(segment, begin, end, /*with_values=*/false);
    const int64_t first = begin % kPageTokens;
    for (int64_t g = 0; g < shape_.group(); ++g) {
      CollectRows(segment, begin, end, [&](int64_t k) {
        const int64_t row = plan_.rows[static_cast<std::size_t>(k)].row;
        const QueryToken& token = block_.tokens[static_cast<std::size_t>(row / shape_.group())];
        return row % shape_.group() == g ? token.softmax + 2 * HeadOf(row) : nullptr;
      });
      std::erase_if(scratch_.rows, [](const RotatedRow& row) { return row.state == nullptr; });
      if (scratch_.rows.empty()) continue;
      float page_mass[kPageTokens] = {};
      kernels_.column_mass(scratch_.rows, run, *SequenceOf(segment).rotations, page_mass,
                           scratch_.workspace.data());
      for (int64_t i = 0; i < end - begin; ++i) mass[g * stride + i] += page_mass[first + i];
    }
  }

 private:
  const AttentionSequence& SequenceOf(const PlanSegment& segment) const {
    return block_.sequences[static_cast<std::size_t>(segment.sequence)];
  }
  // Where its keys are, if not where they are stored: a run on the absolute plane.
  const NearKeys* NearOf(const PlanSegment& segment) const {
    LH_CHECK(SequenceOf(segment).near == nullptr || !SequenceOf(segment).keys_unrotated);
    return segment.absolute && !segment.listed ? SequenceOf(segment).near : nullptr;
  }
  // Whether its keys are turned to another plane as they are read.
  bool Turns(const PlanSegment& segment) const {
    return (segment.absolute && NearOf(segment) == nullptr) || SequenceOf(segment).keys_unrotated;
  }
  // Whether its keys are met by products of bfloat16: where they lie, as they are stored, or near ones as
  // they are kept.
  bool MultipliesBf16(const PlanSegment& segment) const {
    return kernels_.attend_bf16 != nullptr && !segment.listed && !Turns(segment) &&
           SequenceOf(segment).kv->geometry().type == KvType::kBF16;
  }
  void CountPairs(bool bf16) {
    double n = 0;
    for (const RotatedRow& row : scratch_.rows) n += row.key_end - row.key_begin;
    scratch_.counts.pairs += n;
    if (bf16) scratch_.counts.pairs_in_bf16 += n;
  }
  int64_t HeadOf(int64_t row) const { return block_.kv_head * shape_.group() + row % shape_.group(); }

  // The rows that see a key of [begin, end), their key ranges counted as ReadKeys lays the keys out.
  template <typename StateOf>
  void CollectRows(const PlanSegment& segment, int64_t begin, int64_t end, const StateOf& state_of) {
    const int64_t base = segment.listed ? begin : begin / kPageTokens * kPageTokens;
    const float scale = SequenceOf(segment).scale;
    scratch_.rows.clear();
    for (int64_t k = segment.row_begin; k < segment.row_end; ++k) {
      const PlanRow& entry = plan_.rows[static_cast<std::size_t>(k)];
      const std::size_t t = static_cast<std::size_t>(entry.row / shape_.group());
      const QueryToken& token = block_.tokens[t];
      int64_t first = begin;
      int64_t last = end;
      if (!segment.listed) {
        first = std::max(first, token.position - segment.max_distance + 1);
        last = std::min(last, token.position - segment.min_distance + 1);
        if (first >= last) continue;
      }
      scratch_.rows.push_back({.q = token.q + HeadOf(entry.row) * shape_.head_dim,
                               .x = entry.x,
                               .scale = plan_.token_scales.empty() ? scale : scale * plan_.token_scales[t],
                               .key_begin = static_cast<int32_t>(first - base),
                               .key_end = static_cast<int32_t>(last - base),
                               .state = state_of(k)});
    }
  }

  // Few rows on a page as it is stored, or its keys on the absolute plane, where the kernels know the type.
  bool AttendStored(const PlanSegment& segment, int64_t begin, int64_t end) {
    const KvSequence& kv = *SequenceOf(segment).kv;
    const KvType type = kv.geometry().type;
    const NearKeys* const near = NearOf(segment);
    if (type == KvType::kF32) return false;                      // nothing is to be widened
    if (near != nullptr && type != KvType::kBF16) return false;  // keys and values of two types
    const RotationTable& rotations = *SequenceOf(segment).rotations;
    const int64_t index = begin / kPageTokens;
    const int64_t d = shape_.head_dim;
    const int64_t n_keys = (end - 1) % kPageTokens + 1;
    const PinnedPage stored = near != nullptr ? kv.StoredForNow(block_.layer, block_.kv_head, index)
                                              : kv.AsItLies(block_.layer, block_.kv_head, index);
    const std::byte* const page = stored.data();
    if (page == nullptr) {
      kernels_.attend_few_packed(scratch_.rows,
                                 {.page = stored.packed(), .n_keys = n_keys, .head_dim = d, .next = next_},
                                 rotations, scratch_.workspace.data());
    } else if (type == KvType::kBF16) {
      const Bf16Page numbers = InBf16(segment, page, index);
      kernels_.attend_few_bf16(scratch_.rows,
                               {.k = numbers.k,
                                .v = numbers.v,
                                .v_stride = kPageTokens,
                                .n_keys = n_keys,
                                .head_dim = d,
                                .next = next_},
                               rotations, scratch_.workspace.data());
    } else {
      const Q8Places places(d);
      const auto* const k = reinterpret_cast<const int8_t*>(page);
      kernels_.attend_few_q8(scratch_.rows,
                             {{.k = k,
                               .v = k + places.v,
                               .v_stride = kPageTokens,
                               .n_keys = n_keys,
                               .head_dim = d,
                               .next = next_},
                              reinterpret_cast<const float*>(page + places.k_scale),
                              reinterpret_cast<const float*>(page + places.v_scale)},
                             rotations, scratch_.workspace.data());
    }
    return true;
  }

  // A page of bfloat16 as the segment meets it.
  Bf16Page InBf16(const PlanSegment& segment, const std::byte* stored, int64_t page) const {
    const auto* const k = reinterpret_cast<const BFloat16*>(stored);
    const NearKeys* const near = NearOf(segment);
    return {.k = near != nullptr ? near->InBf16(block_.kv_head, page) : k,
            .v = k + kPageTokens * shape_.head_dim};
  }

  void AttendPages(const PlanSegment& segment, int64_t begin, int64_t end) {
    const KvSequence& kv = *SequenceOf(segment).kv;
    const int64_t first_page = begin / kPageTokens;
    const int64_t stride = kv.geometry().PageStride();
    if (kv.pool()->packs()) scratch_.unpacked.Reserve(kPagesTogether * stride);
    std::byte* const unpacked = scratch_.unpacked.data();
    std::array<PinnedPage, kPagesTogether> pinned;
    std::array<Bf16Page, kPagesTogether> pages;
    std::size_t n = 0;
    for (; (first_page + static_cast<int64_t>(n)) * kPageTokens < end; ++n) {
      const int64_t page = first_page + static_cast<int64_t>(n);
      pinned[n] = kv.Stored(block_.layer, block_.kv_head, page,
                            unpacked == nullptr ? nullptr : unpacked + static_cast<int64_t>(n) * stride);
      pages[n] = InBf16(segment, pinned[n].data(), page);
    }
    kernels_.attend_bf16(scratch_.rows,
                         {.pages = std::span(pages).first(n),
                          .n_keys = end - first_page * kPageTokens,
                          .head_dim = shape_.head_dim},
                         *SequenceOf(segment).rotations, scratch_.workspace.data());
  }

  // Keys [begin, end) of a segment where the kernels can read them: at their places in the page, or side by
  // side. Of a run without values, v is null.
  KeyRun ReadKeys(const PlanSegment& segment, int64_t begin, int64_t end, bool with_values) {
    const AttentionSequence& sequence = SequenceOf(segment);
    const int64_t d = shape_.head_dim;
    float* const page = scratch_.page.data();
    KeyRun run{
        .k = nullptr, .v = nullptr, .v_stride = kPageTokens, .n_keys = 0, .head_dim = d, .next = next_};
    std::span<const int32_t> list;
    if (segment.listed) {
      list = std::span(plan_.keys)
                 .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      sequence.kv->Gather(block_.layer, block_.kv_head, list, page, page + kPageTokens * d);
      run.k = page;
      run.v = page + kPageTokens * d;
      run.n_keys = end - begin;
    } else {
      const int64_t index = begin / kPageTokens;
      const NearKeys* const near = NearOf(segment);
      if (with_values) {
        const PageLayout::Floats floats = sequence.kv->Read(block_.layer, block_.kv_head, index, page);
        run.k = floats.k;
        run.v = floats.v;
      } else if (near == nullptr) {
        run.k = sequence.kv->ReadKeys(block_.layer, block_.kv_head, index, page);
      }
      if (near != nullptr) run.k = near->InFloat32(block_.kv_head, index, scratch_.turned.data());
      run.n_keys = (end - 1) % kPageTokens + 1;
    }
    if (Turns(segment)) {
      const int64_t first = segment.listed ? 0 : begin % kPageTokens;
      float* const turned = scratch_.turned.data();
      for (int64_t i = first; i < run.n_keys; ++i) {
        const int64_t key = segment.listed ? list[static_cast<std::size_t>(i)] : begin - first + i;
        const int64_t wanted = segment.absolute ? plane_.AbsolutePosition(key) : plane_.Position(key);
        const int64_t stored = sequence.keys_unrotated ? 0 : plane_.Position(key);
        kernels_.rotate(run.k + i * d, wanted - stored, *sequence.rotations, turned + i * d);
      }
      run.k = turned;
    }
    return run;
  }

  const HeadShape& shape_;
  const AttentionKernels& kernels_;
  const QueryBlock& block_;
  const Plan& plan_;
  const KeyPlane& plane_;
  Scratch& scratch_;
  const std::byte* next_;
};

namespace {

void FinishRow(const float* state, const QueryBlock& block, int64_t row, const HeadShape& shape) {
  const int64_t d = shape.head_dim;
  const QueryToken& token = block.tokens[static_cast<std::size_t>(row / shape.group())];
  const int64_t head = block.kv_head * shape.group() + row % shape.group();
  FinishState(state, d, token.out + (head - block.first_out_head) * d);
  if (token.softmax != nullptr) std::copy_n(state + d, 2, token.softmax + 2 * head);
}

}  // namespace

// What the threads of RunFew share. Each makes plans while some are to be made, then attends to pieces of
// those that are there; who does the last piece of a block merges them.
class AttentionExecutor::Few {
 public:
  explicit Few(AttentionExecutor& executor) : executor_(executor) {}

  // While nobody works.
  void Start(std::span<const QueryBlock> blocks, const KeyPlane& plane, const PlanMaker& make_plan,
             const std::function<void()>& on_last_plan, int64_t n_threads) {
    queries_ = blocks;
    n_threads_ = static_cast<std::size_t>(n_threads);
    plane_ = &plane;
    make_plan_ = &make_plan;
    on_last_plan_ = &on_last_plan;
    while (blocks_.size() < blocks.size()) blocks_.push_back(std::make_unique<Block>());
    for (const auto& block : blocks_) block->planned.store(false, std::memory_order_relaxed);
    next_plan_.store(0, std::memory_order_relaxed);
    plans_.store(0, std::memory_order_relaxed);
    n_waiting_.store(0, std::memory_order_relaxed);
  }

  // On each thread that takes part. What one of them throws ends the work of all.
  void Work(int thread) {
    try {
      while ((plans_.load(std::memory_order_relaxed) & kFailed) == 0) {
        const std::size_t b = next_plan_.fetch_add(1, std::memory_order_relaxed);
        if (b >= queries_.size()) break;
        MakePlan(b, thread);
      }
      for (;;) {
        const uint32_t plans = plans_.load(std::memory_order_acquire);
        if ((plans & kFailed) != 0) return;
        // What is in memory first: the rest comes meanwhile.
        if (AttendToOne(thread) || AttendToComing(thread)) continue;
        if (plans == queries_.size()) return;
        AwaitPlan(plans);
      }
    } catch (...) {
      plans_.fetch_or(kFailed, std::memory_order_relaxed);
      plans_.notify_all();
      throw;
    }
  }

 private:
  static constexpr uint32_t kFailed = uint32_t{1} << 31;

  // A part of a segment, or all of one that enters as a key.
  struct Piece {
    const PlanSegment* segment;
    int64_t begin;
    int64_t end;
    int64_t state;  // offset into the block's states: one per row of the segment
  };
  // Those of a block's pieces that are in memory, in the plan's order, of which each is taken once.
  struct Share {
    std::vector<std::size_t> pieces;
    alignas(kCacheLine) std::atomic<std::size_t> next{0};

    // Its index in `pieces`.
    std::optional<std::size_t> Take() {
      if (next.load(std::memory_order_relaxed) >= pieces.size()) return std::nullopt;
      const std::size_t at = next.fetch_add(1, std::memory_order_relaxed);
      return at < pieces.size() ? std::optional(at) : std::nullopt;
    }
    void Clear() {
      pieces.clear();
      next.store(0, std::memory_order_relaxed);
    }
  };
  // The others, which are taken as they come.
  struct Coming {
    KvPage* page;
    std::size_t piece;
    bool taken;  // by std::atomic_ref
  };
  struct Block {
    std::atomic<bool> planned{false};  // all of it is there
    const Plan* plan = nullptr;
    std::vector<Piece> pieces;  // in the plan's order
    Share in_memory;
    std::vector<Coming> on_disk;
    std::vector<float> states;
    alignas(kCacheLine) std::atomic<std::size_t> n_left{0};  // pieces to be done
  };

  void MakePlan(std::size_t b, int thread) {
    Block& block = *blocks_[b];
    block.plan = &(*make_plan_)(b, thread);
    const int64_t floats = StateFloats(executor_.shape_.head_dim);
    AttentionCounts& counts = executor_.scratch_[static_cast<std::size_t>(thread)]->counts;
    int64_t n_states = 0;
    block.pieces.clear();
    block.in_memory.Clear();
    block.on_disk.clear();
    // A chunk may come to lie in two pages as the text grows, and no token should allocate for that.
    const std::size_t most = 2 * block.plan->segments.size();
    block.pieces.reserve(most);
    block.in_memory.pieces.reserve(most);
    block.on_disk.reserve(most);
    block.states.reserve(2 * block.plan->rows.size() * static_cast<std::size_t>(floats));
    for (const PlanSegment& segment : block.plan->segments) {
      const auto add = [&](int64_t begin, int64_t end) {
        if (KvPage* const page = OnDisk(queries_[b], segment, begin)) {
          block.on_disk.push_back({page, block.pieces.size(), /*taken=*/false});
        } else {
          block.in_memory.pieces.push_back(block.pieces.size());
        }
        block.pieces.push_back({&segment, begin, end, n_states * floats});
        n_states += segment.row_end - segment.row_begin;
        counts.keys_read += static_cast<double>(end - begin);
      };
      if (segment.as_key != PlanSegment::kNoKey) {
        add(segment.key_begin, segment.key_end);
        ++counts.keys_read;
      } else {
        ForEachPart(segment, /*n_pages=*/1, add);
      }
    }
    block.states.resize(static_cast<std::size_t>(n_states * floats));
    block.n_left.store(block.pieces.size(), std::memory_order_relaxed);
    if (block.pieces.empty()) Merge(b, thread);
    block.planned.store(true, std::memory_order_release);
    const uint32_t before = plans_.fetch_add(1, std::memory_order_acq_rel);
    plans_.notify_all();  // a system call only where one sleeps
    if (before + 1 == queries_.size()) (*on_last_plan_)();
  }

  // The page that is read for the segment's keys from `begin` on, where one would have to wait for it.
  static KvPage* OnDisk(const QueryBlock& queries, const PlanSegment& segment, int64_t begin) {
    const KvSequence& kv = *queries.sequences[static_cast<std::size_t>(segment.sequence)].kv;
    if (!kv.on_disk() || segment.listed) return nullptr;
    KvPage* const page = kv.PageAt(queries.layer, queries.kv_head, begin / kPageTokens);
    return kv.pool()->IsNear(*page) ? nullptr : page;
  }

  // Until there are more plans than so many.
  void AwaitPlan(uint32_t plans) {
    constexpr int kLooks = 2000;  // some 50 microseconds, which a plan takes where a text is long
    if (LookFor(kLooks, [&] { return plans_.load(std::memory_order_relaxed) != plans; })) return;
    plans_.wait(plans, std::memory_order_relaxed);
  }

  // False where none is left of the plans that are there.
  bool AttendToOne(int thread) {
    for (std::size_t b = 0; b < queries_.size(); ++b) {
      Block& block = *blocks_[b];
      if (!block.planned.load(std::memory_order_acquire)) continue;
      const std::optional<std::size_t> at = block.in_memory.Take();
      if (!at) continue;
      Attend(b, block.in_memory.pieces[*at], thread, KeysOf(b, *at + n_threads_));
      return true;
    }
    return false;
  }

  // The same of those that come from disk, whichever comes first; false, too, where others wait for all of
  // them: each takes what came, and looks again for what is left.
  bool AttendToComing(int thread) {
    Scratch& scratch = *executor_.scratch_[static_cast<std::size_t>(thread)];
    scratch.coming.clear();
    scratch.coming_pieces.clear();
    std::size_t n_left = 0;
    for (std::size_t b = 0; b < queries_.size(); ++b) {
      Block& block = *blocks_[b];
      if (!block.planned.load(std::memory_order_acquire)) continue;
      for (std::size_t i = 0; i < block.on_disk.size(); ++i) {
        Coming& one = block.on_disk[i];
        if (std::atomic_ref(one.taken).load(std::memory_order_relaxed)) continue;
        if (n_left++ >= kMostAwaited) continue;
        scratch.coming.push_back(one.page);
        scratch.coming_pieces.emplace_back(b, i);
      }
    }
    if (n_waiting_.load(std::memory_order_relaxed) >= n_left) return false;
    n_waiting_.fetch_add(1, std::memory_order_relaxed);
    KvPool& pool = *queries_[0].sequences[0].kv->pool();
    const auto [b, i] = scratch.coming_pieces[pool.AwaitOne(scratch.coming)];
    n_waiting_.fetch_sub(1, std::memory_order_relaxed);
    Coming& one = blocks_[b]->on_disk[i];
    if (!std::atomic_ref(one.taken).exchange(true, std::memory_order_relaxed)) {
      Attend(b, one.piece, thread, /*next=*/nullptr);
    }
    return true;
  }

  // Where the stored keys of the at-th piece in memory begin; null where there are fewer, it left meanwhile,
  // or others are read in their place. Threads take pieces in turn, mostly: who takes one foresees its next.
  const std::byte* KeysOf(std::size_t b, std::size_t at) const {
    const Block& block = *blocks_[b];
    if (at >= block.in_memory.pieces.size()) return nullptr;
    const QueryBlock& queries = queries_[b];
    const Piece& piece = block.pieces[block.in_memory.pieces[at]];
    const PlanSegment& segment = *piece.segment;
    const AttentionSequence& sequence = queries.sequences[static_cast<std::size_t>(segment.sequence)];
    if (segment.listed || (segment.absolute && sequence.near != nullptr)) return nullptr;
    return sequence.kv->Peek(queries.layer, queries.kv_head, piece.begin);
  }

  void Attend(std::size_t b, std::size_t nth, int thread, const std::byte* next) {
    Block& block = *blocks_[b];
    const Piece& piece = block.pieces[nth];
    const PlanSegment& segment = *piece.segment;
    const int64_t d = executor_.shape_.head_dim;
    const auto state_of = [&](int64_t k) {
      return block.states.data() + piece.state + (k - segment.row_begin) * StateFloats(d);
    };
    for (int64_t k = segment.row_begin; k < segment.row_end; ++k) ClearState(state_of(k), d);
    const bool as_key = segment.as_key != PlanSegment::kNoKey;  // read in several runs
    Run run(executor_, queries_[b], *block.plan, *plane_,
            *executor_.scratch_[static_cast<std::size_t>(thread)], as_key ? nullptr : next);
    if (as_key) {
      run.AttendAsKey(segment, /*few=*/true, state_of);
    } else {
      run.Attend(segment, piece.begin, piece.end, /*few=*/true, state_of);
    }
    if (block.n_left.fetch_sub(1, std::memory_order_acq_rel) == 1) Merge(b, thread);
  }

  // In the plan's order, whatever the order in which pieces were done.
  void Merge(std::size_t b, int thread) {
    const QueryBlock& queries = queries_[b];
    const Block& block = *blocks_[b];
    const HeadShape& shape = executor_.shape_;
    const int64_t d = shape.head_dim;
    const int64_t floats = StateFloats(d);
    const int64_t n_rows = static_cast<int64_t>(queries.tokens.size()) * shape.group();
    std::vector<float>& states = executor_.scratch_[static_cast<std::size_t>(thread)]->states;
    states.resize(static_cast<std::size_t>(n_rows * floats));
    for (int64_t row = 0; row < n_rows; ++row) ClearState(states.data() + row * floats, d);
    for (const Piece& piece : block.pieces) {
      for (int64_t k = piece.segment->row_begin; k < piece.segment->row_end; ++k) {
        const int32_t row = block.plan->rows[static_cast<std::size_t>(k)].row;
        executor_.kernels_.merge(states.data() + row * floats,
                                 block.states.data() + piece.state + (k - piece.segment->row_begin) * floats,
                                 d);
      }
    }
    for (int64_t row = 0; row < n_rows; ++row) FinishRow(states.data() + row * floats, queries, row, shape);
  }

  AttentionExecutor& executor_;
  std::span<const QueryBlock> queries_;
  const KeyPlane* plane_ = nullptr;
  const PlanMaker* make_plan_ = nullptr;
  const std::function<void()>* on_last_plan_ = nullptr;
  std::size_t n_threads_ = 1;
  std::vector<std::unique_ptr<Block>> blocks_;
  alignas(kCacheLine) std::atomic<std::size_t> next_plan_{0};
  alignas(kCacheLine) std::atomic<std::size_t> n_waiting_{0};  // threads, for pages to come
  // How many are there, with kFailed once anything threw.
  alignas(kCacheLine) std::atomic<uint32_t> plans_{0};
};

AttentionExecutor::AttentionExecutor(const AttentionKernels& kernels, const HeadShape& shape, int n_threads)
    : shape_(shape), kernels_(kernels), few_(std::make_unique<Few>(*this)) {
  for (int thread = 0; thread < n_threads; ++thread) {
    auto scratch = std::make_unique<Scratch>();
    scratch->coming.reserve(kMostAwaited);
    scratch->coming_pieces.reserve(kMostAwaited);
    scratch->page.Reset(2 * kPageTokens * shape.head_dim);
    scratch->turned.Reset(kPageTokens * shape.head_dim);
    scratch->workspace.Reset(AttendWorkspace(kernels.row_tile, shape.head_dim));
    scratch_.push_back(std::move(scratch));
  }
}

AttentionExecutor::~AttentionExecutor() = default;

AttentionCounts AttentionExecutor::counts() const {
  AttentionCounts sum;
  for (const auto& scratch : scratch_) sum.Add(scratch->counts);
  return sum;
}

void AttentionExecutor::RunBlock(const QueryBlock& block, const Plan& plan, const KeyPlane& plane, int thread,
                                 const CancelToken* cancel) {
  Scratch& scratch = *scratch_[static_cast<std::size_t>(thread)];
  const int64_t d = shape_.head_dim;
  const int64_t group = shape_.group();
  const int64_t n_rows = static_cast<int64_t>(block.tokens.size()) * group;
  scratch.states.resize(static_cast<std::size_t>(n_rows * StateFloats(d)));
  float* const states = scratch.states.data();
  for (int64_t row = 0; row < n_rows; ++row) ClearState(states + row * StateFloats(d), d);
  const auto state_of = [&](int64_t k) {
    return states + plan.rows[static_cast<std::size_t>(k)].row * StateFloats(d);
  };
  const auto cancelled = [cancel] { return Cancelled(cancel); };

  Run run(*this, block, plan, plane, scratch);
  for (const PlanSegment& segment : plan.segments) {
    if (segment.as_key != PlanSegment::kNoKey) {
      if (cancelled()) return;
      run.AttendAsKey(segment, /*few=*/false, state_of);
      continue;
    }
    ForEachPart(segment, run.PagesTogether(segment, /*few=*/false), [&](int64_t begin, int64_t end) {
      if (!cancelled()) run.Attend(segment, begin, end, /*few=*/false, state_of);
    });
  }
  if (cancelled()) return;
  for (int64_t row = 0; row < n_rows; ++row) {
    FinishRow(states + row * StateFloats(d), block, row, shape_);
  }
}

void AttentionExecutor::RunFew(std::span<const QueryBlock> blocks, const KeyPlane& plane, ThreadPool& pool,
                               const PlanMaker& make_plan, const std::function<void()>& on_last_plan) {
  LH_CHECK(pool.n_threads() <= static_cast<int>(scratch_.size()));
  // Others would find nothing to do, and be in the way. (Lists of keys may have several pieces a page.)
  int64_t n_useful = 0;
  for (const QueryBlock& block : blocks) {
    for (const AttentionSequence& sequence : block.sequences)
      n_useful += sequence.kv->size() / kPageTokens + 1;
  }
  const int64_t n_threads = std::min<int64_t>(pool.n_threads(), n_useful);
  few_->Start(blocks, plane, make_plan, on_last_plan, n_threads);
  pool.Run(n_threads, [this](int64_t, int thread) { few_->Work(thread); });
}

void AttentionExecutor::ReadAhead(const QueryBlock& block, const Plan& plan, int thread, bool remember) {
  std::vector<int64_t>& pages = scratch_[static_cast<std::size_t>(thread)]->pages;
  std::vector<int64_t>& nearly = scratch_[static_cast<std::size_t>(thread)]->nearly_pages;
  for (std::size_t s = 0; s < block.sequences.size(); ++s) {
    const KvSequence& kv = *block.sequences[s].kv;
    if (!kv.on_disk()) continue;
    pages.clear();
    const auto add = [&pages](int64_t page) {
      if (pages.empty() || pages.back() != page) pages.push_back(page);
    };
    for (const PlanSegment& segment : plan.segments) {
      if (segment.sequence != static_cast<int32_t>(s)) continue;
      ForEachPage(plan, segment, add);
    }
    kv.WillRead(block.layer, block.kv_head, pages,
                remember ? KvSequence::For::kToken : KvSequence::For::kPrompt,
                static_cast<int64_t>(block.sequences.size()));
    if (!remember) continue;
    nearly.clear();
    for (const PlanHint& hint : plan.hints) {
      if (hint.sequence != static_cast<int32_t>(s)) continue;
      for (int64_t key = hint.key_begin; key < hint.key_end; key = (key / kPageTokens + 1) * kPageTokens) {
        nearly.push_back(key / kPageTokens);
      }
    }
    std::sort(nearly.begin(), nearly.end());  // heads may agree
    nearly.erase(std::unique(nearly.begin(), nearly.end()), nearly.end());
    kv.Remember(block.layer, block.kv_head, pages, nearly);
  }
}

void AttentionExecutor::KeepForToken(const QueryBlock& block, const Plan& plan, int thread) {
  LH_CHECK(block.sequences.size() == 1);
  const KvSequence& kv = *block.sequences[0].kv;
  if (!kv.on_disk()) return;
  constexpr int64_t kUnread = -1;
  std::vector<int64_t>& pages = scratch_[static_cast<std::size_t>(thread)]->pages;
  std::vector<int64_t>& readers = scratch_[static_cast<std::size_t>(thread)]->readers;
  pages.clear();
  readers.assign(static_cast<std::size_t>(block.tokens.back().position / kPageTokens + 1), kUnread);
  for (const PlanSegment& segment : plan.segments) {
    int64_t row = kUnread;
    for (int64_t k = segment.row_begin; k < segment.row_end; ++k) {
      row = std::max<int64_t>(row, plan.rows[static_cast<std::size_t>(k)].row);
    }
    ForEachPage(plan, segment, [&](int64_t page) {
      int64_t& reader = readers[static_cast<std::size_t>(page)];
      if (reader == kUnread) pages.push_back(page);
      reader = std::max(reader, row / shape_.group());
    });
  }
  std::stable_sort(pages.begin(), pages.end(), [&](int64_t a, int64_t b) {
    return readers[static_cast<std::size_t>(a)] > readers[static_cast<std::size_t>(b)];
  });
  kv.KeepForToken(block.layer, block.kv_head, pages);
}

void AttentionExecutor::ColumnMass(const QueryBlock& block, const Plan& plan, const PlanSegment& segment,
                                   const KeyPlane& plane, int thread, const CancelToken* cancel, float* mass,
                                   int64_t stride) {
  LH_CHECK(!segment.listed && segment.as_key == PlanSegment::kNoKey);
  Run run(*this, block, plan, plane, *scratch_[static_cast<std::size_t>(thread)]);
  ForEachPart(segment, /*n_pages=*/1, [&](int64_t begin, int64_t end) {
    if (Cancelled(cancel)) return;
    float* const of_part = mass + begin - segment.key_begin;
    if (block.tokens.size() == 1) {
      run.MassOfFew(segment, begin, end, of_part, stride);
    } else {
      run.Mass(segment, begin, end, of_part, stride);
    }
  });
}

}  // namespace longheads
