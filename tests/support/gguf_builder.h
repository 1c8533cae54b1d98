// Writes GGUF files for tests: well-formed ones of every type, deliberately wrong ones, and a complete tiny
// Llama whose weights a Python script can reproduce bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace longheads {

// Numbers of the value types in a GGUF file.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// The number of a type in a GGUF file's tensor table (ggml's).
uint32_t GgmlTypeNumber(DType type);

// float32 values as `type` stores them: F32, F16 and BF16 rounded to nearest even; Q4_0, Q4_1, Q5_0, Q5_1 and
// Q8_0 by plain rounding within each block. The K types have no simple quantiser: give their bytes.
std::vector<std::byte> EncodeTensor(DType type, std::span<const float> values);

class GgufBuilder {
 public:
  // Metadata, in the order of the calls. T is one of bool, [u]int{8,16,32,64}_t, float, double and
  // std::string, and the file's type is the same one; a vector becomes an array of that type. The same key
  // may be set twice: the file then has it twice.
  template <typename T>
  GgufBuilder& Set(std::string key, T value);
  template <typename T>
  GgufBuilder& Set(std::string key, const std::vector<T>& values);
  GgufBuilder& Set(std::string key, const char* value) { return Set(std::move(key), std::string(value)); }
  // Any type number, followed by any bytes.
  GgufBuilder& SetRaw(std::string key, uint32_t type, std::vector<std::byte> bytes);

  // shape is outermost first.
  GgufBuilder& Tensor(std::string name, DType type, std::vector<int64_t> shape, std::vector<std::byte> bytes);
  GgufBuilder& Tensor(std::string name, DType type, std::vector<int64_t> shape,
                      std::span<const float> values) {
    return Tensor(std::move(name), type, std::move(shape), EncodeTensor(type, values));
  }

  // What the table says of the tensor added last, where it shall say something else than the truth.
  struct TensorLie {
    std::optional<uint32_t> type = {};
    std::optional<uint64_t> offset = {};
    std::optional<uint32_t> n_dims = {};             // without `dims`: only this number changes
    std::optional<std::vector<uint64_t>> dims = {};  // as the file has them: innermost first
  };
  GgufBuilder& Lie(TensorLie lie);

  // The header, where it shall not be what it should.
  std::optional<uint32_t> magic;
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> metadata_count;

  uint32_t version = 3;
  uint32_t alignment = 32;  // used for the layout; Set("general.alignment", ...) announces it

  std::vector<std::byte> Build() const;
  // False where the file cannot be written.
  bool Write(const std::string& path) const;

 private:
  struct Entry {
    std::string key;
    uint32_t type;
    std::vector<std::byte> bytes;
  };
  struct TensorEntry {
    std::string name;
    DType type;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
    TensorLie lie;
  };
  std::vector<Entry> metadata_;
  std::vector<TensorEntry> tensors_;
};

// A complete Llama of a few hundred kilobytes, random and deterministic.
//
// Values. Element i (row-major) of the tensor NAME (its GGUF name) is a function of seed, NAME and i alone.
// All integers are modulo 2^64; h is FNV-1a of NAME's bytes, z is step i of SplitMix64, x is in [-1, 1):
//
//   h = 0xcbf29ce484222325; for each byte of NAME: h = (h ^ byte) * 0x100000001b3
//   z = (seed ^ h) + (i + 1) * 0x9e3779b97f4a7c15
//   z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
//   z = (z ^ (z >> 27)) * 0x94d049bb133111eb
//   z = z ^ (z >> 31)
//   x = float32(z >> 40) * 2^-23 - 1, which is exact
//
// and then, in float32 with one rounding:
//   norm weights (attn_norm, ffn_norm, output_norm)   1 + 0.125 * x
//   biases                                            0.125 * x
//   token_embd.weight                                 0.5 * x
//   attn_q.weight, attn_k.weight                      s * x,  s = float32(2.5 / sqrt(columns))
//   every other matrix                                s * x,  s = float32(1.7 / sqrt(columns))
// where s is computed in float64 and rounded once, and columns is the length of a row (the input's width).
//
// Layout. Matrices are [rows = outputs, columns = inputs], and i counts in the HUGGING FACE layout (rotary
// halves: dimension m of a head turns with m + head_dim/2). GGUF's Llama keeps pairs side by side, so rows of
// attn_q and attn_k, weights and biases, are permuted on writing: within each head (query head or key/value
// head), GGUF row 2m = HF row m and GGUF row 2m+1 = HF row m + head_dim/2. No other tensor is permuted.
// Quantised types are made from these float32 values, after the permutation (which moves whole rows).
//
// Tensors, in file order; shapes outermost first. E = embed, Q = n_heads * head_dim,
// KV = n_kv_heads * head_dim:
//   token_embd.weight [vocab_size, E]
//   for each layer N, with the prefix "blk.N.":
//     attn_norm.weight [E]
//     attn_q.weight [Q, E], attn_k.weight [KV, E], attn_v.weight [KV, E], attn_output.weight [E, Q]
//     with biases: attn_q.bias [Q], attn_k.bias [KV], attn_v.bias [KV], attn_output.bias [E]
//     ffn_norm.weight [E]
//     ffn_gate.weight [ffn, E], ffn_up.weight [ffn, E], ffn_down.weight [E, ffn]
//   output_norm.weight [E]
//   unless tied: output.weight [vocab_size, E]
//
// Vocabulary (tokenizer.ggml.model "gpt2", pre "gpt-2"): ids 0-255 are the bytes 0-255 in GPT-2's alphabet;
// the merges in kTinyMerges follow from id 256 on, each making the token after the other; then <|endoftext|>,
// <|im_start|> and <|im_end|> (control tokens; bos = <|endoftext|>, eos = <|im_end|>); then "[PADn]" for
// every further id n (unused).
struct TinyLlamaOptions {
  int64_t vocab_size = 272;  // at least 272 with a vocabulary
  int64_t n_layers = 2;
  int64_t embed = 64;
  int64_t n_heads = 4;
  int64_t n_kv_heads = 2;
  int64_t head_dim = 16;
  int64_t ffn = 96;
  int64_t context_length = 512;
  float rope_base = 10000.0f;
  float rms_epsilon = 1e-5f;
  bool tied = true;
  bool attention_biases = false;  // query, key, value and output, as Hugging Face's attention_bias
  uint64_t seed = 1;
  DType weight_type = DType::kF32;  // of the matrices; norms and biases stay F32
  bool vocabulary = true;
  std::string chat_template = "";  // none where empty
  std::string control_token = "";  // the vocabulary's token 272, a control token; none where empty
};

inline constexpr int kTinyMergeCount = 13;
extern const std::string_view kTinyMerges[kTinyMergeCount];  // "left right"

// Add to the builder, or change what is there, before building.
GgufBuilder TinyLlamaBuilder(const TinyLlamaOptions& options);
std::vector<std::byte> TinyLlama(const TinyLlamaOptions& options);

// Element values of a tensor of the tiny Llama in the Hugging Face layout; columns is 0 for vectors.
std::vector<float> TinyLlamaValues(uint64_t seed, std::string_view name, int64_t n, int64_t columns);

}  // namespace longheads
