// The best of scored candidates, of equal ones the lower index: every method's rule.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace longheads {

// What takes a score's place where scores are compared: one that is no number, of a damaged model, is the
// worst. Without it the comparison is no order, and a sort may leave its array.
template <typename T>
T Comparable(T score) {
  return std::isnan(score) ? -std::numeric_limits<T>::infinity() : score;
}

class TopK {
 public:
  // Appends the `count` best of candidates [0, n), or all where there are fewer, ascending.
  void Choose(const float* scores, int64_t n, int64_t count, std::vector<int32_t>& chosen) {
    const std::size_t first = chosen.size();
    if (n <= count) {
      for (int32_t i = 0; i < n; ++i) chosen.push_back(i);
      return;
    }
    if (count <= 0) return;
    ranks_.clear();
    for (int32_t i = 0; i < n; ++i) ranks_.push_back(Rank(scores[i], i));
    std::nth_element(ranks_.begin(), ranks_.begin() + count - 1, ranks_.end(), std::greater<>());
    for (int64_t i = 0; i < count; ++i) {
      chosen.push_back(static_cast<int32_t>(~static_cast<uint32_t>(ranks_[static_cast<std::size_t>(i)])));
    }
    std::sort(chosen.begin() + static_cast<std::ptrdiff_t>(first), chosen.end());
  }

 private:
  // Larger for better candidates. Whole numbers, so that NaN has a place in the order too.
  static uint64_t Rank(float score, int32_t index) {
    const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 is 0
    const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return uint64_t{ascending} << 32 | ~static_cast<uint32_t>(index);
  }

  std::vector<uint64_t> ranks_;
};

}  // namespace longheads
