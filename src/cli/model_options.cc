#include "cli/model_options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace longheads {

void AddModelOptions(CLI::App& app, ModelOptions& options, bool with_attention) {
  const std::string group = "Model";
  app.add_option("-m,--model", options.model,
                 "GGUF file; without it, the default model (make demo fetches it)")
      ->type_name("FILE")
      ->group(group);
  if (with_attention) {
    app.add_option("--attn", options.attention,
                   "attention method, as 'longheads,chunk=128' ('longheads methods' lists them)")
        ->type_name("SPEC")
        ->capture_default_str()
        ->group(group);
  }
  app.add_option("--compute", options.compute,
                 "numbers in prefill's products: f32, bf16, or auto (bf16 where the processor has it)")
      ->type_name("auto|f32|bf16")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-type", options.kv_type, "numbers in the key/value cache; auto is as --compute")
      ->type_name("auto|f32|bf16")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--backend", options.backend,
         "kernels: amx, avx512bf16, avx512, avx2, ref (scalar, slow), or auto (the best that runs here)")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  app.add_option("-t,--threads", options.threads, "threads; 0: the physical cores this process may use")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

std::string DefaultModelPath() {
  constexpr const char* kName = "longheads/SmolLM2-135M-Instruct.Q4_1.gguf";
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return fmt::format("{}/{}", cache, kName);
  const char* const home = std::getenv("HOME");
  return fmt::format("{}/.cache/{}", home != nullptr ? home : "", kName);
}

Result<std::string> FindModel(const std::string& model) {
  if (!model.empty()) return model;
  const std::string path = DefaultModelPath();
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  return InvalidInput(
      fmt::format("no model: name one with -m FILE.gguf, or fetch the default one with 'make model' (it was "
                  "looked for at {})",
                  path));
}

Result<std::unique_ptr<Engine>> LoadEngine(const ModelOptions& options) {
  LH_ASSIGN(const std::string path, FindModel(options.model));
  return Engine::Load({.model_path = path,
                       .attention = options.attention,
                       .compute = options.compute,
                       .kv_type = options.kv_type,
                       .backend = options.backend,
                       .threads = options.threads});
}

}  // namespace longheads
