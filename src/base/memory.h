// How much memory this process may still take, and how much it took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

namespace longheads {

// Bytes that Linux says can be had without swapping, and that the limits of the process's control groups (v1
// and v2, its own and those above it) leave: what a group holds as file cache counts as free, since the
// system drops it when asked. The most there is where nothing can be read. `root` stands for "/" in tests.
uint64_t AvailableMemory(const std::string& root = "/");

// What was freed goes back to the system, where the allocator can do that: else it counts as taken.
void ReturnFreeMemory();

// The system's note of the most memory that this process had, counted from when it was reset. Where it cannot
// be reset the note is of all that came before too; 0 where it cannot be read.
void ResetPeakMemory();
uint64_t PeakMemory();

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct FreeAligned {
  std::align_val_t alignment;
  void operator()(std::byte* p) const { ::operator delete(static_cast<void*>(p), alignment); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeAligned>;

// Of at least `alignment`, which is no more than kHugePage's. Where it fills huge pages, the system is asked
// for such: who reads it from end to end meets fewer entries of the page table. Not zeroed: what is not
// written to takes no memory, but for the rest of a huge page. Throws std::bad_alloc.
AlignedMemory AllocateAligned(std::size_t size, std::size_t alignment);

// So many bytes from the beginning of a cache line on, for FreeLines. Throws std::bad_alloc. Memory that was
// given back is there for the next of that size, where glibc's aligned allocation leaves holes that are a
// little too small for it: it takes more than it gives, and small objects come to lie in the rest.
inline constexpr std::size_t kCacheLine = 64;
void* AllocateLines(std::size_t size);
void FreeLines(void* lines) noexcept;

// The memory stays, what was in it is lost: the system has its pages back until they are written to again.
// Bounds are whole pages of the system, of AllocateAligned's memory.
void DropContents(std::span<std::byte> memory);
// From now on in small pages of the system: it may make a huge one of any of them at any time, and so take
// anew what was dropped beside.
void KeepSmallPages(std::span<std::byte> memory);
void AllowHugePages(std::span<std::byte> memory);  // again

// ---- For tests ----

// As long as it lives AvailableMemory() says this; one at a time.
class PretendedMemory {
 public:
  explicit PretendedMemory(uint64_t bytes);
  ~PretendedMemory();
  PretendedMemory(const PretendedMemory&) = delete;
  PretendedMemory& operator=(const PretendedMemory&) = delete;
};

}  // namespace longheads
