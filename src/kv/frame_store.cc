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

PageFrame FrameStore::FrameOf(FrameSlab& slab, std::size_t i) const {
  std::byte* const sides = slab.memory.get() + slab.bytes;
  return {&slab, DataOf(slab, i).data(), sides + static_cast<int64_t>(i) * options_.side_bytes};
}

PageFrame FrameStore::TakeFree() {
  if (n_free_ == 0) return {};
  FrameSlab& slab = **std::ranges::find_if(
      slabs_, [](int64_t n) { return n > 0; }, [](const auto& s) { return s->n_free; });
  const auto i = static_cast<std::size_t>(std::ranges::find(slab.uses, Use::kFree) - slab.uses.begin());
  SetUse(slab, i, Use::kTaken);
  return FrameOf(slab, i);
}

void FrameStore::AddSlab() {
  LH_CHECK(options_.data_bytes > 0);
  const int64_t n_frames =
      std::min(kMostSlabFrames, (kSlabBytes + options_.data_bytes - 1) / options_.data_bytes);
  const auto n = static_cast<std::size_t>(n_frames);
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
      .n_wanted_in_huge = std::vector<int>(HugePagesOf(n - 1).last + 1),
  });
  if (options_.in_small_pages) KeepSmallPages({slab->memory.get(), slab->bytes});
  slabs_.push_back(std::move(slab));
}

FrameSlab& FrameStore::SlabToUse() {
  const auto is_full = [](const FrameSlab& slab) {
    return slab.n_wanted == static_cast<int64_t>(slab.uses.size());
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
  const auto change = [&](auto... those) {
    return (0 + ... + (use == those ? 1 : 0)) - (0 + ... + (before == those ? 1 : 0));
  };
  const int wanted = change(Use::kFree, Use::kTaken), free = change(Use::kFree), idle = change(Use::kIdle);
  n_frames_ += wanted;
  slab.n_wanted += wanted;
  n_free_ += free;
  slab.n_free += free;
  n_idle_ += idle;
  slab.n_idle += idle;
  const auto [first, last] = HugePagesOf(i);
  for (std::size_t huge = first; huge <= last; ++huge) slab.n_wanted_in_huge[huge] += wanted;
}

bool FrameStore::IsAlone(const FrameSlab& slab, std::size_t i) const {
  const auto [first, last] = HugePagesOf(i);
  return std::all_of(slab.n_wanted_in_huge.begin() + static_cast<std::ptrdiff_t>(first),
                     slab.n_wanted_in_huge.begin() + static_cast<std::ptrdiff_t>(last + 1),
                     [](int n) { return n == 0; });
}

PageFrame FrameStore::New() {
  FrameSlab& slab = SlabToUse();
  const auto next = std::ranges::find(slab.uses, slab.n_idle > 0 ? Use::kIdle : Use::kNothing);
  const auto i = static_cast<std::size_t>(next - slab.uses.begin());
  SetUse(slab, i, Use::kTaken);
  return FrameOf(slab, i);
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
  SetUse(frame.slab(), IndexOf(frame), Use::kFree);
}

void FrameStore::ExchangeForLast(PageFrame& frame) noexcept {
  if (n_free_ == 0) return;
  std::size_t slab = slabs_.size() - 1;
  while (slabs_[slab]->n_free == 0) --slab;
  const std::vector<Use>& uses = slabs_[slab]->uses;
  std::size_t i = uses.size() - 1;
  while (uses[i] != Use::kFree) --i;
  PageFrame last = FrameOf(*slabs_[slab], i);
  if (!last.IsBehind(frame)) return;
  SetUse(*slabs_[slab], i, Use::kTaken);
  GiveBack(std::exchange(frame, std::move(last)));
}

void FrameStore::DropHugePage(FrameSlab& slab, std::size_t huge) noexcept {
  const std::size_t begin = huge * kHugePage, end = std::min(begin + kHugePage, slab.bytes);
  DropContents({slab.memory.get() + begin, end - begin});
  const auto size = static_cast<std::size_t>(options_.data_bytes);
  for (std::size_t i = begin / size; i * size < end; ++i) {
    if (slab.uses[i] == Use::kIdle && IsAlone(slab, i)) SetUse(slab, i, Use::kNothing);
  }
}

void FrameStore::DropInSmallPages(FrameSlab& slab) noexcept {
  if (!std::exchange(slab.in_small_pages, true)) KeepSmallPages({slab.memory.get(), slab.bytes});
  for (std::size_t i = 0; i < slab.uses.size() && slab.n_idle > 0; ++i) {
    if (slab.uses[i] != Use::kIdle) continue;
    DropContents(DataOf(slab, i));
    SetUse(slab, i, Use::kNothing);
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
    if (slab.n_wanted_in_huge[huge] == 0) DropHugePage(slab, huge);
  }
  const bool may_wait = !slab.in_small_pages && slab.bytes >= kHugePage &&
                        n_idle_ * options_.data_bytes <= options_.most_idle_bytes;
  if (!may_wait) DropInSmallPages(slab);
  if (slab.n_wanted > 0 || options_.in_small_pages || !slab.in_small_pages) return;
  // As a new one.
  AllowHugePages({slab.memory.get(), slab.bytes});
  slab.in_small_pages = false;
}

}  // namespace longheads
