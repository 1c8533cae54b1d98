// Memory that pages lie in, frame by frame: what is in use, what is free, and what the system has back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/memory.h"

namespace longheads {

// Memory of one page, aligned for direct I/O; whoever has it may give it to another.
class PageFrame {
 public:
  PageFrame() {}  // none
  explicit PageFrame(std::byte* data) : data_(data) {}
  PageFrame(PageFrame&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PageFrame& operator=(PageFrame&& other) noexcept {
    data_ = std::exchange(other.data_, nullptr);
    return *this;
  }

  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
};

// Frames of one size. They lie side by side in slabs: one by one, each would take a page of the system's more
// for the allocator's sake, and in huge pages of the system a transfer is one piece of memory and not
// sixteen.
class FrameStore {
 public:
  explicit FrameStore(int64_t frame_bytes) : frame_bytes_(frame_bytes) {}

  int64_t frame_bytes() const { return frame_bytes_; }
  // Frames that take memory: those that somebody has, and free ones.
  int64_t n_frames() const { return n_frames_; }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }
  uint64_t bytes() const { return static_cast<uint64_t>(n_frames_ * frame_bytes_); }

  // None where none is free.
  PageFrame TakeFree();
  // One that took no memory. Not zeroed. Throws std::bad_alloc.
  PageFrame New();
  void GiveBack(PageFrame frame) noexcept { free_.push_back(std::move(frame)); }  // New made room
  // What it held goes back to the system.
  void Discard(PageFrame frame) noexcept;

 private:
  struct Slab {
    AlignedMemory memory;
    std::size_t bytes;
    bool in_small_pages = false;
  };

  int64_t frame_bytes_;
  int64_t n_frames_ = 0;
  std::vector<Slab> slabs_;
  std::vector<PageFrame> unused_;  // of the slabs: not among the n_frames_
  std::vector<PageFrame> free_;
};

}  // namespace longheads
