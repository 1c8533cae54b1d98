// What samples found beside their scores (found_values.h) laid out: as tables, as curves by length, as curves
// along a series.
#pragma once

#include <string>
#include <vector>

#include "report/chart.h"
#include "report/found_values.h"
#include "report/html_table.h"

namespace longheads {

struct FoundTable {
  TableRows rows;
  std::size_t n_names = 1;  // cells of each row that name it
};
// A row for each method and column: the score, and the values of these names. Of a single one methods by
// columns.
FoundTable ValuesTable(const Experiment& experiment, const std::vector<FoundRow>& found,
                       const std::string& columns, const std::vector<std::string>& names);
// A row for each of the series' numbers.
TableRows SeriesTable(const std::vector<FoundRow>& found, const std::string& columns,
                      const FoundValues::Series& series);
// Rows for `found`, before the first the header. `all` are the whole experiment's, the same for all parts.
void AddValuesCsv(const Part& part, const std::vector<FoundRow>& found, const std::string& columns,
                  const FoundValues& all, std::vector<std::vector<std::string>>& csv);

// Without lines yet.
LineChart LengthChart(const std::string& title, const std::string& y_label, const std::vector<Json>& lengths);
LineChart ValueChart(const std::string& title, const std::vector<FoundRow>& found, const std::string& name,
                     const std::vector<Json>& lengths);
LineChart SeriesChart(const std::string& title, const std::vector<FoundRow>& found,
                      const std::string& columns, const FoundValues::Series& series);

}  // namespace longheads
