#include "report/kernel_chart.h"

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

}  // namespace
}  // namespace longheads
