// What token blocks are fitted to, where pages leave memory and come back for every block.
#pragma once

#include <cstdint>

namespace longheads {

struct BlockFit {
  static constexpr int64_t kLeastParts = 4;
  static constexpr int64_t kMostParts = 32;

  int64_t ram = 0;             // bytes of pages in memory, which activations may not crowd out; 0: the pool's
  int64_t parts = kMostParts;  // a block is at least one part of so many of the text before it
};

}  // namespace longheads
