// Memory that pages lie in, frame by frame: what is in use, what is free, and what the system has back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

 private:
  FrameSlab* slab_ = nullptr;
  std::byte* data_ = nullptr;
  std::byte* side_ = nullptr;
};

// Of a store: frames side by side.
struct FrameSlab {
  FrameStore* store;
  std::size_t index;  // among the store's
  AlignedMemory memory;
  std::size_t bytes;
  bool in_small_pages;
  std::vector<KvPage*> holders;   // FrameStore::SetHolder, of each frame
  int64_t n_held = 0;             // of them, those that are there
  int64_t n_frames = 0;           // that take memory
  std::vector<PageFrame> unused;  // those that take none
  bool is_listed = false;         // in FrameStore::used_in_part_
};

FrameStore* PageFrame::store() const { return slab_ != nullptr ? slab_->store : nullptr; }

// Frames of one size. They lie side by side in slabs: one by one, each would take a page of the system's more
// for the allocator's sake, and in huge pages of the system a transfer is one piece of memory and not
// sixteen.
class FrameStore {
 public:
  // Each has so many bytes, whole pages of the system, and some beside that need not be such; these stay
  // allocated also where the system has the others back. In small pages of the system nothing takes memory
  // before it is written to.
  explicit FrameStore(int64_t data_bytes, int64_t side_bytes = 0, bool in_small_pages = false)
      : data_bytes_(data_bytes), side_bytes_(side_bytes), in_small_pages_(in_small_pages) {}

  int64_t side_bytes() const { return side_bytes_; }
  int64_t frame_bytes() const { return data_bytes_ + side_bytes_; }
  // Frames that take memory: those that somebody has, and free ones.
  int64_t n_frames() const { return n_frames_; }
  int64_t n_used() const { return n_frames() - n_free(); }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }
  uint64_t free_bytes() const { return static_cast<uint64_t>(n_free() * frame_bytes()); }
  uint64_t bytes() const { return static_cast<uint64_t>(n_frames_ * frame_bytes()); }

  // None where none is free.
  PageFrame TakeFree();
  // One that took no memory. Not zeroed. Throws std::bad_alloc. It stays where it is: frames know it.
  PageFrame New();
  // Frames of its own come back.
  void GiveBack(PageFrame frame) noexcept;
  // What it held goes back to the system, and comes again in small pages of it while the slab has others.
  void Discard(PageFrame frame) noexcept;

  // Whose page lies in the frame, as far as the store is told: it forgets frames that come back. Who discards
  // a frame may want to move to it what lies in a later slab, so that there goes what the system has back,
  // and the others stay in huge pages of it.
  void SetHolder(const PageFrame& frame, KvPage* holder) noexcept;
  // Of frames in later slabs than `frame`, the last slab first, until `moved(holder)` is true. A holder's
  // page may have left its frame, for whoever has that now.
  template <typename Moved>
  void ForHoldersBehind(const PageFrame& frame, const Moved& moved) const {
    for (std::size_t i = n_held_slabs_; i-- > frame.slab().index + 1;) {
      if (slabs_[i]->n_held == 0) continue;
      for (KvPage* const holder : slabs_[i]->holders) {
        if (holder != nullptr && moved(*holder)) return;
      }
    }
  }

 private:
  // One that has unused frames. Throws std::bad_alloc.
  FrameSlab& SlabToUse();
  void AddSlab();
  void List(FrameSlab& slab) noexcept;  // in used_in_part_
  KvPage*& HolderOf(const PageFrame& frame) const {
    FrameSlab& slab = frame.slab();
    return slab.holders[static_cast<std::size_t>((frame.data() - slab.memory.get()) / data_bytes_)];
  }

  int64_t data_bytes_;
  int64_t side_bytes_;
  bool in_small_pages_;
  int64_t n_frames_ = 0;
  std::vector<std::unique_ptr<FrameSlab>> slabs_;  // frames know theirs
  std::size_t n_held_slabs_ = 0;                   // up to the last that has a holder
  // Slabs that have unused frames: those that have others, too, among which there may be some that have not
  // by now; and the rest, whose frames are used from the first on.
  std::vector<FrameSlab*> used_in_part_;
  std::vector<FrameSlab*> empty_;
  std::vector<PageFrame> free_;
};

}  // namespace longheads
