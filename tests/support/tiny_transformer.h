// A tiny Llama in memory and a transformer over it, for tests of the forward pass.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "tests/support/gguf_builder.h"

namespace longheads {

struct TinyTransformerOptions {
  TinyLlamaOptions model;
  std::string attention = "full";
  std::string backend = "auto";
  ComputeType compute = ComputeType::kF32;
  KvType kv_type = KvType::kF32;
  bool keep_packed = false;
  int threads = 2;
  // What the model's file says beside.
  std::function<void(GgufBuilder&)> add_to_file = {};
  int64_t text_tokens = 0;  // AttentionModel::text_tokens
};

class TinyTransformer {
 public:
  // Options that the engine would refuse end the test program.
  explicit TinyTransformer(const TinyTransformerOptions& options);

  Transformer& operator*() { return *transformer_; }
  Transformer* operator->() { return transformer_.get(); }

  // Final hidden states [n, embed_dim] of tokens read as prompts of `blocks` tokens each (their sum is the
  // number of tokens), or as one prompt.
  std::vector<float> Prefill(SequenceState& sequence, std::span<const int32_t> tokens,
                             std::span<const int64_t> blocks = {});
  // The same, decoded one by one.
  std::vector<float> Decode(SequenceState& sequence, std::span<const int32_t> tokens);
  std::vector<float> Logits(std::span<const float> hidden);
  // Zeros in the place of a tensor, float32 by float32 or block by block, in the file under the transformer.
  void Blank(const std::string& tensor);

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Transformer> transformer_;
};

// n ids below vocab_size, the same for the same seed.
std::vector<int32_t> TinyTokens(int64_t n, int64_t vocab_size, uint64_t seed);

// Whether every float has the same bits.
bool SameBits(std::span<const float> a, std::span<const float> b);

}  // namespace longheads
