#include "report/found_values.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "eval/task_record.h"

namespace longheads {
namespace {

constexpr std::size_t kFewestOfSeries = 3;

// "layer_12" is number 12 of "layer".
std::optional<std::pair<std::string, int64_t>> NumberedName(const std::string& name) {
  const std::size_t at = name.rfind('_');
  if (at == std::string::npos || at == 0) return std::nullopt;
  int64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at + 1, end, number);
  if (error != std::errc() || stop != end || number < 0) return std::nullopt;
  return std::pair(name.substr(0, at), number);
}

}  // namespace

FoundValues ValuesOf(const Experiment& experiment) {
  FoundValues found;
  std::map<std::string, std::vector<int64_t>> numbered;
  for (const Observation& one : experiment.observations) {
    if (!one.failed.empty()) continue;
    for (const auto& item : one.values.items()) {
      if (!item.value().is_number() || !IsMeasured(item.key())) continue;
      if (const auto series = NumberedName(item.key())) {
        std::vector<int64_t>& numbers = numbered[series->first];
        if (std::ranges::find(numbers, series->second) == numbers.end()) numbers.push_back(series->second);
      } else if (std::ranges::find(found.names, item.key()) == found.names.end()) {
        found.names.push_back(item.key());
      }
    }
  }
  for (auto& [name, numbers] : numbered) {
    std::ranges::sort(numbers);
    if (numbers.size() >= kFewestOfSeries) {
      found.series.push_back({.name = name, .numbers = std::move(numbers)});
    } else {
      for (const int64_t number : numbers) found.names.push_back(name + "_" + std::to_string(number));
    }
  }
  found.names.emplace_back(kSecondsPerSample);
  return found;
}

std::vector<FoundRow> RowsOf(const Experiment& experiment, const std::string& columns) {
  std::vector<Json> values = ColumnValues(experiment, columns);
  if (values.empty()) values.emplace_back(nullptr);
  std::vector<FoundRow> rows;
  for (const std::string& method : experiment.Methods()) {
    for (const Json& value : values) {
      FoundRow row{
          .method = method, .column = value, .observations = Select(experiment, method, columns, value)};
      std::erase_if(row.observations, [](const Observation* one) { return !one->failed.empty(); });
      if (!row.observations.empty()) rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::optional<double> MeanOf(const std::vector<const Observation*>& observations, const std::string& name) {
  double mean = 0;
  int64_t n = 0;
  for (const Observation* const one : observations) {
    const bool seconds = name == kSecondsPerSample;
    if (!seconds && (!one->values.contains(name) || !one->values[name].is_number())) continue;
    const double value = seconds ? one->seconds : one->values[name].get<double>();
    ++n;
    // No sum, which huge values would take beyond any number.
    mean += value / static_cast<double>(n) - mean / static_cast<double>(n);
  }
  return n > 0 ? std::optional(mean) : std::nullopt;
}

}  // namespace longheads
