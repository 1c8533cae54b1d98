#include "kv/frame_store.h"

#include <algorithm>
#include <functional>
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

void FrameStore::AddSlab() {
  const int64_t n_frames = std::min(kMostSlabFrames, (kSlabBytes + data_bytes_ - 1) / data_bytes_);
  const auto n = static_cast<std::size_t>(n_frames);
  const std::size_t n_slabs = slabs_.size() + 1;
  free_.reserve(n_slabs * n);
  used_in_part_.reserve(n_slabs);
  empty_.reserve(n_slabs);
  // What is not written to takes no memory, but for the rest of a huge page.
  const int64_t data_bytes = n_frames * data_bytes_;
  auto slab = std::make_unique<FrameSlab>(FrameSlab{
      .store = this,
      .index = slabs_.size(),
      .memory = AllocateAligned(static_cast<std::size_t>(n_frames * frame_bytes()), kDirectAlignment),
      .bytes = static_cast<std::size_t>(data_bytes),
      .in_small_pages = in_small_pages_,
      .holders = std::vector<KvPage*>(n),
      .unused = {},
  });
  std::byte* const data = slab->memory.get();
  if (in_small_pages_) KeepSmallPages({data, slab->bytes});
  // From its beginning: what is behind takes no memory yet.
  slab->unused.reserve(n);
  for (int64_t i = n_frames; i-- > 0;)
    slab->unused.emplace_back(slab.get(), data + i * data_bytes_, data + data_bytes + i * side_bytes_);
  slabs_.push_back(std::move(slab));
  empty_.push_back(slabs_.back().get());
}

FrameSlab& FrameStore::SlabToUse() {
  for (; !used_in_part_.empty(); used_in_part_.pop_back()) {
    FrameSlab& slab = *used_in_part_.back();
    if (slab.n_frames > 0 && !slab.unused.empty()) return slab;
    slab.is_listed = false;
  }
  if (empty_.empty()) AddSlab();
  FrameSlab& slab = *empty_.back();
  empty_.pop_back();
  List(slab);
  return slab;
}

void FrameStore::List(FrameSlab& slab) noexcept {
  if (!std::exchange(slab.is_listed, true)) used_in_part_.push_back(&slab);  // AddSlab made room
}

PageFrame FrameStore::New() {
  FrameSlab& slab = SlabToUse();
  PageFrame frame = std::move(slab.unused.back());
  slab.unused.pop_back();
  ++n_frames_;
  ++slab.n_frames;
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
  free_.push_back(std::move(frame));  // AddSlab made room
}

void FrameStore::Discard(PageFrame frame) noexcept {
  SetHolder(frame, nullptr);
  FrameSlab& slab = frame.slab();
  const std::span<std::byte> all{slab.memory.get(), slab.bytes};
  if (!std::exchange(slab.in_small_pages, true)) KeepSmallPages(all);
  DropContents({frame.data(), static_cast<std::size_t>(data_bytes_)});
  slab.unused.push_back(std::move(frame));
  --n_frames_;
  if (--slab.n_frames > 0) return List(slab);
  // As a new one.
  std::ranges::sort(slab.unused, std::greater<>(), &PageFrame::data);
  empty_.push_back(&slab);
  if (in_small_pages_) return;
  AllowHugePages(all);
  slab.in_small_pages = false;
}

}  // namespace longheads
