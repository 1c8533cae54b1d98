#include "base/bytes.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

TEST(Checked, RefusesOverflow) {
  EXPECT_EQ(CheckedMul(3, 4), 12u);
  EXPECT_FALSE(CheckedMul(uint64_t{1} << 40, uint64_t{1} << 24));
  EXPECT_FALSE(CheckedAdd(~uint64_t{0}, 1));
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(uint64_t{3} << 30), "3.0 GiB");
}

TEST(ParseCount, ReadsUnitsAndRefusesTheRest) {
  EXPECT_EQ(*ParseCount("4k"), 4096);
  EXPECT_EQ(*ParseCount("12"), 12);
  EXPECT_EQ(*ParseCount("1M"), 1048576);
  for (const char* bad : {"", "k", "-1", "4kk", "4x", "99999999999999999999", "9999999999m", " 4"}) {
    EXPECT_FALSE(ParseCount(bad)) << bad;
  }
}

}  // namespace
}  // namespace longheads
