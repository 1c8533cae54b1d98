#include "kv/frame_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/page_file.h"

namespace longheads {
namespace {

// Of a slab, at least; of small pages it may be less.
constexpr int64_t kSlabBytes = 4 * int64_t{kHugePage};
constexpr int64_t kMostSlabFrames = 128;

}  // namespace

PageFrame FrameStore::TakeFree() {
  if (free_.empty()) return {};
  PageFrame frame = std::move(free_.back());
  free_.pop_back();
  return frame;
}

void FrameStore::AddSlab() {
  const int64_t n_frames =
      std::min(kMostSlabFrames, (kSlabBytes + options_.data_bytes - 1) / options_.data_bytes);
  const auto n = static_cast<std::size_t>(n_frames);
  free_.reserve((slabs_.size() + 1) * n);
  // What is not written to takes no memory, but for the rest of a huge page.
  const auto all = static_cast<std::size_t>(n_frames * frame_bytes());
  auto slab = std::make_unique<FrameSlab>(FrameSlab{
      .store = this,
      .index = slabs_.size(),
      .memory = AllocateAligned(all, kDirectAlignment),
      .bytes = static_cast<std::size_t>(n_frames * options_.data_bytes),
      .in_small_pages = options_.in_small_pages,
      .holders = std::vector<KvPage*>(n),
      .uses = std::vector<Use>(n, Use::kNothing),
      .n_used_in_huge = std::vector<int>(HugePagesOf(n - 1).last + 1),
  });
  if (options_.in_small_pages) KeepSmallPages({slab->memory.get(), slab->bytes});
  slabs_.push_back(std::move(slab));
}

FrameSlab& FrameStore::SlabToUse() {
  const auto is_full = [](const FrameSlab& slab) {
    return slab.n_used == static_cast<int64_t>(slab.uses.size());
  };
  while (n_full_slabs_ < slabs_.size() && is_full(*slabs_[n_full_slabs_])) ++n_full_slabs_;
  for (std::size_t i = n_full_slabs_; i < slabs_.size(); ++i) {
    if (n_idle_ > 0 ? slabs_[i]->n_idle > 0 : !is_full(*slabs_[i])) return *slabs_[i];
  }
  LH_CHECK(n_idle_ == 0);
  AddSlab();
  return *slabs_.back();
}

void FrameStore::SetUse(FrameSlab& slab, std::size_t i, Use use) noexcept {
  const Use before = std::exchange(slab.uses[i], use);
  const int used = (use == Use::kUsed ? 1 : 0) - (before == Use::kUsed ? 1 : 0);
  const int idle = (use == Use::kIdle ? 1 : 0) - (before == Use::kIdle ? 1 : 0);
  n_frames_ += used;
  slab.n_used += used;
  n_idle_ += idle;
  slab.n_idle += idle;
  const auto [first, last] = HugePagesOf(i);
  for (std::size_t huge = first; huge <= last; ++huge) slab.n_used_in_huge[huge] += used;
}

bool FrameStore::IsAlone(const FrameSlab& slab, std::size_t i) const {
  const auto [first, last] = HugePagesOf(i);
  return std::all_of(slab.n_used_in_huge.begin() + static_cast<std::ptrdiff_t>(first),
                     slab.n_used_in_huge.begin() + static_cast<std::ptrdiff_t>(last + 1),
                     [](int n) { return n == 0; });
}

PageFrame FrameStore::New() {
  FrameSlab& slab = SlabToUse();
  const auto next = std::ranges::find(slab.uses, slab.n_idle > 0 ? Use::kIdle : Use::kNothing);
  const auto i = static_cast<std::size_t>(next - slab.uses.begin());
  SetUse(slab, i, Use::kUsed);
  std::byte* const sides = slab.memory.get() + slab.bytes;
  return {&slab, DataOf(slab, i).data(), sides + static_cast<int64_t>(i) * options_.side_bytes};
}

void FrameStore::SetHolder(const PageFrame& frame, KvPage* holder) noexcept {
  FrameSlab& slab = frame.slab();
  KvPage* const before = std::exchange(slab.holders[IndexOf(frame)], holder);
  slab.n_held += (holder != nullptr ? 1 : 0) - (before != nullptr ? 1 : 0);
  if (holder != nullptr) n_held_slabs_ = std::max(n_held_slabs_, slab.index + 1);
  while (n_held_slabs_ > 0 && slabs_[n_held_slabs_ - 1]->n_held == 0) --n_held_slabs_;
}

void FrameStore::GiveBack(PageFrame frame) noexcept {
  SetHolder(frame, nullptr);
  free_.push_back(std::move(frame));  // AddSlab made room
}

void FrameStore::ExchangeForLast(PageFrame& frame) noexcept {
  const auto last = std::ranges::max_element(
      free_, [](const PageFrame& one, const PageFrame& other) { return other.IsBehind(one); });
  if (last == free_.end() || !last->IsBehind(frame)) return;
  SetHolder(frame, nullptr);
  std::swap(*last, frame);
}

void FrameStore::DropHugePage(FrameSlab& slab, std::size_t huge) noexcept {
  const std::size_t begin = huge * kHugePage, end = std::min(begin + kHugePage, slab.bytes);
  DropContents({slab.memory.get() + begin, end - begin});
  const auto size = static_cast<std::size_t>(options_.data_bytes);
  for (std::size_t i = begin / size; i * size < end; ++i) {
    if (slab.uses[i] == Use::kIdle && IsAlone(slab, i)) SetUse(slab, i, Use::kNothing);
  }
}

void FrameStore::Discard(PageFrame frame) noexcept {
  SetHolder(frame, nullptr);
  FrameSlab& slab = frame.slab();
  n_full_slabs_ = std::min(n_full_slabs_, slab.index);
  const std::size_t i = IndexOf(frame);
  SetUse(slab, i, Use::kIdle);
  const auto [first, last] = HugePagesOf(i);
  for (std::size_t huge = first; huge <= last; ++huge) {
    if (slab.n_used_in_huge[huge] == 0) DropHugePage(slab, huge);
  }
  const std::span<std::byte> all{slab.memory.get(), slab.bytes};
  const bool stays = !slab.in_small_pages && slab.bytes >= kHugePage &&
                     n_idle_ * options_.data_bytes <= options_.most_idle_bytes;
  if (slab.uses[i] == Use::kIdle && !stays) {
    if (!std::exchange(slab.in_small_pages, true)) KeepSmallPages(all);
    DropContents(DataOf(slab, i));
    SetUse(slab, i, Use::kNothing);
  }
  if (slab.n_used > 0 || options_.in_small_pages || !slab.in_small_pages) return;
  // As a new one.
  AllowHugePages(all);
  slab.in_small_pages = false;
}

}  // namespace longheads
