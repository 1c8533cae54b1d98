// The numbers of a model, read from its file: what is special in a family is data here, so that one forward
// pass serves all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "kernels/rotation_table.h"

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
  int64_t trained_window = 0;
  float rms_epsilon = 1e-5f;
  double rope_base = 10000;
  double rope_interpolation = 1;     // positions are divided by it (linear scaling declared by the file)
  std::vector<float> rope_divisors;  // empty, or [head_dim / 2] (llama3 scaling)
  PairLayout layout = PairLayout::kInterleaved;
};

// Refuses by name what is not served: the architecture, a RoPE scaling, numbers that contradict each other.
Result<ModelConfig> ReadConfig(const GgufFile& file);

}  // namespace longheads
