// What a text in a context file was read with, which is what it must be asked with: the metadata of the
// file's header. The container is formats/context_layout.h, its definition docs/context-file.md.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/block_fit.h"
#include "rope/overrides.h"

namespace longheads {

struct ContextSetup {
  std::string program;             // that wrote the file, with its version
  std::string model;               // the file's name, for people
  uint64_t model_fingerprint = 0;  // FingerprintModel
  uint64_t tokenizer_fingerprint = 0;
  std::string attention;  // --attn
  // The same with every option (FullSpec): a program whose defaults are others must not take it for its own.
  std::string attention_in_full;
  RopeOverrides rope;
  std::string compute;          // f32, bf16, int8, bf16-int8
  std::string kv_type;          // f32, bf16, q8
  int64_t expected_tokens = 0;  // Engine::ExpectText was told so many; 0: it was not called
  // Engine::block_fit: whoever goes on with a reading cuts the same blocks, where he has the memory.
  BlockFit blocks;
  bool chat = false;   // the text stands in a user's message of the model's chat template
  std::string source;  // where the text came from, for people
};

// A JSON object, on one line.
std::string WriteContextSetup(const ContextSetup& setup);
// Refuses what is no such object, with a sentence that begins with `path`.
Result<ContextSetup> ParseContextSetup(const std::string& path, const std::string& metadata);

}  // namespace longheads
