// How much memory this process may still take, and how much it took.
#pragma once

#include <cstdint>
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
