#include "report/machine_charts.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

TEST(KernelChart, ShowsShareSpreadAndFailure) {
  const std::string drawing =
      KernelChart({{.name = "int8-token/avx2/q8_0",
                    .unit = "B/s",
                    .rate = {.median = 8e9, .low = 7e9, .high = 9e9, .n = 5, .mean = 8e9},
                    .limit = 1e10,
                    .failed = {}},
                   {.name = "attend/<avx2>", .unit = {}, .failed = "gives 2 where ref gives 1"}});
  EXPECT_NE(drawing.find(">int8-token/avx2/q8_0</text>"), std::string::npos);
  EXPECT_NE(drawing.find(">80%</text>"), std::string::npos);
  EXPECT_NE(drawing.find(">attend/&lt;avx2&gt;</text>"), std::string::npos);
  EXPECT_NE(drawing.find("gives 2 where ref gives 1"), std::string::npos);
  // One bar: beside the ground, a rectangle 80% as wide as the plot.
  EXPECT_NE(drawing.find("width=\"336\" height=\"11\""), std::string::npos) << drawing;
}

TEST(LimitsChart, ShowsWhatWasMeasured) {
  const Measured read = {.median = 20e9, .low = 18e9, .high = 21e9, .n = 3, .mean = 20e9};
  const Measured f32 = {.median = 200e9, .low = 200e9, .high = 200e9, .n = 3, .mean = 200e9};
  const std::string drawing = LimitsChart({.threads = 2, .read = read, .f32 = f32});
  EXPECT_NE(drawing.find(">read from memory</text>"), std::string::npos);
  EXPECT_NE(drawing.find(">20 (18-21) GB/s</text>"), std::string::npos) << drawing;
  EXPECT_NE(drawing.find(">200 (200-200) GOP/s</text>"), std::string::npos) << drawing;
  EXPECT_EQ(drawing.find("bf16"), std::string::npos);
  EXPECT_EQ(drawing.find("disk"), std::string::npos);
  // Each unit has its axis: the bars are 20/21 and all of the plot's width.
  EXPECT_NE(drawing.find("width=\"400\" height=\"11\""), std::string::npos) << drawing;
  EXPECT_NE(drawing.find("width=\"420\" height=\"11\""), std::string::npos) << drawing;
}

}  // namespace
}  // namespace longheads
