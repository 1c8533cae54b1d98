// The checksum that stands beside everything written to disk: XXH3-64 (xxHash's third generation, seed 0). It
// finds damage; it does not keep out forgers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longheads {

uint64_t Checksum(std::span<const std::byte> bytes);
// Of both, as if the second lay behind the first. Throws std::bad_alloc, where a thread calls it first.
uint64_t Checksum(std::span<const std::byte> first, std::span<const std::byte> second);

}  // namespace longheads
