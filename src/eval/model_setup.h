// What of the model and its loading bears on a result, for an experiment's records.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"

namespace longheads {

struct ModelSetup {
  std::string model;  // file name, without its folder
  int64_t model_bytes = 0;
  std::string fingerprint = {};  // FingerprintText of the file; empty in results of older programs
  std::string compute;           // "f32", "bf16"
  std::string kv;                // "f32", "bf16"
  std::string backend;           // as asked for: "auto" stands for what the machine offers
  std::string rope = {};         // as typed, where the model's own frequencies were changed: "--rope-scale 4"
  // EsaCompressionOf, of pass keys and perplexity; tasks have it among their options.
  std::string esa_compression = {};

  bool operator==(const ModelSetup&) const = default;
};

// Reads some of the model's file; kIo where that cannot be read any more.
Result<ModelSetup> ModelSetupOf(const Engine& engine, const std::string& backend, const std::string& rope);

// Its members as keys of an object, and back. The latter throws nlohmann's exceptions.
void AddModelSetup(const ModelSetup& setup, nlohmann::ordered_json& json);
ModelSetup ParseModelSetup(const nlohmann::ordered_json& json);

}  // namespace longheads
