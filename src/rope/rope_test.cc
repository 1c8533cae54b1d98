#include <gtest/gtest.h>

#include <cmath>

#include "rope/frequencies.h"
#include "rope/rotation_table.h"

namespace longheads {
namespace {

TEST(TrainedFrequencies, FollowsTheBaseAndTheDivisors) {
  const Frequencies plain = *TrainedFrequencies(10000, 128, {});
  ASSERT_EQ(plain.theta.size(), 64u);
  EXPECT_EQ(plain.theta[0], 1.0);
  EXPECT_NEAR(plain.theta[32], 0.01, 1e-15);
  std::vector<float> divisors(64, 1.0f);
  divisors[63] = 8;
  EXPECT_DOUBLE_EQ(TrainedFrequencies(10000, 128, divisors)->theta[63], plain.theta[63] / 8);
  EXPECT_DOUBLE_EQ(Interpolated(plain, 4).theta[5], plain.theta[5] / 4);
}

TEST(TrainedFrequencies, RefusesWhatAFileCanGetWrong) {
  EXPECT_FALSE(TrainedFrequencies(0, 64, {}));
  EXPECT_FALSE(TrainedFrequencies(NAN, 64, {}));
  EXPECT_FALSE(TrainedFrequencies(1e4, 63, {}));
  EXPECT_FALSE(TrainedFrequencies(1e4, 64, std::vector<float>(31, 1.0f)));
  EXPECT_FALSE(TrainedFrequencies(1e4, 4, std::vector<float>{1.0f, 0.0f}));
}

// The product of the two tables against float64, at positions where float32 angles would be far off.
TEST(RotationTable, IsExactToTwoRoundingsAtEveryPosition) {
  const Frequencies frequencies = *TrainedFrequencies(100000, 64, {});
  for (const PairLayout layout : {PairLayout::kInterleaved, PairLayout::kHalfSplit}) {
    RotationTable table(frequencies, 64, layout, 10);
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
          const double angle = static_cast<double>(x) * frequencies.theta[m];
          EXPECT_NEAR(c, std::cos(angle), 3e-7);
          EXPECT_NEAR(s, at == first ? -std::sin(angle) : std::sin(angle), 3e-7);
        }
      }
    }
  }
}

TEST(RotationTable, LeavesDimensionsPastTheRotaryOnesAlone) {
  const RotationTable table(*TrainedFrequencies(10000, 4, {}), 6, PairLayout::kInterleaved, 600);
  EXPECT_EQ(table.low_cos(3)[5], 1.0f);
  EXPECT_EQ(table.high_sin(300)[4], 0.0f);
}

}  // namespace
}  // namespace longheads
