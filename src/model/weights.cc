#include "model/weights.h"

#include <fmt/format.h>

#include "kernels/quantised.h"

namespace longheads {
namespace {

std::string ShapeText(const TensorView& tensor) {
  std::string text;
  for (int dim = 0; dim < tensor.n_dims; ++dim)
    text += (dim > 0 ? " x " : "") + std::to_string(tensor.shape[dim]);
  return text;
}

class TensorReader {
 public:
  explicit TensorReader(const GgufFile& file) : file_(file) {}

  Result<TensorView> Matrix(const std::string& name, int64_t rows, int64_t columns) const {
    const TensorView* const tensor = file_.FindTensor(name);
    if (tensor == nullptr)
      return InvalidInput(fmt::format("{}: the tensor {} is missing", file_.name(), name));
    if (tensor->n_dims != 2 || tensor->shape[0] != rows || tensor->shape[1] != columns) {
      return InvalidInput(fmt::format("{}: the tensor {} is {}, but {} x {} was expected", file_.name(), name,
                                      ShapeText(*tensor), rows, columns));
    }
    return *tensor;
  }

  Result<std::vector<float>> Vector(const std::string& name, int64_t n) const {
    const TensorView* const tensor = file_.FindTensor(name);
    if (tensor == nullptr)
      return InvalidInput(fmt::format("{}: the tensor {} is missing", file_.name(), name));
    if (tensor->elements() != n) {
      return InvalidInput(fmt::format("{}: the tensor {} is {}, but {} numbers were expected", file_.name(),
                                      name, ShapeText(*tensor), n));
    }
    std::vector<float> values(static_cast<std::size_t>(n));
    QuantisedImplementations().back().table->dequantize(tensor->type, tensor->data, n, values.data());
    return values;
  }

  Result<LinearWeights> Linear(const std::string& name, int64_t n_out, int64_t n_in) const {
    LinearWeights linear;
    LH_ASSIGN(linear.w, Matrix(name + ".weight", n_out, n_in));
    if (file_.FindTensor(name + ".bias") != nullptr) {
      LH_ASSIGN(linear.bias, Vector(name + ".bias", n_out));
    }
    return linear;
  }

 private:
  const GgufFile& file_;
};

}  // namespace

Result<ModelWeights> ReadWeights(const GgufFile& file, const ModelConfig& config) {
  const TensorReader read(file);
  const int64_t embed = config.embed_dim;
  const int64_t q_dim = config.n_heads * config.head_dim;
  const int64_t kv_dim = config.n_kv_heads * config.head_dim;
  ModelWeights weights;
  LH_ASSIGN(weights.embedding, read.Matrix("token_embd.weight", config.vocab_size, embed));
  LH_ASSIGN(weights.output_norm, read.Vector("output_norm.weight", embed));
  weights.output.w = weights.embedding;
  if (file.FindTensor("output.weight") != nullptr) {
    LH_ASSIGN(weights.output.w, read.Matrix("output.weight", config.vocab_size, embed));
  }
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    LayerWeights layer;
    LH_ASSIGN(layer.attention_norm, read.Vector(prefix + "attn_norm.weight", embed));
    LH_ASSIGN(layer.q, read.Linear(prefix + "attn_q", q_dim, embed));
    LH_ASSIGN(layer.k, read.Linear(prefix + "attn_k", kv_dim, embed));
    LH_ASSIGN(layer.v, read.Linear(prefix + "attn_v", kv_dim, embed));
    LH_ASSIGN(layer.o, read.Linear(prefix + "attn_output", embed, q_dim));
    LH_ASSIGN(layer.ffn_norm, read.Vector(prefix + "ffn_norm.weight", embed));
    LH_ASSIGN(layer.gate, read.Linear(prefix + "ffn_gate", config.ffn_dim, embed));
    LH_ASSIGN(layer.up, read.Linear(prefix + "ffn_up", config.ffn_dim, embed));
    LH_ASSIGN(layer.down, read.Linear(prefix + "ffn_down", embed, config.ffn_dim));
    weights.layers.push_back(std::move(layer));
  }
  return weights;
}

}  // namespace longheads
