// Longest common subsequences, by the plain table. ROUGE reads one back, and which one of several equally
// long depends on how it breaks ties, so the table is open to it (rouge.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longheads {

// Lengths for all pairs of prefixes.
class LcsTable {
 public:
  LcsTable(std::span<const uint32_t> a, std::span<const uint32_t> b);

  // Of the first i of a and the first j of b.
  uint32_t at(std::size_t i, std::size_t j) const { return lengths_[i * (n_b_ + 1) + j]; }

 private:
  std::size_t n_b_;
  std::vector<uint32_t> lengths_;  // [n_a + 1, n_b + 1]
};

// The same number in memory for one row.
uint32_t LcsLength(std::span<const uint32_t> a, std::span<const uint32_t> b);

}  // namespace longheads
