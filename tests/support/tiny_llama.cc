#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/check.h"
#include "tests/support/gguf_builder.h"

namespace longheads {

const std::string_view kTinyMerges[kTinyMergeCount] = {
    "t h", "Ġ t", "i n", "h e", "th e", "Ġt he", "Ġ a", "e r", "o n", "a n", "Ġ s", "in g", "an d",
};

namespace {

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

uint64_t SplitMix64(uint64_t start, uint64_t step) {
  uint64_t z = start + (step + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Rows from rotary halves to rotary pairs, head by head.
std::vector<float> InterleavePairs(const std::vector<float>& values, int64_t head_dim, int64_t columns) {
  std::vector<float> result(values.size());
  const auto rows = static_cast<int64_t>(values.size()) / columns;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_dim;
    const int64_t d = row % head_dim;
    const int64_t source = head * head_dim + d / 2 + (d % 2) * (head_dim / 2);
    for (int64_t c = 0; c < columns; ++c) result[row * columns + c] = values[source * columns + c];
  }
  return result;
}

std::string Utf8(uint32_t code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// GPT-2's alphabet: printable bytes stand for themselves, the others for the code points from 256 on, in
// order.
std::vector<std::string> ByteTokens() {
  std::vector<std::string> tokens;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    tokens.push_back(Utf8(printable ? byte : next++));
  }
  return tokens;
}

void SetVocabulary(GgufBuilder& builder, const TinyLlamaOptions& options) {
  constexpr int32_t kNormal = 1;
  constexpr int32_t kControl = 3;
  constexpr int32_t kUnused = 5;
  std::vector<std::string> tokens = ByteTokens();
  std::vector<std::string> merges;
  for (const std::string_view merge : kTinyMerges) {
    merges.emplace_back(merge);
    const std::size_t space = merge.find(' ');
    tokens.push_back(std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1)));
  }
  std::vector<int32_t> types(tokens.size(), kNormal);
  const auto end_of_text = static_cast<uint32_t>(tokens.size());
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(control);
    types.push_back(kControl);
  }
  if (!options.control_token.empty()) {
    tokens.push_back(options.control_token);
    types.push_back(kControl);
  }
  LH_CHECK(options.vocab_size >= static_cast<int64_t>(tokens.size()));
  while (static_cast<int64_t>(tokens.size()) < options.vocab_size) {
    tokens.push_back(fmt::format("[PAD{}]", tokens.size()));
    types.push_back(kUnused);
  }
  builder.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.pre", "gpt-2")
      .Set("tokenizer.ggml.tokens", tokens)
      .Set("tokenizer.ggml.token_type", types)
      .Set("tokenizer.ggml.merges", merges)
      .Set("tokenizer.ggml.bos_token_id", end_of_text)
      .Set("tokenizer.ggml.eos_token_id", end_of_text + 2)
      .Set("tokenizer.ggml.add_bos_token", false);
  if (!options.chat_template.empty()) builder.Set("tokenizer.chat_template", options.chat_template);
}

void SetHyperparameters(GgufBuilder& builder, const TinyLlamaOptions& options) {
  const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
  builder.Set("general.architecture", "llama")
      .Set("general.name", "tiny")
      .Set("llama.context_length", u32(options.context_length))
      .Set("llama.embedding_length", u32(options.embed))
      .Set("llama.block_count", u32(options.n_layers))
      .Set("llama.feed_forward_length", u32(options.ffn))
      .Set("llama.attention.head_count", u32(options.n_heads))
      .Set("llama.attention.head_count_kv", u32(options.n_kv_heads))
      .Set("llama.attention.layer_norm_rms_epsilon", options.rms_epsilon)
      .Set("llama.rope.freq_base", options.rope_base)
      .Set("llama.rope.dimension_count", u32(options.head_dim))
      .Set("llama.vocab_size", u32(options.vocab_size));
  if (options.n_heads * options.head_dim != options.embed) {
    builder.Set("llama.attention.key_length", u32(options.head_dim))
        .Set("llama.attention.value_length", u32(options.head_dim));
  }
}

