#include "kernels/rotation_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace longheads {
namespace {

// The product of the two tables against float64, at positions where float32 angles would be far off.
TEST(RotationTable, IsExactToTwoRoundingsAtEveryPosition) {
  std::vector<double> theta;
  for (int m = 0; m < 32; ++m) theta.push_back(std::pow(100000.0, -m / 32.0));
  for (const PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalfSplit}) {
    RotationTable table(theta, 64, layout, 10);
    table.Ensure(1'000'001);
    for (const int64_t x : {0, 1, 255, 256, 4097, 131071, 1'000'000}) {
      for (int64_t m = 0; m < 32; ++m) {
        const int64_t first = layout == PairLayout::kInterleaved ? 2 * m : m;
        const int64_t second = layout == PairLayout::kInterleaved ? 2 * m + 1 : m + 32;
        for (const int64_t at : {first, second}) {
          const float c =
              table.high_cos(x)[at] * table.low_cos(x)[at] - table.high_sin(x)[at] * table.low_sin(x)[at];
          const float s =
              table.high_sin(x)[at] * table.low_cos(x)[at] + table.high_cos(x)[at] * table.low_sin(x)[at];
          const double angle = static_cast<double>(x) * theta[m];
          EXPECT_NEAR(c, std::cos(angle), 3e-7);
          EXPECT_NEAR(s, at == first ? -std::sin(angle) : std::sin(angle), 3e-7);
        }
      }
    }
  }
}

TEST(RotationTable, LeavesDimensionsPastTheRotaryOnesAlone) {
  const RotationTable table(std::vector{1.0, 0.01}, 6, PairLayout::kInterleaved, 600);
  EXPECT_EQ(table.low_cos(3)[5], 1.0f);
  EXPECT_EQ(table.high_sin(300)[4], 0.0f);
}

}  // namespace
}  // namespace longheads
