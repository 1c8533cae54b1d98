#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace longheads {
namespace {

constexpr double kLeft = 62, kTop = 40, kPlotWidth = 640, kPlotHeight = 280;
constexpr std::array<const char*, 3> kDashes = {"", "7 3", "2 3"};

std::string Colour(std::size_t line) { return fmt::format("var(--s{})", line % 8); }
// Beyond eight lines colours come again, with other dashes and shapes.
std::string Dash(std::size_t line) { return kDashes[line / 8 % kDashes.size()]; }
int Shape(std::size_t line) { return static_cast<int>((line + line / 8) % 5); }

// Steps of 1, 2 or 5 times a power of ten, about so many of them.
std::vector<double> RoundTicks(double low, double high, int about) {
  const double raw = (high - low) / about;
  if (!(raw > 0) || !std::isfinite(raw)) return {low};
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double k : {1.0, 2.0, 5.0, 10.0}) {
    step = k * power;
    if (step >= raw) break;
  }
  std::vector<double> ticks;
  // 0.0: of -0 it makes 0.
  for (double tick = std::ceil(low / step - 1e-9) + 0.0; tick * step <= high * (1 + 1e-9); ++tick) {
    ticks.push_back(tick * step);
  }
  return ticks;
}

// The y axis: its range, ticks, and where a value lies.
class Axis {
 public:
  explicit Axis(const LineChart& chart) : share_(chart.share), log_(chart.log_y) {
    double least = std::numeric_limits<double>::infinity(), greatest = -least;
    for (const ChartLine& line : chart.lines) {
      for (const ChartPoint& point : line.points) {
        const auto [low, high] = point.interval.value_or(std::pair(point.y, point.y));
        least = std::min(least, std::min(low, point.y));
        greatest = std::max(greatest, std::max(high, point.y));
      }
    }
    if (!(least <= greatest)) least = 0, greatest = 1;
    if (share_) {
      low_ = 0, high_ = 1;
      ticks_ = {0, 0.2, 0.4, 0.6, 0.8, 1};
      return;
    }
    if (log_) {
      greatest = std::min(greatest, 4 * least);
      low_ = 0.95 * least, high_ = std::max(1.05 * greatest, 1.1 * least);
    } else {
      low_ = std::min(0.0, least), high_ = greatest > low_ ? greatest + 0.05 * (greatest - low_) : low_ + 1;
    }
    ticks_ = RoundTicks(low_, high_, 5);
  }

  const std::vector<double>& ticks() const { return ticks_; }
  bool beyond(double y) const { return !(y <= high_); }
  double Y(double y) const {
    const double at = std::clamp(y, low_, high_);
    const double part = log_ ? std::log(at / low_) / std::log(high_ / low_) : (at - low_) / (high_ - low_);
    return kTop + kPlotHeight * (1 - part);
  }
  std::string Name(double y) const {
    return share_ ? fmt::format("{:.0f}%", 100 * y) : fmt::format("{:.4g}", y);
  }

 private:
  bool share_;
  bool log_;
  double low_ = 0;
  double high_ = 1;
  std::vector<double> ticks_;
};

// Names below the plot, in as many columns as there is room for; gives the height.
double Legend(const LineChart& chart, double top, Svg* svg) {
  std::size_t longest = 8;
  for (const ChartLine& line : chart.lines) longest = std::max(longest, line.name.size());
  const double width = 52 + 6.6 * static_cast<double>(longest);
  const auto n_columns =
      std::max<std::size_t>(1, static_cast<std::size_t>((kPlotWidth + kLeft - 16) / width));
  const std::size_t n_rows = (chart.lines.size() + n_columns - 1) / n_columns;
  for (std::size_t i = 0; svg != nullptr && i < chart.lines.size(); ++i) {
    const double x = 16 + static_cast<double>(i / n_rows) * width;
    const double y = top + 16 * static_cast<double>(i % n_rows);
    svg->Line(x, y, x + 30, y, Colour(i), 2, Dash(i));
    svg->Marker(Shape(i), x + 15, y, 3.5, Colour(i));
    svg->Text(x + 36, y + 4, chart.lines[i].name, {.size = 11.5});
  }
  return 16 * static_cast<double>(n_rows);
}

}  // namespace

