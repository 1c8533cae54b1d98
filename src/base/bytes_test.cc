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

TEST(ParseBytes, ReadsSizesAsPeopleWriteThem) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("64m"), uint64_t{64} << 20);
  EXPECT_EQ(*ParseBytes("64 MiB"), uint64_t{64} << 20);
  EXPECT_EQ(*ParseBytes("1.5G"), uint64_t{3} << 29);
  EXPECT_EQ(*ParseBytes("2TB"), uint64_t{2} << 40);
  EXPECT_EQ(*ParseBytes(FormatBytes(uint64_t{3} << 30)), uint64_t{3} << 30);
  for (const char* bad : {"", "m", "-1", "4mm", "4x", "nan", "inf", "1e300", "99999999999999999999t", " 4",
                          "4m ", "0.5", "0.0001k"}) {
    EXPECT_FALSE(ParseBytes(bad)) << bad;
  }
}

}  // namespace
}  // namespace longheads