// Adds one tensor after another in the order that the header states.
class TensorWriter {
 public:
  TensorWriter(GgufBuilder& builder, const TinyLlamaOptions& options)
      : builder_(builder), options_(options) {}

  void Matrix(const std::string& name, int64_t rows, int64_t columns, bool rotary = false) {
    std::vector<float> values = TinyLlamaValues(options_.seed, name, rows * columns, columns);
    if (rotary) values = InterleavePairs(values, options_.head_dim, columns);
    builder_.Tensor(name, options_.weight_type, {rows, columns}, values);
  }
  void Vector(const std::string& name, int64_t size, bool rotary = false) {
    std::vector<float> values = TinyLlamaValues(options_.seed, name, size, 0);
    if (rotary) values = InterleavePairs(values, options_.head_dim, 1);
    builder_.Tensor(name, DType::kF32, {size}, values);
  }

 private:
  GgufBuilder& builder_;
  const TinyLlamaOptions& options_;
};

}  // namespace

std::vector<float> TinyLlamaValues(uint64_t seed, std::string_view name, int64_t n, int64_t columns) {
  const bool is_norm = name.ends_with("norm.weight");
  const bool is_bias = name.ends_with(".bias");
  const bool is_rotary = name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
  float scale = 0.125f;
  if (name == "token_embd.weight") {
    scale = 0.5f;
  } else if (!is_norm && !is_bias) {
    LH_CHECK(columns > 0);
    scale = static_cast<float>((is_rotary ? 2.5 : 1.7) / std::sqrt(static_cast<double>(columns)));
  }
  const float centre = is_norm ? 1.0f : 0.0f;
  const uint64_t start = seed ^ Fnv1a(name);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = static_cast<float>(SplitMix64(start, i) >> 40) * 0x1p-23f - 1.0f;
    values[i] = centre + scale * x;
  }
  return values;
}

GgufBuilder TinyLlamaBuilder(const TinyLlamaOptions& options) {
  LH_CHECK(options.head_dim % 2 == 0 && options.n_heads % options.n_kv_heads == 0);
  const int64_t embed = options.embed;
  const int64_t q = options.n_heads * options.head_dim;
  const int64_t kv = options.n_kv_heads * options.head_dim;
  GgufBuilder builder;
  SetHyperparameters(builder, options);
  if (options.vocabulary) SetVocabulary(builder, options);

  TensorWriter tensors(builder, options);
  tensors.Matrix("token_embd.weight", options.vocab_size, embed);
  for (int64_t layer = 0; layer < options.n_layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    tensors.Vector(block + "attn_norm.weight", embed);
    tensors.Matrix(block + "attn_q.weight", q, embed, /*rotary=*/true);
    tensors.Matrix(block + "attn_k.weight", kv, embed, /*rotary=*/true);
    tensors.Matrix(block + "attn_v.weight", kv, embed);
    tensors.Matrix(block + "attn_output.weight", embed, q);
    if (options.attention_biases) {
      tensors.Vector(block + "attn_q.bias", q, /*rotary=*/true);
      tensors.Vector(block + "attn_k.bias", kv, /*rotary=*/true);
      tensors.Vector(block + "attn_v.bias", kv);
      tensors.Vector(block + "attn_output.bias", embed);
    }
    tensors.Vector(block + "ffn_norm.weight", embed);
    tensors.Matrix(block + "ffn_gate.weight", options.ffn, embed);
    tensors.Matrix(block + "ffn_up.weight", options.ffn, embed);
    tensors.Matrix(block + "ffn_down.weight", embed, options.ffn);
  }
  tensors.Vector("output_norm.weight", embed);
  if (!options.tied) tensors.Matrix("output.weight", options.vocab_size, embed);
  return builder;
}

std::vector<std::byte> TinyLlama(const TinyLlamaOptions& options) {
  return TinyLlamaBuilder(options).Build();
}

}  // namespace longheads
