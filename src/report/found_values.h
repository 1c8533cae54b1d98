// What else than the score a part's samples found, by name: means by method and column, as tables, and which
// of them are series that go over layers or depths.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/results.h"

namespace longheads {

inline constexpr const char* kSecondsPerSample = "seconds per sample";

struct FoundValues {
  // Of measures that stand alone, with kSecondsPerSample as the last; numbers without coordinates and names.
  std::vector<std::string> names;
  // layer_0, layer_1, ...: by what comes before the number. Three of them at least.
  struct Series {
    std::string name;
    std::vector<int64_t> numbers;  // ascending
  };
  std::vector<Series> series;
};
FoundValues ValuesOf(const Experiment& experiment);

// A line of a table: a method's samples in one of the columns of the score's table.
struct FoundRow {
  std::string method;
  Json column;                                   // null: none
  std::vector<const Observation*> observations;  // that did not fail; one at least
};
std::vector<FoundRow> RowsOf(const Experiment& experiment, const std::string& columns);

// The mean of those that have it.
std::optional<double> MeanOf(const std::vector<const Observation*>& observations, const std::string& name);

}  // namespace longheads
