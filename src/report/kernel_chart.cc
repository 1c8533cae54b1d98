#include "report/kernel_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cores.h"
#include "report/chart.h"
#include "report/svg.h"

namespace longheads {

std::string KernelChart(const std::vector<KernelRow>& rows) {
  constexpr double kTop = 48, kRow = 18, kBar = 11, kPlotWidth = 420, kCharacter = 6.6;
  std::size_t longest = 8;
  double most = 1;
  for (const KernelRow& row : rows) {
    longest = std::max(longest, row.name.size());
    if (row.limit > 0) most = std::max(most, row.rate.high / row.limit);
  }
  const double left = 24 + kCharacter * static_cast<double>(longest);
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  const auto x_of = [&](double share) { return left + kPlotWidth * share / most; };
  const std::string title = "kernels, as shares of what this machine does at most";
  Svg svg(left + kPlotWidth + 56, bottom + 34, title,
          fmt::format("Measured on {}. Bars end at the median of the repeats.", ProcessorName()));
  svg.Text(16, 20, title, {.size = 13, .bold = true});
  for (const double tick : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    svg.Line(x_of(tick), kTop - 4, x_of(tick), bottom, "var(--line)");
    svg.Text(x_of(tick), bottom + 16, fmt::format("{:.0f}%", 100 * tick), {.anchor = "middle", .size = 11});
  }
  double y = kTop;
  for (const KernelRow& row : rows) {
    svg.Text(left - 8, y + 10, row.name, {.anchor = "end", .size = 11});
    if (row.failed.empty() && row.limit > 0) {
      svg.Rect(left, y, x_of(row.share()) - left, kBar, "var(--s0)");
      svg.Line(x_of(row.rate.low / row.limit), y + kBar / 2, x_of(row.rate.high / row.limit), y + kBar / 2,
               "var(--ink)", 1.5);
      svg.Text(x_of(std::max(row.share(), row.rate.high / row.limit)) + 6, y + 10,
               PercentText(row.share()) + "%", {.size = 11});
    } else {
      svg.Text(left + 6, y + 10, row.failed.empty() ? "not measured" : row.failed,
               {.size = 11, .fill = "var(--needle)"});
    }
    y += kRow;
  }
  return svg.Standalone();
}

}  // namespace longheads
