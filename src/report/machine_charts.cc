#include "report/machine_charts.h"

#include <fmt/format.h>

#include "base/cores.h"
#include "report/chart.h"

namespace longheads {

std::string KernelChart(const std::vector<KernelRow>& rows) {
  BarSection shares = {.bars = {}, .ticks = {0, 0.25, 0.5, 0.75, 1}, .share = true};
  for (const KernelRow& row : rows) {
    if (row.failed.empty() && row.limit > 0) {
      shares.bars.push_back({.name = row.name,
                             .value = row.share(),
                             .interval = {{row.rate.low / row.limit, row.rate.high / row.limit}},
                             .text = PercentText(row.share()) + "%"});
    } else {
      shares.bars.push_back({.name = row.name, .text = row.failed.empty() ? "not measured" : row.failed});
    }
  }
  return DrawBars({.title = "kernels, as shares of what this machine does at most",
                   .describe =
                       fmt::format("Measured on {}. Bars end at the median of the repeats.", ProcessorName()),
                   .sections = {std::move(shares)}})
      .Standalone();
}

std::string LimitsChart(const MachineLimits& limits) {
  constexpr double kGiga = 1e9;
  const auto add = [](BarSection& section, const char* name, const Measured& measured, const char* unit) {
    if (measured.n == 0) return;
    section.bars.push_back({.name = name,
                            .value = measured.median / kGiga,
                            .interval = {{measured.low / kGiga, measured.high / kGiga}},
                            .text = fmt::format("{} {}", Format(measured, kGiga), unit)});
  };
  BarSection bytes, operations;
  add(bytes, "read from memory", limits.read, "GB/s");
  add(bytes, "read from disk", limits.disk, "GB/s");
  add(operations, "products in f32", limits.f32, "GOP/s");
  add(operations, "products in bf16", limits.bf16, "GOP/s");
  add(operations, "products in int8", limits.int8, "GOP/s");
  return DrawBars({.title = fmt::format("{}, {} threads", ProcessorName(), limits.threads),
                   .describe = "What this machine can do. Bars end at the median of the repeats.",
                   .sections = {std::move(bytes), std::move(operations)}})
      .Standalone();
}

}  // namespace longheads
