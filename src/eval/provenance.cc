#include "eval/provenance.h"

#include <fmt/format.h>

#include <climits>
#include <nlohmann/json.hpp>

#include "base/cores.h"
#include "base/json.h"
#include "engine/model_fingerprint.h"
#include "eval/commit.h"

namespace longheads {

std::string ProgramAndCommit() { return "longheads " LONGHEADS_VERSION ", commit " LONGHEADS_COMMIT; }

Result<Provenance> ProvenanceOf(const Engine& engine) {
  LH_ASSIGN(const uint64_t fingerprint, FingerprintModel(engine.file().name()));
  return Provenance{.threads = engine.threads(),
                    .program = ProgramAndCommit(),
                    .machine = ProcessorName(),
                    .model_fingerprint = FingerprintText(fingerprint)};
}

void AddProvenance(const Provenance& by, nlohmann::ordered_json& json) {
  json["threads"] = by.threads;
  json["program"] = by.program;
  json["machine"] = by.machine;
  json["model_fingerprint"] = by.model_fingerprint;
}

Provenance ParseProvenance(const nlohmann::ordered_json& json) {
  return {.threads = static_cast<int>(JsonCount(json, "threads", INT_MAX)),
          .program = json.value("program", ""),
          .machine = json.value("machine", ""),
          .model_fingerprint = json.value("model_fingerprint", "")};
}

}  // namespace longheads
