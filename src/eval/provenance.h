// By what a result was found: what a reader wants to know of it. A score is the same on any machine but for
// roundings, and with any number of threads; another file of weights under the same name is another model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"

namespace longheads {

struct Provenance {
  int threads = 0;
  // Empty in results of older programs:
  std::string program = {};            // "longheads 0.1.0, commit 0123456789ab"
  std::string machine = {};            // its processor's name
  std::string model_fingerprint = {};  // FingerprintText

  // Whether both may be of the same weights: where both say, they say the same.
  bool MayBeSameModel(const Provenance& other) const {
    return model_fingerprint.empty() || other.model_fingerprint.empty() ||
           model_fingerprint == other.model_fingerprint;
  }
};

// Name, version and commit of this program.
std::string ProgramAndCommit();
// Reads some of the model's file: once for a run, which ends where the file cannot be read.
Result<Provenance> ProvenanceOf(const Engine& engine);

// Its members as keys of an object, and back; the latter throws nlohmann's exceptions.
void AddProvenance(const Provenance& by, nlohmann::ordered_json& json);
Provenance ParseProvenance(const nlohmann::ordered_json& json);

}  // namespace longheads
