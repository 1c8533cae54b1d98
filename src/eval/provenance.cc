#include "eval/provenance.h"

#include <fmt/format.h>

#include <climits>
#include <nlohmann/json.hpp>

#include "base/cores.h"
#include "base/json.h"
#include "eval/commit.h"

namespace longheads {

std::string ProgramAndCommit() { return "longheads " LONGHEADS_VERSION ", commit " LONGHEADS_COMMIT; }

Provenance ProvenanceOf(const Engine& engine) {
  return {.threads = engine.threads(), .program = ProgramAndCommit(), .machine = ProcessorName()};
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
