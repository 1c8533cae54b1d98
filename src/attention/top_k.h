// The best of scored candidates, of equal ones the lower index: every method's rule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/vector_ops.h"

namespace longheads {

// What takes a score's place where scores are compared: one that is no number, of a damaged model, is the
// worst. Without it the comparison is no order, and a sort may leave its array.
template <typename T>
T Comparable(T score) {
  return std::isnan(score) ? -std::numeric_limits<T>::infinity() : score;
}

// Finds the score that divides the best from the rest (VectorKernels::cut), of long texts among the few that
// may be above it.
class TopK {
 public:
  // Appends the `count` best of candidates [0, n), or all where there are fewer, ascending; and to `nearly`,
  // in any order, as many of the next best.
  void Choose(const float* scores, int64_t n, int64_t count, std::vector<int32_t>& chosen,
              std::vector<int32_t>* nearly = nullptr) {
    if (n <= count) {
      for (int32_t i = 0; i < n; ++i) chosen.push_back(i);
      return;
    }
    if (count <= 0) return;
    const int64_t wanted = nearly != nullptr ? std::min(n, 2 * count) : count;
    const int64_t n_left = LeaveFew(scores, n, wanted);
    if (n_left < n) scores = left_scores_.data();
    const auto index_of = [&](int32_t i) { return n_left < n ? left_[static_cast<std::size_t>(i)] : i; };
    FindBest(scores, n_left, count, best_);
    for (const int32_t i : best_) chosen.push_back(index_of(i));
    if (wanted == count) return;
    FindBest(scores, n_left, wanted, next_);
    auto taken = best_.begin();
    for (const int32_t i : next_) {
      if (taken != best_.end() && *taken == i) {
        ++taken;
      } else {
        nearly->push_back(index_of(i));
      }
    }
  }

 private:
  // best = the `wanted` best of n scores, ascending. wanted <= n.
  void FindBest(const float* scores, int64_t n, int64_t wanted, std::vector<int32_t>& best) const {
    Resize(best, n + kIndexRoom);
    const ScoreCut cut = kernels_.cut(scores, n, wanted, wanted);
    if (cut.n == wanted && cut.at != kWorstScore) {
      kernels_.indices_at_least(scores, n, cut.at, best.data());
    } else {
      int64_t equal = wanted - kernels_.count_at_least(scores, n, cut.above);
      int32_t* to = best.data();
      for (int32_t i = 0; i < n; ++i) {
        if (scores[i] >= cut.above) {
          *to++ = i;
        } else if (equal > 0 && (scores[i] >= cut.at || cut.at == kWorstScore)) {
          *to++ = i;
          --equal;
        }
      }
    }
    best.resize(static_cast<std::size_t>(wanted));
  }

  // A long text has many candidates and few are taken: of pieces of them the largest scores are found first,
  // and as many of those are cut off as are wanted. What is worse than all these is not among the best. Gives
  // how many are left in left_ and left_scores_; n: all are, and nothing is there. A piece is of scores that
  // lie apart: the best often lie side by side.
  int64_t LeaveFew(const float* scores, int64_t n, int64_t wanted) {
    constexpr int64_t kPiece = 8;  // at least
    int64_t n_pieces = (4 * wanted + kFoldWidth - 1) / kFoldWidth * kFoldWidth;
    while (n_pieces > kFoldWidth && n < kPiece * n_pieces) n_pieces = n_pieces / 2 / kFoldWidth * kFoldWidth;
    if (n_pieces < 2 * wanted || n < kPiece * n_pieces) return n;
    Resize(largest_, n_pieces);
    kernels_.fold_largest(scores, n, n_pieces, largest_.data());
    const ScoreCut cut = kernels_.cut(largest_.data(), n_pieces, wanted, wanted + wanted / 4);
    if (cut.at == kWorstScore) return n;
    Resize(left_, n + kIndexRoom);
    const int64_t n_left = kernels_.indices_at_least(scores, n, cut.at, left_.data());
    Resize(left_scores_, n_left);
    for (int64_t i = 0; i < n_left; ++i) {
      left_scores_[static_cast<std::size_t>(i)] = scores[left_[static_cast<std::size_t>(i)]];
    }
    return n_left;
  }

  // With room for more: a text grows, and each token of it should not allocate.
  template <typename T>
  static void Resize(std::vector<T>& list, int64_t n) {
    const auto size = static_cast<std::size_t>(n);
    if (list.capacity() < size) list.reserve(2 * size);
    list.resize(size);
  }

  const VectorKernels& kernels_ = FastestVectorKernels();
  std::vector<float> largest_;  // of each piece
  std::vector<int32_t> left_;
  std::vector<float> left_scores_;
  std::vector<int32_t> best_, next_;
};

}  // namespace longheads
