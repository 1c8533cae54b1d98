// The numbers of a model, read from its file: what is special in a family is data here, so that one forward
// pass serves all of them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/gguf.h"
#include "kernels/rotation_table.h"
#include "rope/declaration.h"

namespace longheads {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;
  int64_t n_layers = 0;
  int64_t embed_dim = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_dim = 0;
  int64_t vocab_size = 0;
  int64_t trained_window = 0;  // tokens that the model reads with its own frequencies
  float rms_epsilon = 1e-5f;
  RopeDeclaration rope;
  PairLayout layout = PairLayout::kInterleaved;
};

// Refuses by name what is not served: the architecture, a RoPE scaling, numbers that contradict each other.
Result<ModelConfig> ReadConfig(const GgufFile& file);

}  // namespace longheads
