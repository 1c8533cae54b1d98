// The best of scored candidates, of equal ones the lower index: every method's rule.
#pragma once

#include <algorithm>
#include <bit>
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

// Finds the score that divides the best from the rest by halving the interval that it lies in and counting,
// many scores at a time and without a branch on any of them: some ten passes over what is in the first cache.
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
  static constexpr float kWorst = -std::numeric_limits<float>::infinity();
  static constexpr int kHalvings = 24;

  // The one with as many floats above as below it, in [low, high].
  static float FloatBetween(float low, float high) {
    const auto rank = [](int32_t bits) { return bits < 0 ? bits ^ 0x7FFFFFFF : bits; };
    const int64_t sum = int64_t{rank(std::bit_cast<int32_t>(low))} + rank(std::bit_cast<int32_t>(high));
    return std::bit_cast<float>(rank(static_cast<int32_t>(sum >> 1)));
  }

  // `n` scores are at least `at`, and fewer than are wanted at least `above`; none are where that is no
  // number. Where fewer are numbers above kWorst, `at` is kWorst and stands for what is no number too.
  struct Cut {
    float at;
    float above;
    int64_t n;
  };

  // Cuts off at least `wanted` of the n best scores, and at most `most` where no equal ones prevent it.
  Cut Find(const float* scores, int64_t n, int64_t wanted, int64_t most) const {
    const auto [lowest, largest] = kernels_.range(scores, n);
    const auto count = [&](float at) { return kernels_.count_at_least(scores, n, at); };
    Cut cut{.at = largest, .above = std::numeric_limits<float>::quiet_NaN(), .n = count(largest)};
    if (cut.n >= wanted) return cut;
    const float least = std::max(lowest, std::numeric_limits<float>::lowest());
    cut = {.at = least, .above = largest, .n = count(least)};
    if (cut.n < wanted) return {.at = kWorst, .above = least, .n = n};
    for (int pass = 0; cut.n > most; ++pass) {
      // Halves of an interval that an outlier makes wide are wide for long; of the floats in it they are not.
      const bool halves = pass < kHalvings && !std::isinf(cut.above);
      const float middle = halves ? cut.at / 2 + cut.above / 2 : FloatBetween(cut.at, cut.above);
      if (!(cut.at < middle && middle < cut.above)) break;  // no score lies between
      const int64_t n_here = count(middle);
      if (n_here >= wanted) {
        cut.at = middle;
        cut.n = n_here;
      } else {
        cut.above = middle;
      }
    }
    return cut;
  }

  // best = the `wanted` best of n scores, ascending. wanted <= n.
  void FindBest(const float* scores, int64_t n, int64_t wanted, std::vector<int32_t>& best) const {
    const Cut cut = Find(scores, n, wanted, wanted);
    Resize(best, n + kIndexRoom);
    if (cut.n == wanted && cut.at != kWorst) {
      kernels_.indices_at_least(scores, n, cut.at, best.data());
    } else {
      int64_t equal = wanted - kernels_.count_at_least(scores, n, cut.above);
      int32_t* to = best.data();
      for (int32_t i = 0; i < n; ++i) {
        if (scores[i] >= cut.above) {
          *to++ = i;
        } else if (equal > 0 && (scores[i] >= cut.at || cut.at == kWorst)) {
          *to++ = i;
          --equal;
        }
      }
    }
    best.resize(static_cast<std::size_t>(wanted));
  }

  // A long text has many candidates and few are taken: of pieces of them the largest scores are found first,
  // and as many of those are cut off as are wanted. What is worse than all these is not among the best. Gives
  // how many are left in left_ and left_scores_; n: all are, and nothing is there.
  int64_t LeaveFew(const float* scores, int64_t n, int64_t wanted) {
    constexpr int64_t kPiece = 16;
    const int64_t piece = std::max(kPiece, n / (4 * wanted) / kPiece * kPiece);
    const int64_t n_pieces = n / piece;
    if (n_pieces < 2 * wanted) return n;
    largest_.clear();
    for (int64_t i = 0; i < n_pieces; ++i) {
      largest_.push_back(kernels_.range(scores + i * piece, piece).largest);
    }
    const Cut cut = Find(largest_.data(), n_pieces, wanted, wanted + wanted / 4);
    if (cut.at == kWorst) return n;
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
