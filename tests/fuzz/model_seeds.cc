// Writes the model files that the model fuzzer starts from into a directory: tiny Llamas of both kinds of
// vocabulary, with what files declare of RoPE, and with something missing.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gguf_builder.h"

namespace {

bool Write(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (out) return true;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace longheads;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  const TinyLlamaOptions tiny = {.n_layers = 1, .embed = 32, .n_heads = 2, .n_kv_heads = 1, .ffn = 32};
  std::vector<std::pair<std::string, GgufBuilder>> files;
  const auto add = [&](const std::string& name, const TinyLlamaOptions& options) -> GgufBuilder& {
    return files.emplace_back(name, TinyLlamaBuilder(options)).second;
  };
  TinyLlamaOptions biased = tiny;
  biased.attention_biases = true;
  biased.tied = false;
  TinyLlamaOptions chat = tiny;
  chat.chat_template =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
      "'<|im_end|>' "
      "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  TinyLlamaOptions bare = tiny;
  bare.vocabulary = false;
  files.reserve(16);
  add("plain", tiny);
  add("biased", biased);
  add("chat", chat);
  add("bare", bare);
  for (const char* const type : {"linear", "yarn", "none", "longrope"}) {
    add(std::string("rope-") + type, tiny)
        .Set("llama.rope.scaling.type", std::string(type))
        .Set("llama.rope.scaling.factor", 4.0f)
        .Set("llama.rope.scaling.original_context_length", uint32_t{128})
        .Set("llama.rope.scaling.attn_factor", 1.5f);
  }
  // What the frequencies are divided by.
  const std::vector<float> factors(8, 2.0f);
  add("rope-freqs", tiny).Tensor("rope_freqs.weight", DType::kF32, {8}, factors);
  add("rope-factors", tiny)
      .Set("llama.rope.scaling.original_context_length", uint32_t{128})
      .Tensor("rope_factors_short.weight", DType::kF32, {8}, factors)
      .Tensor("rope_factors_long.weight", DType::kF32, {8}, factors);
  for (const DType type : {DType::kF16, DType::kQ4_0, DType::kQ8_0}) {
    TinyLlamaOptions typed = tiny;
    typed.weight_type = type;
    add("type-" + std::to_string(static_cast<int>(type)), typed);
  }
  // SPM: unknown, begin, end, the bytes, and some pieces.
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    tokens.emplace_back(name);
    types.push_back(6);
  }
  while (tokens.size() < 272) {
    tokens.push_back("\xE2\x96\x81" + std::string(tokens.size() - 259, 'p'));
    types.push_back(1);
  }
  add("spm", bare)
      .Set("tokenizer.ggml.model", "llama")
      .Set("tokenizer.ggml.tokens", tokens)
      .Set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f))
      .Set("tokenizer.ggml.token_type", types)
      .Set("tokenizer.ggml.bos_token_id", uint32_t{1})
      .Set("tokenizer.ggml.eos_token_id", uint32_t{2})
      .Set("tokenizer.ggml.add_space_prefix", true);
  for (auto& [name, builder] : files) {
    if (!Write(directory / name, builder.Build())) return 1;
  }
  // Each name of the plain and the biased file in turn is another: what it stands for is missing, or of no
  // use.
  for (const char* const whole : {"plain", "biased"}) {
    const std::vector<std::byte> bytes = TinyLlama(whole == std::string_view("plain") ? tiny : biased);
    for (const std::string_view name : {"general.architecture",
                                        "general.name",
                                        "llama.context_length",
                                        "llama.embedding_length",
                                        "llama.block_count",
                                        "llama.feed_forward_length",
                                        "llama.attention.head_count",
                                        "llama.attention.head_count_kv",
                                        "llama.attention.layer_norm_rms_epsilon",
                                        "llama.rope.freq_base",
                                        "llama.rope.dimension_count",
                                        "llama.vocab_size",
                                        "tokenizer.ggml.model",
                                        "tokenizer.ggml.pre",
                                        "tokenizer.ggml.tokens",
                                        "tokenizer.ggml.token_type",
                                        "tokenizer.ggml.merges",
                                        "tokenizer.ggml.bos_token_id",
                                        "tokenizer.ggml.eos_token_id",
                                        "token_embd.weight",
                                        "blk.0.attn_norm.weight",
                                        "blk.0.attn_q.weight",
                                        "blk.0.attn_q.bias",
                                        "blk.0.attn_output.weight",
                                        "blk.0.ffn_norm.weight",
                                        "blk.0.ffn_down.weight",
                                        "output_norm.weight",
                                        "output.weight"}) {
      std::vector<std::byte> changed = bytes;
      const auto as_char = [](std::byte byte) { return static_cast<char>(byte); };
      const auto at = std::search(changed.begin(), changed.end(), name.begin(), name.end(),
                                  [&](std::byte byte, char c) { return as_char(byte) == c; });
      if (at == changed.end()) continue;
      *at = std::byte{'x'};
      if (!Write(directory / (std::string(whole) + "-without-" + std::string(name)), changed)) return 1;
    }
  }
  return 0;
}
