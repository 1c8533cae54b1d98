#include "report/sweep_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/cores.h"
#include "eval/journal.h"
#include "report/chart.h"

namespace longheads {
namespace {

ChartPoint PointOf(const SweepRow& row, const Measured& speed) {
  ChartPoint point{.x = static_cast<double>(row.length), .y = speed.median};
  if (speed.n > 1) point.interval = {speed.low, speed.high};
  return point;
}

LineChart EmptyChart(const std::vector<SweepRow>& rows, std::string title, std::string y_label) {
  std::set<int64_t> lengths;
  for (const SweepRow& row : rows) lengths.insert(row.length);
  LineChart chart{.title = std::move(title),
                  .x_label = "length of the prompt (tokens)",
                  .y_label = std::move(y_label),
                  .x_names = {},
                  .xs = {},
                  .describe = fmt::format("Measured on {}. ", ProcessorName()),
                  .lines = {}};
  for (const int64_t length : lengths) {
    chart.xs.push_back(static_cast<double>(length));
    chart.x_names.push_back(FormatLength(length));
  }
  return chart;
}

}  // namespace

std::vector<SweepChart> SweepCharts(const std::vector<SweepRow>& rows, const SweepSetup& setup) {
  std::vector<SweepChart> files;
  const auto add = [&](const char* name, const char* what, const char* y_label, const auto& point_of) {
    LineChart chart = EmptyChart(rows, fmt::format("{}: {}", setup.model, what), y_label);
    for (const SweepRow& row : rows) {
      const std::optional<ChartPoint> point = point_of(row);
      if (!point) continue;
      auto line = std::ranges::find(chart.lines, row.attention, &ChartLine::name);
      if (line == chart.lines.end()) {
        line = chart.lines.insert(line, {.name = row.attention, .points = {}});
      }
      line->points.push_back(*point);
    }
    const std::vector<LineChart> charts = SplitLines(std::move(chart));
    for (std::size_t i = 0; i < charts.size(); ++i) {
      files.push_back({.name = PartName(fmt::format("sweep-{}", name), i, charts.size()) + ".svg",
                       .drawing = DrawLines(charts[i]).Standalone()});
    }
  };
  add("prefill", "prefill speed", "tokens/s: median, least to most",
      [](const SweepRow& row) { return std::optional(PointOf(row, PrefillSpeed(row))); });
  add("decode", "decode speed behind the prompt", "tokens/s: median, least to most", [](const SweepRow& row) {
    return row.decode.n == 0 ? std::nullopt : std::optional(PointOf(row, DecodeSpeed(row)));
  });
  add("memory", "peak memory of the process", "GiB", [](const SweepRow& row) {
    return std::optional(ChartPoint{.x = static_cast<double>(row.length),
                                    .y = static_cast<double>(row.peak_memory) / (1 << 30)});
  });
  return files;
}

}  // namespace longheads
