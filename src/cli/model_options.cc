#include "cli/model_options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/bytes.h"
#include "base/raw_file.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "engine/block_parts.h"

namespace longheads {
namespace {

constexpr const char* kModelGroup = "Model";

Result<uint64_t> SizeOption(const char* name, const std::string& text) {
  const Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes) return InvalidInput(fmt::format("{}: {}", name, bytes.error().message));
  return *bytes;
}

// The names and meanings are llama.cpp's.
void AddRopeOptions(CLI::App& app, RopeOverrides& rope) {
  const std::string group = "RoPE (the model's own frequencies; --attn has schedules that start from them)";
  const auto add = [&](const std::string& name, auto& value, const std::string& meaning, const char* type) {
    app.add_option(name, value, meaning)->type_name(type)->group(group);
  };
  add("--rope-scaling", rope.scaling,
      "scaling in the place of what the model file declares: none, linear, or yarn (default: the file's, and "
      "linear "
      "where --rope-scale is given and the file has none)",
      "none|linear|yarn");
  add("--rope-scale", rope.scale,
      "factor of the scaling: the window grows to N times what it is without (default: the file's)", "N");
  add("--rope-freq-base", rope.freq_base, "base of the frequencies (default: the file's)", "N");
  add("--rope-freq-scale", rope.freq_scale, "1/N of --rope-scale N", "1/N");
  app.add_option_function<std::string>(
         "--yarn-orig-ctx",
         [&rope](const std::string& text) {
           const Result<int64_t> tokens = ParseCount(text);
           if (!tokens) throw CLI::ValidationError("--yarn-orig-ctx", tokens.error().message);
           rope.orig_ctx = *tokens;
         },
         "YaRN: the window without scaling (default: the file's)")
      ->type_name("TOKENS")
      ->group(group);
  add("--yarn-ext-factor", rope.ext_factor,
      "YaRN: how much of its ramp is applied, 0 to 1; 0 interpolates everything (default: the file's, or 1)",
      "N");
  add("--yarn-attn-factor", rope.attn_factor,
      "YaRN: multiplies queries and keys beside what the factor brings, 0.1 ln N + 1 (default: 1)", "N");
  add("--yarn-beta-slow", rope.beta_slow,
      "YaRN: pairs of dimensions that turn less often than this in the window are interpolated (default: the "
      "file's, "
      "or 1)",
      "N");
  add("--yarn-beta-fast", rope.beta_fast,
      "YaRN: pairs that turn more often than this stay as they are (default: the file's, or 32)", "N");
}

}  // namespace

void AddModelFileOption(CLI::App& app, ModelOptions& options) {
  app.add_option("-m,--model", options.model,
                 "GGUF file; without it, the default model (make model fetches it)")
      ->type_name("FILE")
      ->group(kModelGroup);
}

void AddComputeOptions(CLI::App& app, ModelOptions& options) {
  const std::string group = kModelGroup;
  app.add_option(
         "--compute", options.compute,
         "numbers in the products with weights: f32; bf16 (in prefill); int8 (activations in eight bits, for "
         "quantised weights); bf16-int8 (bf16 in prefill, int8 for generated tokens); or auto: int8 (with "
         "AMX "
         "bf16-int8) where all weights are quantised and twice their layout fits the free memory, else bf16 "
         "where "
         "the processor has it, else f32")
      ->type_name("auto|f32|bf16|int8|bf16-int8")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-type", options.kv_type,
                 "numbers in the key/value cache: f32, bf16, q8 (eight bits and a scale for each token and "
                 "head), or auto "
                 "(f32 for --compute f32, else bf16)")
      ->type_name("auto|f32|bf16|q8")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--backend", options.backend,
         "kernels of products, attention and scores: amx, avx512bf16, avx512, avx2, ref (scalar, slow), or "
         "auto: what LONGHEADS_BACKEND says in the environment, for other kernels too, else the best that "
         "runs here")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  app.add_option("-t,--threads", options.threads, "threads; 0: the physical cores this process may use")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

