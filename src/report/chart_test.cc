// Charts: colours, places and rings; and colours that are the page's.
#include "report/chart.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "report/assets.h"

namespace longheads {
namespace {

std::size_t Count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(NeedleColour, IsRedAmberGreen) {
  EXPECT_EQ(NeedleColour(0), "#f0496e");
  EXPECT_EQ(NeedleColour(0.5), "#ebb839");
  EXPECT_EQ(NeedleColour(1), "#0cd79f");
  EXPECT_EQ(NeedleColour(-1), "#f0496e");
  EXPECT_EQ(NeedleColour(2), "#0cd79f");
  EXPECT_EQ(NeedleColour(0.25), "#ee8154");  // half of the way, each channel
}

TEST(PercentText, SaysAllAndNothingOfNothingElse) {
  EXPECT_EQ(PercentText(0), "0");
  EXPECT_EQ(PercentText(1), "100");
  EXPECT_EQ(PercentText(1 - 1e-12), "100");  // but for roundings
  EXPECT_EQ(PercentText(0.854), "85");
  EXPECT_EQ(PercentText(0.994), "99");
  EXPECT_EQ(PercentText(0.9951), "99.5");
  EXPECT_EQ(PercentText(0.99949), "99.9");
  EXPECT_EQ(PercentText(0.9999), ">99.9");
  EXPECT_EQ(PercentText(0.0049), "0.5");
  EXPECT_EQ(PercentText(0.0001), "<0.1");
}

TEST(DrawHeatMap, HasACellForEachValueAndAnOutlineForNone) {
  const HeatMap map{.title = "full",
                    .x_label = "length",
                    .y_label = "depth",
                    .x_names = {"4k", "8k"},
                    .y_names = {"0", "1"},
                    .values = {{0.0, 1.0}, {0.5, std::nullopt}},
                    .describe = "words"};
  const std::string svg = DrawHeatMap(map).Standalone();
  EXPECT_EQ(Count(svg, "#f0496e"), 1u);
  EXPECT_EQ(Count(svg, "#0cd79f"), 1u);
  EXPECT_EQ(Count(svg, "#ebb839"), 1u);
  EXPECT_EQ(Count(svg, "fill=\"none\""), 1u);
  for (const char* const text :
       {">0</text>", ">50</text>", ">100</text>", ">4k</text>", ">8k</text>", ">length</text>"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_NE(svg.find("<desc>words</desc>"), std::string::npos);
}

LineChart Chart() {
  return {.title = "accuracy",
          .x_label = "length",
          .y_label = "%",
          .x_names = {"4k", "8k"},
          .xs = {4096, 8192},
          .share = true,
          .describe = "",
          .lines = {{"full", {{4096, 1.0, std::pair(0.8, 1.0)}, {8192, 0.0, std::pair(0.0, 0.2)}}},
                    {"longheads", {{8192, 0.5}}}}};
}

TEST(DrawLines, NamesEveryLineAndPoint) {
  const std::string svg = DrawLines(Chart()).Inline();
  EXPECT_EQ(Count(svg, "<polyline"), 2u);
  for (const char* const text :
       {">full</text>", ">longheads</text>", ">4k</text>", ">8k</text>", ">100%</text>", ">0%</text>"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_NE(svg.find("var(--s0)"), std::string::npos);
  EXPECT_NE(svg.find("var(--s1)"), std::string::npos);
}

TEST(DrawLines, WhatIsFarBeyondIsARingAtTheEdge) {
  LineChart chart = Chart();
  chart.share = false;
  chart.log_y = true;
  chart.lines = {{"a", {{4096, 10.0}, {8192, 11.0}}}, {"b", {{4096, 12.0}, {8192, 5000.0}}}};
  const std::string svg = DrawLines(chart).Inline();
  EXPECT_EQ(Count(svg, "fill=\"none\" stroke=\"var(--s1)\""), 2u);  // the line, and the ring
  EXPECT_EQ(Count(svg, "fill=\"none\" stroke=\"var(--s0)\""), 1u);
}

TEST(DrawLines, OfNothingAndOfOnePoint) {
  LineChart chart = Chart();
  chart.lines.clear();
  EXPECT_NE(DrawLines(chart).Inline().find("</svg>"), std::string::npos);
  chart.xs = {4096};
  chart.x_names = {"4k"};
  for (const bool log : {false, true}) {
    chart.share = false;
    chart.log_y = log;
    for (const double y : {3.0, 1e-9, 1e9}) {
      chart.lines = {{"a", {{4096, y}}}};
      const std::string svg = DrawLines(chart).Inline();
      EXPECT_EQ(svg.find("nan"), std::string::npos);
      EXPECT_EQ(svg.find("inf\""), std::string::npos);
    }
  }
}

// One length alone: the names of the axes and the title need more room than its cells.
TEST(DrawLines, TheAxisBeginsAtZeroWithoutASign) {
  const LineChart chart{.title = "t",
                        .x_label = "x",
                        .y_label = "y",
                        .x_names = {"1k"},
                        .xs = {1024},
                        .describe = {},
                        .lines = {{.name = "a", .points = {{.x = 1024, .y = 0.6}}}}};
  const std::string svg = DrawLines(chart).Standalone();
  EXPECT_EQ(svg.find(">-0<"), std::string::npos);
  EXPECT_NE(svg.find(">0<"), std::string::npos);
}

TEST(DrawHeatMap, HasRoomForItsNames) {
  const HeatMap map{.title = "self-extend,group=auto",
                    .x_label = "length (tokens)",
                    .y_label = "depth (%)",
                    .x_names = {"32k"},
                    .y_names = {"50"},
                    .values = {{1.0}},
                    .describe = ""};
  EXPECT_NE(DrawHeatMap(map).Inline().find("viewBox=\"0 0 340 "), std::string::npos);
}

// A file of its own has no page to take colours from; they are the page's on a light ground.
TEST(Svg, StandsAloneInThePagesColours) {
  Svg svg(10, 10, "t", "d");
  const char* const names[] = {"ink", "soft", "line", "ground", "needle", "s0", "s1",
                               "s2",  "s3",   "s4",   "s5",     "s6",     "s7"};
  const std::string css(assets::kPageCss);
  std::string expected;
  for (const char* const name : names) {
    svg.Rect(0, 0, 1, 1, fmt::format("var(--{})", name));
    const std::size_t at = css.find(fmt::format("--{}: ", name));
    ASSERT_NE(at, std::string::npos) << name;
    expected += fmt::format("<rect x=\"0\" y=\"0\" width=\"1\" height=\"1\" fill=\"{}\"/>\n",
                            css.substr(css.find('#', at), 7));
  }
  const std::string file = svg.Standalone();
  EXPECT_NE(file.find(expected), std::string::npos) << file;
  EXPECT_EQ(file.find("var("), std::string::npos);
}

}  // namespace
}  // namespace longheads
