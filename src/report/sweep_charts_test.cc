#include "report/sweep_charts.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace longheads {
namespace {

SweepRow Row(const std::string& attention, int64_t length, int n_decoded = 4) {
  SweepRow row{.attention = attention, .length = length};
  row.prefill = Summarise({static_cast<double>(length) / 100, static_cast<double>(length) / 200});
  if (n_decoded > 0) row.decode = Summarise(std::vector<double>(static_cast<std::size_t>(n_decoded), 0.02));
  row.peak_memory = uint64_t{3} << 30;
  return row;
}

int Count(const std::string& text, const std::string& words) {
  int n = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++n;
  return n;
}

std::vector<std::string> Names(const std::vector<SweepChart>& charts) {
  std::vector<std::string> names;
  for (const SweepChart& chart : charts) names.push_back(chart.name);
  return names;
}

TEST(SweepCharts, HaveALineForEachMethodAndSayItsNumbers) {
  const auto charts =
      SweepCharts({Row("full", 512), Row("full", 4096), Row("longheads", 512), Row("longheads", 4096)},
                  {.model = "tiny <b>.gguf"});
  ASSERT_EQ(Names(charts),
            (std::vector<std::string>{"sweep-prefill.svg", "sweep-decode.svg", "sweep-memory.svg"}));
  for (const SweepChart& chart : charts) {
    EXPECT_EQ(Count(chart.drawing, "tiny <b>"), 0);
    EXPECT_GE(Count(chart.drawing, ">longheads<"), 1) << chart.name;
    EXPECT_GE(Count(chart.drawing, ">4k<"), 1) << chart.name;
  }
  // 512 tokens in 5.12 s and 2.56 s: 100 and 200 a second, the median of the seconds 3.84.
  EXPECT_NE(charts[0].drawing.find("full: 512 133.3; 4k 133.3;"), std::string::npos) << charts[0].drawing;
  EXPECT_NE(charts[1].drawing.find("longheads: 512 50; 4k 50;"), std::string::npos);
  EXPECT_NE(charts[0].drawing.find("Measured on "), std::string::npos);
  EXPECT_NE(charts[2].drawing.find("full: 512 3; 4k 3;"), std::string::npos);
}

TEST(SweepCharts, LeaveOutWhatWasNotMeasured) {
  EXPECT_TRUE(SweepCharts({}, {}).empty());
  EXPECT_EQ(Names(SweepCharts({Row("full", 512, 0)}, {})),
            (std::vector<std::string>{"sweep-prefill.svg", "sweep-memory.svg"}));
}

TEST(SweepCharts, OfManyMethodsAreSeveral) {
  std::vector<SweepRow> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(Row("method" + std::to_string(i), 512, 0));
  EXPECT_EQ(Names(SweepCharts(rows, {})),
            (std::vector<std::string>{"sweep-prefill-1.svg", "sweep-prefill-2.svg", "sweep-memory-1.svg",
                                      "sweep-memory-2.svg"}));
}

}  // namespace
}  // namespace longheads