void AddModelOptions(CLI::App& app, ModelOptions& options, bool with_attention) {
  const std::string group = kModelGroup;
  AddModelFileOption(app, options);
  if (with_attention) {
    app.add_option("--attn", options.attention,
                   "attention method, as 'longheads,chunk=128' or 'yarn:factor=4+full' ('longheads methods' "
                   "lists them)")
        ->type_name("SPEC")
        ->capture_default_str()
        ->group(group);
  }
  AddComputeOptions(app, options);
  app.add_option(
         "--packed-weights", options.packed_weights,
         "with --compute f32, bf16 or bf16-int8, keep the weights that the first prompt packs for its "
         "products, so "
         "that the next need not: on, off, or auto: on for bf16, where the processor has it and they are a "
         "quarter of the free memory at most. Changes no number")
      ->type_name("auto|on|off")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-ram", options.kv_ram,
                 "memory for texts (512m, 2g): keys and values that do not fit beside the method's state are "
                 "on disk. 0: no limit; for a context file, half of the free memory")
      ->type_name("SIZE")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-disk", options.kv_disk,
                 "folder for the rest, with --kv-ram; what is there goes with the program")
      ->type_name("DIR")
      ->default_str(EngineOptions().kv_disk)
      ->group(group);
  app.add_option("--kv-disk-max", options.kv_disk_max, "the most to take of it; 0: what is free")
      ->type_name("SIZE")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-blocks", options.kv_blocks,
                 "with keys and values on disk, a text is read in blocks of at least an Nth of what is "
                 "before them, which comes from disk once more for each: 4 to 32; less is less from disk "
                 "and leaves pages less of --kv-ram. 0: 32, but for run and ingest what suits the disk's "
                 "speed, and for "
                 "context append what the file was made with")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  AddRopeOptions(app, options.rope);
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

Result<EngineOptions> EngineOptionsOf(const ModelOptions& options) {
  LH_ASSIGN(const std::string path, FindModel(options.model));
  LH_ASSIGN(const uint64_t kv_ram, SizeOption("--kv-ram", options.kv_ram));
  LH_ASSIGN(const uint64_t kv_disk_max, SizeOption("--kv-disk-max", options.kv_disk_max));
  const int64_t block_parts = options.kv_blocks != 0 ? options.kv_blocks : BlockFit::kMostParts;
  LH_TRY(CheckBlockParts(block_parts));
  return EngineOptions{.model_path = path,
                       .attention = options.attention,
                       .compute = options.compute,
                       .packed_weights = options.packed_weights,
                       .kv_type = options.kv_type,
                       .backend = options.backend,
                       .kv_ram = kv_ram,
                       .kv_disk = options.kv_disk.value_or(EngineOptions().kv_disk),
                       .kv_disk_max = kv_disk_max,
                       .block_parts = block_parts,
                       .threads = options.threads,
                       .rope = options.rope};
}

Result<EngineOptions> OverflowOptionsOf(const ModelOptions& options) {
  LH_ASSIGN(EngineOptions engine, EngineOptionsOf(options));
  if (engine.kv_ram > 0) return engine;
  const char* const given = options.kv_disk          ? "--kv-disk"
                            : engine.kv_disk_max > 0 ? "--kv-disk-max"
                            : options.kv_blocks != 0 ? "--kv-blocks"
                                                     : nullptr;
  if (given == nullptr) return engine;
  return InvalidInput(
      fmt::format("{} has no effect without --kv-ram SIZE: keys and values stay in memory", given));
}

Result<std::unique_ptr<Engine>> LoadEngine(const ModelOptions& options) {
  LH_ASSIGN(const EngineOptions engine, OverflowOptionsOf(options));
  return LoadEngine(engine);
}

Result<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options) {
  auto engine = Engine::Load(options);
  if (engine || !engine.error().message.starts_with(options.kv_disk + ":")) return engine;
  return MakeError(engine.error().kind,
                   fmt::format("{}; --kv-disk names another folder", engine.error().message));
}

Status FitBlocks(Engine& engine, const ModelOptions& options, int64_t n_tokens, bool quiet) {
  if (options.kv_blocks != 0 || !BlockPartsMatter(engine, n_tokens)) return {};
  const auto measured = FitBlocksToDisk(engine, n_tokens, &InterruptToken());
  if (!measured) {
    if (measured.error().kind == ErrorKind::kCancelled) return tl::unexpected<Error>(measured.error());
    return {};  // there may be no room to measure in; what matters is said where it is needed
  }
  if (!quiet && measured->parts < BlockFit::kMostParts) {
    Note("the disk reads {}/s: the text is read in blocks of up to {} tokens\n",
         FormatBytes(static_cast<uint64_t>(measured->disk_speed)),
         engine.TokenBlock(n_tokens, measured->parts));
  }
  return {};
}

void NoteDisk(const std::string& folder) {
  if (LiesInMemory(folder)) {
    Note("note: the files of {} are in memory: keys and values that go there take it all the same\n", folder);
  } else if (RefusesDirect(folder)) {
    Note("note: the files of {} go through the system's cache, which takes memory beside --kv-ram\n", folder);
  }
}

}  // namespace longheads
