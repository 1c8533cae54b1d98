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
  // Appends the `count` best of candidates [0, n), or all where there are fewer, ascending; and to `nearly`,
  // in any order, as many of the next best.
  void Choose(const float* scores, int64_t n, int64_t count, std::vector<int32_t>& chosen,
              std::vector<int32_t>* nearly = nullptr) {
    const std::size_t first = chosen.size();
    if (n <= count) {
      for (int32_t i = 0; i < n; ++i) chosen.push_back(i);
      return;
    }
    if (count <= 0) return;
    const int64_t wanted = nearly != nullptr ? std::min(n, 2 * count) : count;
    GatherBest(scores, n, wanted);
    PutBestInFront(wanted);
    ranks_.resize(static_cast<std::size_t>(wanted));
    if (wanted > count) PutBestInFront(count);
    const auto end = ranks_.begin() + count;
    for (auto rank = ranks_.begin(); rank != end; ++rank) chosen.push_back(IndexOf(*rank));
    std::sort(chosen.begin() + static_cast<std::ptrdiff_t>(first), chosen.end());
    for (auto rank = end; rank != ranks_.end(); ++rank) nearly->push_back(IndexOf(*rank));
  }

 private:
  // Larger for better candidates.
  static uint64_t Rank(float score, int32_t index) {
    const uint32_t bits = std::bit_cast<uint32_t>(Comparable(score) + 0.0f);  // -0 is 0
    const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return uint64_t{ascending} << 32 | ~static_cast<uint32_t>(index);
  }
  static int32_t IndexOf(uint64_t rank) { return static_cast<int32_t>(~static_cast<uint32_t>(rank)); }

  // The `count` best of ranks_, in any order. 0 < count <= ranks_.size().
  void PutBestInFront(int64_t count) {
    std::nth_element(ranks_.begin(), ranks_.begin() + count - 1, ranks_.end(), std::greater<>());
  }

  // ranks_ = those of candidates among which the `count` best are. A long text has many candidates and few
  // are taken: of pieces of them the largest scores are found first, several at a time. The count-th of those
  // largest is no better than the count-th best candidate, and few candidates are as good as that.
  void GatherBest(const float* scores, int64_t n, int64_t count) {
    constexpr int64_t kPiece = 16;
    const int64_t piece = std::max(kPiece, n / (4 * count) / kPiece * kPiece);
    const int64_t n_pieces = n / piece;
    ranks_.clear();
    largest_.clear();
    if (n_pieces >= 2 * count) {
      for (int64_t i = 0; i < n_pieces; ++i) largest_.push_back(Largest(scores + i * piece, piece));
      sorted_ = largest_;
      std::nth_element(sorted_.begin(), sorted_.begin() + count - 1, sorted_.end(), std::greater<>());
    }
    const float least = largest_.empty() ? kWorst : sorted_[static_cast<std::size_t>(count - 1)];
    const auto gather = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (least == kWorst || scores[i] >= least) ranks_.push_back(Rank(scores[i], static_cast<int32_t>(i)));
      }
    };
    if (least == kWorst) return gather(0, n);
    for (int64_t i = 0; i < n_pieces; ++i) {
      if (largest_[static_cast<std::size_t>(i)] >= least) gather(i * piece, (i + 1) * piece);
    }
    gather(n_pieces * piece, n);
  }

  // n: a multiple of 4. What is no number is left out.
  static float Largest(const float* scores, int64_t n) {
    float lanes[4] = {kWorst, kWorst, kWorst, kWorst};
    for (int64_t i = 0; i < n; i += 4) {
      for (int64_t lane = 0; lane < 4; ++lane) {
        const float score = scores[i + lane];
        lanes[lane] = score > lanes[lane] ? score : lanes[lane];
      }
    }
    return std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
  }

  static constexpr float kWorst = -std::numeric_limits<float>::infinity();

  std::vector<float> largest_;  // of each piece
  std::vector<float> sorted_;
  std::vector<uint64_t> ranks_;
};

}  // namespace longheads
