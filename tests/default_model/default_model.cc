#include "tests/default_model/default_model.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace longheads {

namespace {

std::string FindDefaultModel() {
  if (const char* const path = std::getenv("LONGHEADS_DEFAULT_MODEL")) return path;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::filesystem::path root = cache != nullptr
                                         ? std::filesystem::path(cache)
                                         : std::filesystem::path(home == nullptr ? "." : home) / ".cache";
  return root / "longheads" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

}  // namespace

std::string DefaultModelPath() {
  static const std::string path = FindDefaultModel();
  return path;
}

std::unique_ptr<Engine> LoadDefaultModel(const std::string& attention, const std::string& compute) {
  Result<std::unique_ptr<Engine>> engine =
      Engine::Load({.model_path = DefaultModelPath(), .attention = attention, .compute = compute});
  if (!engine) {
    fmt::print(stderr, "{}\nThese tests need the default model: run tools/setup/fetch_model.sh\n",
               engine.error().message);
    std::exit(1);
  }
  return std::move(*engine);
}

}  // namespace longheads
