#include "eval/model_setup.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/model_fingerprint.h"

namespace longheads {

Result<ModelSetup> ModelSetupOf(const Engine& engine, const std::string& backend, const std::string& rope) {
  return ModelSetup{.model = std::filesystem::path(engine.file().name()).filename().string(),
                    .model_bytes = static_cast<int64_t>(engine.file().file_bytes()),
                    .fingerprint = FingerprintText(FingerprintModel(engine.file())),
                    .compute = std::string(NameOf(engine.compute())),
                    .kv = NameOf(engine.kv_type()),
                    .backend = backend,
                    .rope = rope};
}

void AddModelSetup(const ModelSetup& setup, nlohmann::ordered_json& json) {
  json["model"] = setup.model;
  json["model_bytes"] = setup.model_bytes;
  if (!setup.fingerprint.empty()) json["model_fingerprint"] = setup.fingerprint;
  json["compute"] = setup.compute;
  json["kv"] = setup.kv;
  json["backend"] = setup.backend;
  json["rope"] = setup.rope;
  if (!setup.esa_compression.empty()) json["esa_compression"] = setup.esa_compression;
}

ModelSetup ParseModelSetup(const nlohmann::ordered_json& json) {
  return {.model = json.at("model"),
          .model_bytes = JsonCount(json, "model_bytes"),
          .fingerprint = json.value("model_fingerprint", ""),
          .compute = json.at("compute"),
          .kv = json.at("kv"),
          .backend = json.at("backend"),
          .rope = json.value("rope", ""),
          .esa_compression = json.value("esa_compression", "")};
}

}  // namespace longheads
