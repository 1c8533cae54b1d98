#include "kv/page.h"

#include <sys/mman.h>

namespace longheads {

FrameSlab::FrameSlab(int64_t n_frames, int64_t frame_bytes)
    : frame_bytes_(frame_bytes),
      data_(Allocate(static_cast<std::size_t>(n_frames) * static_cast<std::size_t>(frame_bytes))) {}

std::unique_ptr<std::byte, FrameSlab::Free> FrameSlab::Allocate(std::size_t size) {
  const bool huge = size >= kHugePage;
  const Free deleter{std::align_val_t(huge ? kHugePage : kDirectAlignment)};
  std::unique_ptr<std::byte, Free> data(static_cast<std::byte*>(::operator new(size, deleter.alignment)),
                                        deleter);
  if (huge) madvise(data.get(), size, MADV_HUGEPAGE);  // a wish: nothing depends on it
  return data;
}

}  // namespace longheads
