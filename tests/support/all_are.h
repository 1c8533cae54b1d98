// Whether bytes all have one value. Compared at once: byte by byte was most of what tests of pages took under
// sanitizers.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace longheads {

inline bool AllAre(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() ||
         (bytes.front() == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace longheads
