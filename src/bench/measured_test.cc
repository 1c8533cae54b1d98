#include "bench/measured.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

TEST(Measured, IsTheMedianAndTheSpread) {
  const Measured odd = Summarise({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.high, 3);
  EXPECT_EQ(odd.n, 3);
  EXPECT_EQ(Summarise({1, 2, 6}).mean, 3);
  EXPECT_EQ(Summarise({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(Summarise({7}).median, 7);
}

TEST(Measured, ASpeedIsHighestWhereTheTimeIsLeast) {
  const Measured speed = PerSecond(100, Summarise({10, 20, 50}));
  EXPECT_EQ(speed.low, 2);
  EXPECT_EQ(speed.median, 5);
  EXPECT_EQ(speed.high, 10);
  EXPECT_EQ(PerSecond(60, Summarise({10, 20, 30})).mean, 3);
  EXPECT_EQ(PerSecond(100, {}).n, 0);
}

TEST(Measured, IsWrittenWithItsSpreadWhereThereIsOne) {
  EXPECT_EQ(Format({.median = 1234, .low = 1000, .high = 2000, .n = 3}), "1234 (1000-2000)");
  EXPECT_EQ(Format({.median = 2.5e9, .low = 2e9, .high = 3e9, .n = 3}, 1e9), "2.5 (2-3)");
  EXPECT_EQ(Format({.median = 7, .low = 7, .high = 7, .n = 1}), "7");
  EXPECT_EQ(Format({}), "-");
}

}  // namespace
}  // namespace longheads
