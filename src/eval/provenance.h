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
  std::string machine = {};  // DescribeMachine; of older programs the processor's name alone
};

// Name, version and commit of this program.
std::string ProgramAndCommit();
Provenance ProvenanceOf(const Engine& engine);

// "AMD EPYC (family 26, model 2, stepping 1), 2 cores": one brand is the name of processors of many speeds.
// `cpuinfo` is what /proc/cpuinfo says; what it does not say is left out.
std::string DescribeMachine(const std::string& processor, const std::string& cpuinfo, int n_cores);

// Its members as keys of an object, and back; the latter throws nlohmann's exceptions.
void AddProvenance(const Provenance& by, nlohmann::ordered_json& json);
Provenance ParseProvenance(const nlohmann::ordered_json& json);

}  // namespace longheads
