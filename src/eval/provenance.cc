#include "eval/provenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/cores.h"
#include "base/json.h"
#include "eval/commit.h"

namespace longheads {
namespace {

// "26" of the first line "cpu family\t: 26"; empty where no line has that name.
std::string CpuInfoValue(const std::string& cpuinfo, std::string_view name) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find_first_not_of(" \t", name.size());
    if (colon == std::string::npos || line[colon] != ':') continue;
    return line.substr(std::min(colon + 2, line.size()));
  }
  return "";
}

std::string ThisMachine() {
  std::ifstream file("/proc/cpuinfo");
  const std::string cpuinfo{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return DescribeMachine(ProcessorName(), cpuinfo, PhysicalCores());
}

}  // namespace

std::string ProgramAndCommit() { return "longheads " LONGHEADS_VERSION ", commit " LONGHEADS_COMMIT; }

Provenance ProvenanceOf(const Engine& engine) {
  return {.threads = engine.threads(), .program = ProgramAndCommit(), .machine = ThisMachine()};
}

std::string DescribeMachine(const std::string& processor, const std::string& cpuinfo, int n_cores) {
  std::string details;
  for (const auto& [name, label] :
       {std::pair("cpu family", "family"), std::pair("model", "model"), std::pair("stepping", "stepping")}) {
    const std::string value = CpuInfoValue(cpuinfo, name);
    if (!value.empty()) details += fmt::format("{}{} {}", details.empty() ? "" : ", ", label, value);
  }
  return fmt::format("{}{}, {} {}", processor, details.empty() ? "" : " (" + details + ")", n_cores,
                     n_cores == 1 ? "core" : "cores");
}

void AddProvenance(const Provenance& by, nlohmann::ordered_json& json) {
  json["threads"] = by.threads;
  json["program"] = by.program;
  json["machine"] = by.machine;
}

Provenance ParseProvenance(const nlohmann::ordered_json& json) {
  return {.threads = static_cast<int>(JsonCount(json, "threads", INT_MAX)),
          .program = json.value("program", ""),
          .machine = json.value("machine", "")};
}

}  // namespace longheads
