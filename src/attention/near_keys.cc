#include "attention/near_keys.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/check.h"

namespace longheads {
namespace {

// Those that any window before any step can touch.
int64_t SlotsFor(int64_t window, int64_t step) { return (window + step + kPageTokens - 2) / kPageTokens + 1; }

int64_t StepOf(const Policy& policy) {
  return policy.StepTokens() == Policy::kNoLimit ? NearKeys::kStepTokens : policy.StepTokens();
}

}  // namespace

NearKeys::NearKeys(const KvGeometry& geometry, int64_t window, int64_t step, const VectorKernels& conversions)
    : geometry_(geometry), window_(window), step_(step), conversions_(conversions) {
  LH_CHECK(window > 0 && step > 0);
  slots_.resize(static_cast<std::size_t>(SlotsFor(window, step)));
}

std::unique_ptr<NearKeys> NearKeys::For(const Policy& policy, const KvGeometry& geometry,
                                        const VectorKernels& conversions) {
  if (policy.NearTokens() == 0) return nullptr;
  return std::make_unique<NearKeys>(geometry, policy.NearTokens(), StepOf(policy), conversions);
}

uint64_t NearKeys::BytesFor(const Policy& policy, const KvGeometry& geometry, int64_t n) {
  if (policy.NearTokens() == 0) return 0;
  const int64_t n_slots = SlotsFor(policy.NearTokens(), StepOf(policy));
  const int64_t n_pages = std::min((n + kPageTokens - 1) / kPageTokens, n_slots);
  const std::size_t size = geometry.type == KvType::kF32 ? sizeof(float) : sizeof(BFloat16);
  return static_cast<uint64_t>(n_pages * geometry.n_kv_heads * kPageTokens * geometry.head_dim) * size +
         static_cast<uint64_t>(n_slots) * sizeof(Slot);
}

uint64_t NearKeys::Bytes() const {
  uint64_t bytes = slots_.size() * sizeof(Slot);
  for (const Slot& slot : slots_) {
    bytes += static_cast<uint64_t>(slot.bf16.size()) * sizeof(BFloat16) +
             static_cast<uint64_t>(slot.floats.size()) * sizeof(float);
  }
  return bytes;
}

std::unique_ptr<NearKeys> NearKeys::Fresh() const {
  return std::make_unique<NearKeys>(geometry_, window_, step_, conversions_);
}

void NearKeys::Bring(const KvSequence& kv, int64_t layer, int64_t step_begin, int64_t step_end,
                     const KeyPlane& plane, const RotationTable& rotations, const AttentionKernels& kernels,
                     ThreadPool& pool) {
  LH_CHECK(step_end - step_begin <= step_);
  const int64_t first_page = std::max<int64_t>(0, step_begin - window_) / kPageTokens;
  const int64_t n_pages = (step_end - 1) / kPageTokens + 1 - first_page;
  const auto tokens_of = [&](int64_t page) { return std::min(step_end - page * kPageTokens, kPageTokens); };
  int64_t n_missing = 0;  // tokens
  for (int64_t page = first_page; page < first_page + n_pages; ++page) {
    Slot& slot = SlotOf(page);
    const int64_t n_old = std::clamp<int64_t>(step_begin - page * kPageTokens, 0, kPageTokens);
    slot.n_tokens = slot.page == page ? std::min(slot.n_tokens, n_old) : 0;
    slot.page = page;
    const int64_t size = geometry_.n_kv_heads * page_numbers();
    if (in_bf16()) {
      slot.bf16.Reserve(size);
    } else {
      slot.floats.Reserve(size);
    }
    n_missing += tokens_of(page) - slot.n_tokens;
  }
  const auto turn = [&](int64_t task, int) {
    const int64_t page = first_page + task / geometry_.n_kv_heads;
    Turn(kv, layer, task % geometry_.n_kv_heads, page, tokens_of(page), plane, rotations, kernels);
  };
  const int64_t n_tasks = n_pages * geometry_.n_kv_heads;
  if (n_missing == 1) {  // a generated token
    for (int64_t task = n_tasks - geometry_.n_kv_heads; task < n_tasks; ++task) turn(task, 0);
  } else {
    if (kv.on_disk()) SendFor(kv, layer, first_page, n_pages);
    pool.Run(n_tasks, turn);
  }
  for (int64_t page = first_page; page < first_page + n_pages; ++page)
    SlotOf(page).n_tokens = tokens_of(page);
}

// The pages that are to be turned, where they may be elsewhere than in memory.
void NearKeys::SendFor(const KvSequence& kv, int64_t layer, int64_t first_page, int64_t n_pages) {
  missing_.clear();
  for (int64_t page = first_page; page < first_page + n_pages; ++page) {
    if (SlotOf(page).n_tokens < kPageTokens) missing_.push_back(page);
  }
  for (int64_t head = 0; head < geometry_.n_kv_heads; ++head)
    kv.WillRead(layer, head, missing_, KvSequence::For::kPrompt);
}

void NearKeys::Turn(const KvSequence& kv, int64_t layer, int64_t kv_head, int64_t page, int64_t to,
                    const KeyPlane& plane, const RotationTable& rotations, const AttentionKernels& kernels) {
  constexpr int64_t kRows = 16;
  Slot& slot = SlotOf(page);
  const int64_t d = geometry_.head_dim;
  std::array<float, kRows * kMaxHeadDim> stored;
  std::array<float, kMaxHeadDim> turned;
  std::optional<PinnedPage> pin;  // that it does not leave between rows
  if (slot.n_tokens < to) pin.emplace(kv.Stored(layer, kv_head, page));
  for (int64_t begin = slot.n_tokens; begin < to; begin += kRows) {
    const int64_t n = std::min(kRows, to - begin);
    const int64_t token = page * kPageTokens + begin;
    kv.CopyKeys(layer, kv_head, token, n, stored.data(), d);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t x = plane.AbsolutePosition(token + i) - plane.Position(token + i);
      const int64_t at = kv_head * page_numbers() + (begin + i) * d;
      float* const out = in_bf16() ? turned.data() : slot.floats.data() + at;
      kernels.rotate(stored.data() + i * d, x, rotations, out);
      if (in_bf16()) conversions_.to_bf16(out, d, slot.bf16.data() + at);
    }
  }
}

const NearKeys::Slot& NearKeys::Brought(int64_t page) const {
  const Slot& slot = slots_[static_cast<std::size_t>(page) % slots_.size()];
  LH_CHECK(slot.page == page);
  return slot;
}

const float* NearKeys::InFloat32(int64_t kv_head, int64_t page, float* scratch) const {
  const Slot& slot = Brought(page);
  if (!in_bf16()) return slot.floats.data() + kv_head * page_numbers();
  conversions_.from_bf16(slot.bf16.data() + kv_head * page_numbers(), slot.n_tokens * geometry_.head_dim,
                         scratch);
  return scratch;
}

}  // namespace longheads
