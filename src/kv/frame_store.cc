#include "kv/frame_store.h"

#include <algorithm>
#include <span>
#include <utility>

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

PageFrame FrameStore::New() {
  if (unused_.empty()) {
    const int64_t n_frames = std::min(kMostSlabFrames, (kSlabBytes + data_bytes_ - 1) / data_bytes_);
    const std::size_t n = (slabs_.size() + 1) * static_cast<std::size_t>(n_frames);
    unused_.reserve(n);
    free_.reserve(n);
    // What is not written to takes no memory, but for the rest of a huge page.
    const int64_t data_bytes = n_frames * data_bytes_;
    slabs_.push_back(std::make_unique<FrameSlab>(FrameSlab{
        .store = this,
        .index = slabs_.size(),
        .memory = AllocateAligned(static_cast<std::size_t>(n_frames * frame_bytes()), kDirectAlignment),
        .bytes = static_cast<std::size_t>(data_bytes),
        .in_small_pages = in_small_pages_,
        .holders = std::vector<KvPage*>(static_cast<std::size_t>(n_frames)),
    }));
    FrameSlab& slab = *slabs_.back();
    std::byte* const data = slab.memory.get();
    if (in_small_pages_) KeepSmallPages({data, slab.bytes});
    // From its beginning: what is behind takes no memory yet.
    for (int64_t i = n_frames; i-- > 0;)
      unused_.emplace_back(&slab, data + i * data_bytes_, data + data_bytes + i * side_bytes_);
  }
  PageFrame frame = std::move(unused_.back());
  unused_.pop_back();
  ++n_frames_;
  ++frame.slab().n_frames;
  return frame;
}

void FrameStore::SetHolder(const PageFrame& frame, KvPage* holder) noexcept {
  FrameSlab& slab = frame.slab();
  KvPage* const before = std::exchange(HolderOf(frame), holder);
  slab.n_held += (holder != nullptr ? 1 : 0) - (before != nullptr ? 1 : 0);
  if (holder != nullptr) n_held_slabs_ = std::max(n_held_slabs_, slab.index + 1);
  while (n_held_slabs_ > 0 && slabs_[n_held_slabs_ - 1]->n_held == 0) --n_held_slabs_;
}

void FrameStore::GiveBack(PageFrame frame) noexcept {
  SetHolder(frame, nullptr);
  free_.push_back(std::move(frame));  // New made room
}

void FrameStore::Discard(PageFrame frame) noexcept {
  SetHolder(frame, nullptr);
  FrameSlab& slab = frame.slab();
  const std::span<std::byte> all{slab.memory.get(), slab.bytes};
  if (!std::exchange(slab.in_small_pages, true)) KeepSmallPages(all);
  DropContents({frame.data(), static_cast<std::size_t>(data_bytes_)});
  --n_frames_;
  unused_.push_back(std::move(frame));
  if (--slab.n_frames > 0 || in_small_pages_) return;
  // As a new one: its frames are used again from its beginning, one behind the other, once no other slab has
  // any that were discarded.
  AllowHugePages(all);
  slab.in_small_pages = false;
  const auto others = std::stable_partition(unused_.begin(), unused_.end(),
                                            [&](const PageFrame& unused) { return &unused.slab() == &slab; });
  std::sort(unused_.begin(), others,
            [](const PageFrame& a, const PageFrame& b) { return a.data() > b.data(); });
}

}  // namespace longheads
