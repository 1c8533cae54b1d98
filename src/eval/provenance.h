// By what a result was found, beside all that bears on it: a score is the same on any machine but for
// roundings, and with any number of threads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"

namespace longheads {

struct Provenance {
  int threads = 0;
  // Empty in results of older programs:
  std::string program = {};  // "longheads 0.1.0, commit 0123456789ab"
  std::string machine = {};  // its processor's name
};

// Name, version and commit of this program.
std::string ProgramAndCommit();
Provenance ProvenanceOf(const Engine& engine);

// Its members as keys of an object, and back; the latter throws nlohmann's exceptions.
void AddProvenance(const Provenance& by, nlohmann::ordered_json& json);
Provenance ParseProvenance(const nlohmann::ordered_json& json);

}  // namespace longheads