Svg DrawLines(const LineChart& chart) {
  const Axis axis(chart);
  const double legend_top = kTop + kPlotHeight + 58;
  const double width = kLeft + kPlotWidth + 20;
  Svg svg(width, legend_top + Legend(chart, 0, nullptr) + 4, chart.title, chart.describe);
  svg.Text(kLeft, 20, chart.title, {.size = 13, .bold = true});

  const double n = static_cast<double>(std::max<std::size_t>(chart.xs.size(), 1));
  const auto x_of = [&](double x) {
    const auto at = std::ranges::find(chart.xs, x) - chart.xs.begin();
    return kLeft + (static_cast<double>(at) + 0.5) / n * kPlotWidth;
  };
  for (const double tick : axis.ticks()) {
    const double y = axis.Y(tick);
    svg.Line(kLeft, y, kLeft + kPlotWidth, y, "var(--line)");
    svg.Text(kLeft - 7, y + 4, axis.Name(tick), {.anchor = "end", .size = 11});
  }
  for (std::size_t i = 0; i < chart.xs.size(); ++i) {
    const double x = x_of(chart.xs[i]);
    svg.Line(x, kTop + kPlotHeight, x, kTop + kPlotHeight + 4, "var(--ink)");
    svg.Text(x, kTop + kPlotHeight + 18, chart.x_names[i], {.anchor = "middle", .size = 11});
  }
  svg.Line(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, "var(--ink)");
  svg.Text(kLeft + kPlotWidth / 2, kTop + kPlotHeight + 36, chart.x_label, {.anchor = "middle"});
  svg.Text(15, kTop + kPlotHeight / 2, chart.y_label, {.anchor = "middle", .turn = -90});

  // Side by side, so that intervals at one length do not cover each other.
  const double n_lines = static_cast<double>(std::max<std::size_t>(chart.lines.size(), 1));
  const double step = std::min(6.0, 0.7 * kPlotWidth / n / n_lines);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    const double shift = (static_cast<double>(i) - (n_lines - 1) / 2) * step;
    std::vector<std::pair<double, double>> points;
    for (const ChartPoint& point : chart.lines[i].points) {
      points.emplace_back(x_of(point.x) + shift, axis.Y(point.y));
    }
    svg.Polyline(points, Colour(i), 2, Dash(i));
    for (std::size_t p = 0; p < points.size(); ++p) {
      const ChartPoint& point = chart.lines[i].points[p];
      const auto [x, y] = points[p];
      if (point.interval && !axis.beyond(point.interval->first)) {
        svg.Line(x, axis.Y(point.interval->first), x, axis.Y(point.interval->second), Colour(i), 1.2);
      }
      svg.Marker(axis.beyond(point.y) ? 5 : Shape(i), x, y, 3.5, Colour(i));
    }
  }
  Legend(chart, legend_top, &svg);
  return svg;
}

Svg DrawBars(const BarChart& chart) {
  constexpr double kBegin = 48, kRow = 18, kBar = 11, kWidth = 420, kAxis = 34, kCharacter = 6.6;
  std::size_t longest_name = 8, longest_text = 4;
  double height = kBegin;
  for (const BarSection& section : chart.sections) {
    for (const Bar& bar : section.bars) {
      longest_name = std::max(longest_name, bar.name.size());
      if (bar.value) longest_text = std::max(longest_text, bar.text.size());
    }
    height += kRow * static_cast<double>(section.bars.size()) + kAxis;
  }
  const double left = 24 + kCharacter * static_cast<double>(longest_name);
  Svg svg(left + kWidth + 30 + kCharacter * static_cast<double>(longest_text), height, chart.title,
          chart.describe);
  svg.Text(16, 20, chart.title, {.size = 13, .bold = true});
  double y = kBegin;
  for (const BarSection& section : chart.sections) {
    double most = section.ticks.empty() ? 0 : section.ticks.back();
    for (const Bar& bar : section.bars) {
      if (bar.value) most = std::max(most, bar.interval ? bar.interval->second : *bar.value);
    }
    if (!(most > 0)) most = 1;
    const auto x_of = [&](double value) { return left + kWidth * value / most; };
    const double bottom = y + kRow * static_cast<double>(section.bars.size());
    for (const double tick : section.ticks.empty() ? RoundTicks(0, most, 5) : section.ticks) {
      svg.Line(x_of(tick), y - 4, x_of(tick), bottom, "var(--line)");
      svg.Text(x_of(tick), bottom + 16,
               section.share ? fmt::format("{:.0f}%", 100 * tick) : fmt::format("{:.4g}", tick),
               {.anchor = "middle", .size = 11});
    }
    for (const Bar& bar : section.bars) {
      svg.Text(left - 8, y + 10, bar.name, {.anchor = "end", .size = 11});
      if (bar.value) {
        const auto [low, high] = bar.interval.value_or(std::pair(*bar.value, *bar.value));
        svg.Rect(left, y, x_of(*bar.value) - left, kBar, "var(--s0)");
        svg.Line(x_of(low), y + kBar / 2, x_of(high), y + kBar / 2, "var(--ink)", 1.5);
        svg.Text(x_of(std::max(*bar.value, high)) + 6, y + 10, bar.text, {.size = 11});
      } else {
        svg.Text(left + 6, y + 10, bar.text, {.size = 11, .fill = "var(--needle)"});
      }
      y += kRow;
    }
    y += kAxis;
  }
  return svg;
}

