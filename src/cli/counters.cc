#include "cli/counters.h"

#include <fmt/format.h>

#include <algorithm>

namespace longheads {

std::string DescribeCounters(const Engine& engine, const Session& session) {
  std::string line;
  for (const PolicyCounter& counter : engine.Counters(session)) {
    std::string name(counter.name);
    std::ranges::replace(name, '_', ' ');
    line += fmt::format("{}{} {}", line.empty() ? "counted over all layers: " : ", ", counter.count, name);
  }
  return line;
}

nlohmann::json CountersJson(const Engine& engine, const Session& session) {
  nlohmann::json counters;  // null
  for (const PolicyCounter& counter : engine.Counters(session)) counters[counter.name] = counter.count;
  return counters;
}

}  // namespace longheads
