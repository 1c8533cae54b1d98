// Charts of what experiments found, as drawings: lines over a length with intervals, and maps of a share over
// length and depth. The numbers come from results.h, or from a sweep (sweep_charts.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/svg.h"

namespace longheads {

struct ChartPoint {
  double x = 0;
  double y = 0;
  std::optional<std::pair<double, double>> interval = {};
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // x ascending
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<std::string> x_names;  // of each x that some line has, ascending; the axis has even steps
  std::vector<double> xs;
  bool share = false;    // y is 0 .. 1, shown in percent
  bool log_y = false;    // y > 0
  std::string describe;  // what a reader without the picture gets beside the title
  std::vector<ChartLine> lines;
};

// With more lines than can be told apart, several charts of some each; each describes its numbers.
std::vector<LineChart> SplitLines(LineChart chart);
// The name of the i-th of n: NAME, or of several NAME-1, NAME-2, ...
std::string PartName(const std::string& name, std::size_t i, std::size_t n);

// Lines differ in colour, in the shape of their points and in their dashes. Values beyond four times the
// lowest one on a logarithmic axis, where nothing is left to compare, are rings at the upper edge.
Svg DrawLines(const LineChart& chart);

struct Bar {
  std::string name;
  std::optional<double> value = {};  // >= 0; nothing: there is none to be drawn
  std::optional<std::pair<double, double>> interval = {};
  std::string text;  // behind the bar, or in its place
};

struct BarSection {
  std::vector<Bar> bars;
  std::vector<double> ticks = {};  // none: round ones, for the largest value
  bool share = false;              // shown in percent
};

struct BarChart {
  std::string title;
  std::string describe;
  std::vector<BarSection> sections;  // one below the other, each with an axis of its own, from 0
};

// Lying bars, with their intervals as lines on them.
Svg DrawBars(const BarChart& chart);

struct HeatMap {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<std::string> x_names;
  std::vector<std::string> y_names;
  // [y][x], 0 .. 1; nothing: not measured.
  std::vector<std::vector<std::optional<double>>> values;
  std::string describe;
};

// Red, amber, green as needle maps are, with the percentage in each cell, since not everybody tells these
// apart.
Svg DrawHeatMap(const HeatMap& map);

// A share in whole percents: "85". One decimal where that would say all or nothing of what is neither:
// "99.5"; and where that says it too, ">99.9" or "<0.1".
std::string PercentText(double share);

// The colour of a share: #F0496E at 0, #EBB839 at one half, #0CD79F at 1.
std::string NeedleColour(double share);

}  // namespace longheads
