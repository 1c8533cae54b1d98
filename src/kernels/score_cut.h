// Where scores are cut so that few of the best are left: for every implementation of VectorKernels::cut,
// which differ in how they compare many scores at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/vector_ops.h"

namespace longheads {

// The one with as many floats above as below it, in [low, high].
inline float FloatBetween(float low, float high) {
  // Neighbours are one apart, and the two zeros one number; its own inverse.
  const auto rank = [](int32_t bits) { return bits < 0 ? std::numeric_limits<int32_t>::min() - bits : bits; };
  const int64_t sum = int64_t{rank(std::bit_cast<int32_t>(low))} + rank(std::bit_cast<int32_t>(high));
  return std::bit_cast<float>(rank(static_cast<int32_t>(sum >> 1)));
}

// By halving the interval that the cut lies in and counting, without a branch on any score.
template <ScoreRange (*kRange)(const float*, int64_t), int64_t (*kCountAtLeast)(const float*, int64_t, float)>
ScoreCut FindCut(const float* scores, int64_t n, int64_t wanted, int64_t most) {
  constexpr int kHalvings = 24;
  const auto [lowest, largest] = kRange(scores, n);
  ScoreCut cut{.at = largest,
               .above = std::numeric_limits<float>::quiet_NaN(),
               .n = kCountAtLeast(scores, n, largest)};
  if (cut.n >= wanted) return cut;
  const float least = std::max(lowest, std::numeric_limits<float>::lowest());
  cut = {.at = least, .above = largest, .n = kCountAtLeast(scores, n, least)};
  if (cut.n < wanted) return {.at = kWorstScore, .above = least, .n = n};
  for (int pass = 0; cut.n > most; ++pass) {
    // Halves of an interval that an outlier makes wide are wide for long; of the floats in it they are not.
    const bool halves = pass < kHalvings && !std::isinf(cut.above);
    const float middle = halves ? cut.at / 2 + cut.above / 2 : FloatBetween(cut.at, cut.above);
    if (!(cut.at < middle && middle < cut.above)) break;  // no score lies between
    const int64_t n_here = kCountAtLeast(scores, n, middle);
    if (n_here >= wanted) {
      cut.at = middle;
      cut.n = n_here;
    } else {
      cut.above = middle;
    }
  }
  return cut;
}

}  // namespace longheads
