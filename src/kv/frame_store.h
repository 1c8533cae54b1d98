// Memory that pages lie in, frame by frame: what is in use, what is free, and what the system has back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/memory.h"

namespace longheads {

class FrameStore;
class KvPage;
struct FrameSlab;

// Memory of one page, aligned for direct I/O; whoever has it may give it to another.
class PageFrame {
 public:
  PageFrame() {}  // none
  PageFrame(FrameSlab* slab, std::byte* data, std::byte* side) : slab_(slab), data_(data), side_(side) {}
  PageFrame(PageFrame&& other) noexcept { *this = std::move(other); }
  PageFrame& operator=(PageFrame&& other) noexcept {
    slab_ = std::exchange(other.slab_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    side_ = other.side_;
    return *this;
  }

  FrameSlab& slab() const { return *slab_; }
  inline FrameStore* store() const;  // whose it is
  std::byte* data() const { return data_; }
  std::byte* side() const { return side_; }  // the bytes that belong to it beside those
  explicit operator bool() const { return data_ != nullptr; }
  inline bool IsBehind(const PageFrame& other) const;  // another of the same store

 private:
  FrameSlab* slab_ = nullptr;
  std::byte* data_ = nullptr;
  std::byte* side_ = nullptr;
};

// Of a store: frames side by side.
struct FrameSlab {
  // Of a frame: nobody wants its memory, which the system has unless other frames of its huge page are
  // wanted; it was discarded and is there still; it waits for the next who needs one; somebody has it.
  enum class Use : uint8_t { kNothing, kIdle, kFree, kTaken };

  FrameStore* store;
  std::size_t index;  // among the store's
  AlignedMemory memory;
  std::size_t bytes;
  bool in_small_pages;
  std::vector<KvPage*> holders;  // of each frame: FrameStore::SetHolder
  std::vector<Use> uses;         // of each frame
  // Of each huge page, how many frames that are free or taken lie there, in part at least.
  std::vector<int> n_wanted_in_huge;
  int64_t n_held = 0;    // holders that are there
  int64_t n_wanted = 0;  // frames free or taken
  int64_t n_free = 0;
  int64_t n_idle = 0;
};

FrameStore* PageFrame::store() const { return slab_ != nullptr ? slab_->store : nullptr; }
bool PageFrame::IsBehind(const PageFrame& other) const {
  return slab_ == other.slab_ ? data_ > other.data_ : slab_->index > other.slab_->index;
}

// Frames of one size. They lie side by side in slabs: one by one, each would take a page of the system's more
// for the allocator's sake, and in huge pages of the system a transfer is one piece of memory and not
// sixteen. Those in front are taken first, and those who have one further behind may move (ForHoldersBehind):
// so what is discarded goes back to the system in whole huge pages.
class FrameStore {
 public:
  struct Options {
    int64_t data_bytes = 0;  // of each frame: whole pages of the system where any is discarded
    // Beside those: they need not be whole pages, and stay allocated where the system has the others back.
    int64_t side_bytes = 0;
    // Of frames that were discarded and are there still, for the huge page that they lie in.
    int64_t most_idle_bytes = 0;
    bool in_small_pages = false;  // of the system: there nothing takes memory before it is written to
  };
  FrameStore() {}  // no frames
  explicit FrameStore(const Options& options) : options_(options) {}

  int64_t side_bytes() const { return options_.side_bytes; }
  uint64_t most_idle_bytes() const { return static_cast<uint64_t>(options_.most_idle_bytes); }
  int64_t frame_bytes() const { return options_.data_bytes + options_.side_bytes; }
  // Frames that somebody has, or that are free; and beside them those that are idle.
  int64_t n_frames() const { return n_frames_; }
  int64_t n_used() const { return n_frames() - n_free(); }
  int64_t n_free() const { return n_free_; }
  uint64_t free_bytes() const { return static_cast<uint64_t>(n_free() * frame_bytes()); }
  uint64_t bytes() const { return static_cast<uint64_t>(n_frames_ * frame_bytes()); }
  int64_t n_idle() const { return n_idle_; }

  // The first that is free; none where none is.
  PageFrame TakeFree();
  // The first that is idle or, where none is, the first of the rest. Not zeroed. Throws std::bad_alloc. It
  // stays where it is: frames know it.
  PageFrame New();
  // Frames of its own come back.
  void GiveBack(PageFrame frame) noexcept;
  // For the free one that lies furthest behind, where that is further.
  void ExchangeForLast(PageFrame& frame) noexcept;
  // What it held goes back to the system: with all of its huge page, once no other frame there is wanted;
  // else at once, if too much is idle, and with it all that is idle in its slab, whose memory comes again in
  // small pages while others of it are wanted.
  void Discard(PageFrame frame) noexcept;

  // Whose page lies in the frame, as far as the store is told: it forgets frames that come back. Who discards
  // a frame may want to move to it what lies in a later huge page, so that there goes what the system has
  // back, and the others stay in huge pages of it.
  void SetHolder(const PageFrame& frame, KvPage* holder) noexcept;
  // Of frames in later huge pages than `frame`, the last frame first, until `moved(holder)` is true. A
  // holder's page may have left its frame, for whoever has that now.
  template <typename Moved>
  void ForHoldersBehind(const PageFrame& frame, const Moved& moved) const {
    const std::size_t slab = frame.slab().index;
    const std::size_t behind = HugePagesOf(IndexOf(frame)).last + 1;
    for (std::size_t i = n_held_slabs_; i-- > slab;) {
      for (std::size_t k = slabs_[i]->n_held > 0 ? slabs_[i]->holders.size() : 0; k-- > 0;) {
        if (i == slab && HugePagesOf(k).first < behind) break;
        KvPage* const holder = slabs_[i]->holders[k];
        if (holder != nullptr && moved(*holder)) return;
      }
    }
  }

 private:
  using Use = FrameSlab::Use;
  struct HugePages {
    std::size_t first, last;
  };

  void AddSlab();
  // Has frames that nobody has: idle ones, if there are any. Throws std::bad_alloc.
  FrameSlab& SlabToUse();
  std::size_t IndexOf(const PageFrame& frame) const {
    return static_cast<std::size_t>((frame.data() - frame.slab().memory.get()) / options_.data_bytes);
  }
  std::span<std::byte> DataOf(const FrameSlab& slab, std::size_t i) const {
    const auto size = static_cast<std::size_t>(options_.data_bytes);
    return {slab.memory.get() + i * size, size};
  }
  // Of its slab, in which a frame lies.
  HugePages HugePagesOf(std::size_t i) const {
    const auto size = static_cast<std::size_t>(options_.data_bytes);
    return {i * size / kHugePage, (i * size + size - 1) / kHugePage};
  }
  void SetUse(FrameSlab& slab, std::size_t i, Use use) noexcept;
  // Whether no frame is wanted where this one lies.
  bool IsAlone(const FrameSlab& slab, std::size_t i) const;
  void DropHugePage(FrameSlab& slab, std::size_t huge) noexcept;
  void DropInSmallPages(FrameSlab& slab) noexcept;  // all that is idle
  PageFrame FrameOf(FrameSlab& slab, std::size_t i) const;

  Options options_;
  int64_t n_frames_ = 0;
  int64_t n_free_ = 0;
  int64_t n_idle_ = 0;
  std::vector<std::unique_ptr<FrameSlab>> slabs_;  // frames know theirs
  std::size_t n_full_slabs_ = 0;                   // at least so many first ones have no frame for New()
  std::size_t n_held_slabs_ = 0;                   // up to the last that has a holder
};

}  // namespace longheads
