#include "rope/frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longheads {
namespace {

TEST(TrainedFrequencies, FollowsTheBaseAndTheDivisors) {
  const Frequencies plain = *TrainedFrequencies(10000, 128, {});
  ASSERT_EQ(plain.theta.size(), 64u);
  EXPECT_EQ(plain.rotary_dim(), 128);
  EXPECT_EQ(plain.amplitude, 1.0);
  EXPECT_EQ(plain.theta[0], 1.0);
  EXPECT_NEAR(plain.theta[32], 0.01, 1e-15);
  std::vector<float> divisors(64, 1.0f);
  divisors[63] = 8;
  EXPECT_DOUBLE_EQ(TrainedFrequencies(10000, 128, divisors)->theta[63], plain.theta[63] / 8);
}

TEST(TrainedFrequencies, RefusesWhatAFileCanGetWrong) {
  EXPECT_FALSE(TrainedFrequencies(0, 64, {}));
  EXPECT_FALSE(TrainedFrequencies(NAN, 64, {}));
  EXPECT_FALSE(TrainedFrequencies(1e4, 63, {}));
  EXPECT_FALSE(TrainedFrequencies(1e4, 64, std::vector<float>(31, 1.0f)));
  EXPECT_FALSE(TrainedFrequencies(1e4, 4, std::vector<float>{1.0f, 0.0f}));
}

}  // namespace
}  // namespace longheads
