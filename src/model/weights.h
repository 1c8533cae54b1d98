// A model's weights as views into its file, shapes checked against the configuration.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "kernels/int8_weights.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace longheads {

// y = W x + bias
struct LinearWeights {
  TensorView w;             // [n_out, n_in]
  std::vector<float> bias;  // empty, or [n_out]
  // The same laid out for integer products; null where those are not used.
  std::unique_ptr<const Int8Weights> integers;

  int64_t n_out() const { return w.shape[0]; }
  int64_t n_in() const { return w.shape[1]; }
  // What a token's product reads.
  std::span<const std::byte> bytes() const {
    if (integers) return integers->bytes();
    return {w.data, static_cast<std::size_t>(*BytesOf(w.type, w.elements()))};
  }
};

struct LayerWeights {
  std::vector<float> attention_norm;  // [embed_dim]
  LinearWeights q;                    // [n_heads * head_dim, embed_dim]
  LinearWeights k;                    // [n_kv_heads * head_dim, embed_dim]
  LinearWeights v;                    // [n_kv_heads * head_dim, embed_dim]
  LinearWeights o;                    // [embed_dim, n_heads * head_dim]
  std::vector<float> ffn_norm;        // [embed_dim]
  LinearWeights gate;                 // [ffn_dim, embed_dim]
  LinearWeights up;                   // [ffn_dim, embed_dim]
  LinearWeights down;                 // [embed_dim, ffn_dim]
};

struct ModelWeights {
  TensorView embedding;            // [vocab_size, embed_dim]
  std::vector<float> output_norm;  // [embed_dim]
  LinearWeights output;            // [vocab_size, embed_dim]; the embedding itself where they are tied
  std::vector<LayerWeights> layers;
};

// body(linear) for all linear layers in the order of the forward pass, the vocabulary's last.
template <typename Weights, typename Body>
void ForEachLinear(Weights& weights, const Body& body) {
  for (auto& layer : weights.layers) {
    for (auto* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      body(*linear);
    }
  }
  body(weights.output);
}

template <typename Bytes>
uint64_t SumOverLinears(const ModelWeights& weights, const Bytes& bytes) {
  uint64_t sum = 0;
  ForEachLinear(weights, [&](const LinearWeights& linear) { sum += bytes(linear); });
  return sum;
}

// A missing tensor, or one of the wrong shape, is an error that names it. The file must outlive the weights.
Result<ModelWeights> ReadWeights(const GgufFile& file, const ModelConfig& config);

}  // namespace longheads
