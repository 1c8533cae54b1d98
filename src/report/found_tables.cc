#include "report/found_tables.h"

#include <fmt/format.h>

#include <algorithm>

namespace longheads {
namespace {

std::string NumberText(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : "\u2013";
}

std::string NameOf(const FoundValues::Series& series, int64_t number) {
  return fmt::format("{}_{}", series.name, number);
}

// Methods by columns.
TableRows OneValueTable(const std::vector<FoundRow>& found, const std::string& columns,
                        const std::string& name) {
  TableRows rows = {{{.text = name}}};
  std::vector<Json> values;
  for (const FoundRow& row : found) {
    if (std::ranges::find(values, row.column) == values.end()) values.push_back(row.column);
  }
  std::ranges::stable_sort(values, [](const Json& a, const Json& b) {
    return a.is_number() && b.is_number() && a.get<double>() < b.get<double>();
  });
  for (const Json& value : values) {
    rows[0].push_back({.text = columns.empty() ? "all" : CellName(columns, value)});
  }
  for (const FoundRow& row : found) {
    if (rows.size() == 1 || rows.back()[0].text != row.method) {
      rows.push_back({{.text = row.method}});
      rows.back().resize(values.size() + 1, {.text = "\u2013"});
    }
    const auto at = static_cast<std::size_t>(std::ranges::find(values, row.column) - values.begin());
    rows.back()[at + 1].text = NumberText(MeanOf(row.observations, name));
  }
  return rows;
}

}  // namespace

FoundTable ValuesTable(const Experiment& experiment, const std::vector<FoundRow>& found,
                       const std::string& columns, const std::vector<std::string>& names) {
  if (names.size() == 1) return {.rows = OneValueTable(found, columns, names[0])};
  TableRows rows = {{{.text = "method"}}};
  if (!columns.empty()) rows[0].push_back({.text = columns});
  rows[0].push_back({.text = experiment.measure.name});
  for (const std::string& name : names) rows[0].push_back({.text = name});
  for (const FoundRow& row : found) {
    rows.push_back({{.text = row.method}});
    if (!columns.empty()) rows.back().push_back({.text = CellName(columns, row.column)});
    rows.back().push_back({.text = NumberText(EstimateOf(experiment, row.observations).value)});
    for (const std::string& name : names) {
      rows.back().push_back({.text = NumberText(MeanOf(row.observations, name))});
    }
  }
  return {.rows = std::move(rows), .n_names = columns.empty() ? std::size_t{1} : std::size_t{2}};
}

TableRows SeriesTable(const std::vector<FoundRow>& found, const std::string& columns,
                      const FoundValues::Series& series) {
  TableRows rows = {{{.text = series.name}}};
  for (const FoundRow& row : found) {
    rows[0].push_back(
        {.text = row.method, .small = columns.empty() ? "" : columns + " " + CellName(columns, row.column)});
  }
  for (const int64_t number : series.numbers) {
    rows.push_back({{.text = std::to_string(number)}});
    for (const FoundRow& row : found) {
      rows.back().push_back({.text = NumberText(MeanOf(row.observations, NameOf(series, number)))});
    }
  }
  return rows;
}

void AddValuesCsv(const Part& part, const std::vector<FoundRow>& found, const std::string& columns,
                  const FoundValues& all, std::vector<std::vector<std::string>>& csv) {
  std::vector<std::string> names = all.names;
  for (const FoundValues::Series& series : all.series) {
    for (const int64_t number : series.numbers) names.push_back(NameOf(series, number));
  }
  if (csv.empty()) {
    csv.push_back({"attn"});
    for (const auto& item : part.cell.items()) csv[0].push_back(item.key());
    if (!columns.empty()) csv[0].push_back(columns);
    csv[0].emplace_back("n");
    csv[0].insert(csv[0].end(), names.begin(), names.end());
  }
  for (const FoundRow& row : found) {
    csv.push_back({row.method});
    for (const auto& item : part.cell.items()) csv.back().push_back(CellText(item.value()));
    if (!columns.empty()) csv.back().push_back(CellText(row.column));
    csv.back().push_back(std::to_string(row.observations.size()));
    for (const std::string& name : names) {
      const std::optional<double> mean = MeanOf(row.observations, name);
      csv.back().push_back(mean ? CsvNumber(*mean) : "");
    }
  }
}

LineChart LengthChart(const std::string& title, const std::string& y_label,
                      const std::vector<Json>& lengths) {
  LineChart chart{.title = title,
                  .x_label = "length of the text (tokens)",
                  .y_label = y_label,
                  .x_names = {},
                  .xs = {},
                  .describe = {},
                  .lines = {}};
  for (const Json& length : lengths) {
    if (!length.is_number()) continue;
    chart.xs.push_back(length.get<double>());
    chart.x_names.push_back(CellName("length", length));
  }
  return chart;
}

LineChart ValueChart(const std::string& title, const std::vector<FoundRow>& found, const std::string& name,
                     const std::vector<Json>& lengths) {
  LineChart chart = LengthChart(title, name, lengths);
  for (const FoundRow& row : found) {
    const std::optional<double> mean = MeanOf(row.observations, name);
    if (!row.column.is_number() || !mean) continue;
    if (chart.lines.empty() || chart.lines.back().name != row.method) {
      chart.lines.push_back({.name = row.method, .points = {}});
    }
    chart.lines.back().points.push_back({.x = row.column.get<double>(), .y = *mean});
  }
  return chart;
}

LineChart SeriesChart(const std::string& title, const std::vector<FoundRow>& found,
                      const std::string& columns, const FoundValues::Series& series) {
  LineChart chart{.title = title,
                  .x_label = series.name,
                  .y_label = "",
                  .x_names = {},
                  .xs = {},
                  .describe = {},
                  .lines = {}};
  for (const int64_t number : series.numbers) {
    chart.xs.push_back(static_cast<double>(number));
    chart.x_names.push_back(std::to_string(number));
  }
  for (const FoundRow& row : found) {
    ChartLine line{.name = row.method, .points = {}};
    if (!columns.empty()) line.name += fmt::format(", {} {}", columns, CellName(columns, row.column));
    for (const int64_t number : series.numbers) {
      const std::optional<double> mean = MeanOf(row.observations, NameOf(series, number));
      if (mean) line.points.push_back({.x = static_cast<double>(number), .y = *mean});
    }
    if (!line.points.empty()) chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace longheads
