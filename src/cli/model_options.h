// The options by which every command that runs a model loads it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"

namespace longheads {

struct ModelOptions {
  std::string model;  // empty: the default model
  std::string attention = "auto";
  std::string compute = "auto";
  std::string packed_weights = "auto";
  std::string kv_type = "auto";
  std::string backend = "auto";
  int threads = 0;
  std::string kv_ram = "0";
  std::optional<std::string> kv_disk;  // not given: EngineOptions::kv_disk
  std::string kv_disk_max = "0";
  int64_t kv_blocks = 0;  // 0: by the disk's speed
  RopeOverrides rope;
};

// -m, --attn (unless the command has its own), AddComputeOptions, --packed-weights, and where keys and values
// are kept: --kv-ram, --kv-...; in the group "Model". And in the group "RoPE", what changes the model's own
// frequencies: --rope-..., --yarn-...
void AddModelOptions(CLI::App& app, ModelOptions& options, bool with_attention = true);
// Of these -m, and --compute, --kv-type, --backend and -t: for what needs a model and keeps no text.
void AddModelFileOption(CLI::App& app, ModelOptions& options);
void AddComputeOptions(CLI::App& app, ModelOptions& options);

// Where `make demo` puts the default model.
std::string DefaultModelPath();

// The file to load: the one named, or the default model if it is there. Else how to get it.
Result<std::string> FindModel(const std::string& model);

// What was typed, checked so far as that can be without the model.
Result<EngineOptions> EngineOptionsOf(const ModelOptions& options);
// The same where no context file takes keys and values: without --kv-ram they stay in memory, and what says
// where else they go, and how, is refused.
Result<EngineOptions> OverflowOptionsOf(const ModelOptions& options);
Result<std::unique_ptr<Engine>> LoadEngine(const ModelOptions& options);
// Where pages may go to options.kv_disk, and cannot, the error names the flag.
Result<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options);
// Where a text of n tokens will not stay in memory: token blocks of as many parts as --kv-blocks says, or as
// the disk is fast enough for, and memory has room for. Only an interrupt is an error.
Status FitBlocks(Engine& engine, const ModelOptions& options, int64_t n_tokens, bool quiet);
// A note on stderr where pages that go to the folder stay in memory all the same, or may, in the system's
// cache.
void NoteDisk(const std::string& folder);

}  // namespace longheads
