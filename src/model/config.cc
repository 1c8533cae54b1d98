#include "model/config.h"

#include <fmt/format.h>

#include "model/gguf_rope.h"

namespace longheads {
namespace {

// Far above any model, low enough that products of three cannot overflow.
constexpr int64_t kMostOfAnything = int64_t{1} << 24;

class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  Result<int64_t> Count(const std::string& key) const {
    LH_ASSIGN(const int64_t value, file_.GetInt(prefix_ + key));
    if (value < 1 || value > kMostOfAnything) {
      return InvalidInput(fmt::format("{}: {}{} is {}, but must be between 1 and {}", file_.name(), prefix_,
                                      key, value, kMostOfAnything));
    }
    return value;
  }
  Result<int64_t> CountOr(const std::string& key, int64_t otherwise) const {
    return file_.Find(prefix_ + key) == nullptr ? Result<int64_t>(otherwise) : Count(key);
  }
  Result<double> FloatOr(const std::string& key, double otherwise) const {
    return file_.Find(prefix_ + key) == nullptr ? Result<double>(otherwise) : file_.GetFloat(prefix_ + key);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace

Result<ModelConfig> ReadConfig(const GgufFile& file) {
  ModelConfig config;
  LH_ASSIGN(config.architecture, file.GetString("general.architecture"));
  if (config.architecture != "llama") {
    return Unsupported(
        fmt::format("{}: the architecture '{}' is not served yet; 'llama' is (Llama, TinyLlama, SmolLM)",
                    file.name(), config.architecture));
  }
  if (file.Find("general.name") != nullptr) {
    LH_ASSIGN(config.name, file.GetString("general.name"));
  }
  const KeyReader keys(file, "llama.");
  LH_ASSIGN(config.n_layers, keys.Count("block_count"));
  LH_ASSIGN(config.embed_dim, keys.Count("embedding_length"));
  LH_ASSIGN(config.n_heads, keys.Count("attention.head_count"));
  LH_ASSIGN(config.n_kv_heads, keys.CountOr("attention.head_count_kv", config.n_heads));
  LH_ASSIGN(config.ffn_dim, keys.Count("feed_forward_length"));
  LH_ASSIGN(const int64_t context_length, keys.Count("context_length"));
  LH_ASSIGN(config.head_dim, keys.CountOr("attention.key_length", config.embed_dim / config.n_heads));
  LH_ASSIGN(const int64_t value_dim, keys.CountOr("attention.value_length", config.head_dim));
  LH_ASSIGN(const int64_t rotary_dim, keys.CountOr("rope.dimension_count", config.head_dim));
  LH_ASSIGN(const double epsilon, keys.FloatOr("attention.layer_norm_rms_epsilon", 1e-5));
  config.rms_epsilon = static_cast<float>(epsilon);

  // Some files say 0 for none.
  const auto count_or_none = [&](const char* key) {
    return file.Find(key) == nullptr ? Result<int64_t>(0) : file.GetInt(key);
  };
  LH_ASSIGN(const int64_t n_experts, count_or_none("llama.expert_count"));
  if (n_experts != 0 && n_experts != 1)
    return Unsupported(fmt::format("{}: mixtures of experts are not served yet", file.name()));
  if (const char* const causal = "llama.attention.causal"; file.Find(causal) != nullptr) {
    LH_ASSIGN(const bool is_causal, file.GetBool(causal));
    if (!is_causal) {
      return Unsupported(
          fmt::format("{}: its tokens see those behind them too ({} is false), and it does not "
                      "generate text",
                      file.name(), causal));
    }
  }
  const char* const sliding = "llama.attention.sliding_window";
  LH_ASSIGN(const int64_t sliding_window, count_or_none(sliding));
  if (sliding_window > 0 && sliding_window < context_length) {
    return Unsupported(fmt::format(
        "{}: its layers see the last {} tokens alone ({}), which is not served: no method could show "
        "them more",
        file.name(), sliding_window, sliding));
  }
  if (config.n_heads % config.n_kv_heads != 0) {
    return InvalidInput(fmt::format("{}: {} query heads cannot share {} key/value heads", file.name(),
                                    config.n_heads, config.n_kv_heads));
  }
  if (value_dim != config.head_dim || rotary_dim != config.head_dim || config.head_dim < 8 ||
      config.head_dim % 16 != 0 || config.head_dim > 256) {
    return Unsupported(
        fmt::format("{}: heads of {} (values {}, rotary {}) are not served: keys, values and rotation "
                    "must have the same size, a multiple of 16 up to 256",
                    file.name(), config.head_dim, value_dim, rotary_dim));
  }
  // The largest models are at a tenth of it.
  constexpr int64_t kMostOfAToken = int64_t{1} << 24;
  if (config.n_layers * config.n_heads > kMostOfAToken / config.head_dim) {
    return InvalidInput(fmt::format("{}: {} layers of {} heads of {} are more than {} in all", file.name(),
                                    config.n_layers, config.n_heads, config.head_dim, kMostOfAToken));
  }
  if (!(config.rms_epsilon >= 0) || !(config.rms_epsilon < 1)) {
    return InvalidInput(fmt::format("{}: the RMS epsilon is {}", file.name(), config.rms_epsilon));
  }
  LH_ASSIGN(config.rope, ReadRope(file, "llama.", config.head_dim, context_length));
  config.trained_window = DeclaredWindow(config.rope);
  const TensorView* const embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return InvalidInput(
        fmt::format("{}: the tensor token_embd.weight is missing: this file holds no model, or half of one",
                    file.name()));
  }
  config.vocab_size = embedding->rows();
  return config;
}

}  // namespace longheads
