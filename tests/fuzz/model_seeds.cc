// Writes the model files that the model fuzzer starts from into a directory: tiny Llamas of both kinds of
// vocabulary, with what files declare of RoPE.
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gguf_builder.h"

int main(int argc, char** argv) {
  using namespace longheads;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  const TinyLlamaOptions tiny = {.n_layers = 1, .embed = 8, .head_dim = 2, .ffn = 8};
  std::vector<std::pair<std::string, GgufBuilder>> files;
  const auto add = [&](const std::string& name, const TinyLlamaOptions& options) -> GgufBuilder& {
    return files.emplace_back(name, TinyLlamaBuilder(options)).second;
  };
  TinyLlamaOptions biased = tiny;
  biased.attention_biases = true;
  biased.tied = false;
  TinyLlamaOptions chat = tiny;
  chat.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}";
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
    if (!builder.Write((directory / name).string())) {
      std::fprintf(stderr, "cannot write %s\n", (directory / name).c_str());
      return 1;
    }
  }
  return 0;
}