std::vector<LineChart> SplitLines(LineChart chart) {
  constexpr std::size_t kMostLines = 6;
  const std::vector<ChartLine> all = std::move(chart.lines);
  const std::string title = chart.title, describe = chart.describe;
  const std::size_t n_charts = (all.size() + kMostLines - 1) / kMostLines;
  std::vector<LineChart> charts;
  for (std::size_t i = 0; i < n_charts; ++i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * all.size() / n_charts);
    const auto end = all.begin() + static_cast<std::ptrdiff_t>((i + 1) * all.size() / n_charts);
    chart.lines.assign(begin, end);
    if (n_charts > 1) chart.title = fmt::format("{} ({} of {})", title, i + 1, n_charts);
    chart.describe = describe;
    for (const ChartLine& line : chart.lines) {
      chart.describe += line.name + ":";
      for (const ChartPoint& point : line.points) {
        const auto x = std::ranges::find(chart.xs, point.x) - chart.xs.begin();
        chart.describe += fmt::format(" {} {:.4g};", chart.x_names[static_cast<std::size_t>(x)],
                                      chart.share ? 100 * point.y : point.y);
      }
      chart.describe += "\n";
    }
    charts.push_back(chart);
  }
  return charts;
}

std::string PartName(const std::string& name, std::size_t i, std::size_t n) {
  return n > 1 ? fmt::format("{}-{}", name, i + 1) : name;
}

std::string PercentText(double share) {
  constexpr double kRounding = 1e-9;  // of a mean, or of a bound of its interval
  const std::string whole = fmt::format("{:.0f}", 100 * share);
  const bool none = whole == "0" && share > kRounding, all = whole == "100" && share < 1 - kRounding;
  if (!none && !all) return whole;
  const std::string tenths = fmt::format("{:.1f}", 100 * share);
  if (tenths == "0.0") return "<0.1";
  return tenths == "100.0" ? ">99.9" : tenths;
}

std::string NeedleColour(double share) {
  constexpr std::array<std::array<int, 3>, 3> kStops = {
      {{0xF0, 0x49, 0x6E}, {0xEB, 0xB8, 0x39}, {0x0C, 0xD7, 0x9F}}};
  const double at = 2 * std::clamp(share, 0.0, 1.0);
  const std::size_t from = at < 1 ? 0 : 1;
  const double part = at - static_cast<double>(from);
  std::array<int, 3> mixed{};
  for (std::size_t i = 0; i < 3; ++i) {
    mixed[i] =
        static_cast<int>(std::lround(kStops[from][i] + part * (kStops[from + 1][i] - kStops[from][i])));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

Svg DrawHeatMap(const HeatMap& map) {
  // Pages show maps in columns of one width: one of a single length is not to be blown up, or cut, in them.
  constexpr double kNames = 62, kAbove = 34, kLeastWidth = 340;
  const double n_x = static_cast<double>(std::max<std::size_t>(map.x_names.size(), 1));
  const double n_y = static_cast<double>(map.y_names.size());
  const double cell_width = std::clamp(420 / n_x, 14.0, 96.0);
  const double cell_height = std::clamp(240 / std::max(n_y, 1.0), 12.0, 26.0);
  const double width = std::max(
      {kNames + n_x * cell_width + 12, kLeastWidth, 16 + 8.6 * static_cast<double>(map.title.size())});
  const double bottom = kAbove + n_y * cell_height;
  Svg svg(width, bottom + 44, map.title, map.describe);
  svg.Text(16, 18, map.title, {.bold = true});
  // Every so many names, where they would touch.
  const auto every = static_cast<std::size_t>(std::ceil(34 / cell_width));
  for (std::size_t y = 0; y < map.values.size(); ++y) {
    const double top = kAbove + static_cast<double>(y) * cell_height;
    svg.Text(kNames - 6, top + cell_height / 2 + 4, map.y_names[y], {.anchor = "end", .size = 11});
    for (std::size_t x = 0; x < map.values[y].size(); ++x) {
      const double left = kNames + static_cast<double>(x) * cell_width;
      const std::optional<double>& value = map.values[y][x];
      if (!value) {
        svg.Outline(left + 0.5, top + 0.5, cell_width - 1, cell_height - 1, "var(--line)", 1);
        continue;
      }
      svg.Rect(left, top, cell_width - 1, cell_height - 1, NeedleColour(*value));
      if (cell_width < 24) continue;
      svg.Text(left + cell_width / 2, top + cell_height / 2 + 4, PercentText(*value),
               {.anchor = "middle", .size = 11, .fill = "#16191d"});  // on these colours in any light
    }
  }
  for (std::size_t x = 0; x < map.x_names.size(); x += every) {
    svg.Text(kNames + (static_cast<double>(x) + 0.5) * cell_width, bottom + 15, map.x_names[x],
             {.anchor = "middle", .size = 11});
  }
  svg.Text(kNames + n_x * cell_width / 2, bottom + 33, map.x_label, {.anchor = "middle"});
  svg.Text(14, kAbove + n_y * cell_height / 2, map.y_label, {.anchor = "middle", .turn = -90});
  return svg;
}

}  // namespace longheads
