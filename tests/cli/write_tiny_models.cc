// Writes the models that the program's tests run on into a folder: write_tiny_models DIR.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/gguf_builder.h"

namespace longheads {
namespace {

void Write(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::exit(1);
  }
}

int Main(const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir);
  const TinyLlamaOptions plain{.context_length = 512};
  Write(dir / "plain.gguf", TinyLlama(plain));
  TinyLlamaOptions quantised = plain;
  quantised.weight_type = DType::kQ4_1;
  Write(dir / "quantised.gguf", TinyLlama(quantised));
  TinyLlamaOptions strange = plain;
  strange.chat_template = "{{ a template nobody knows }}";
  Write(dir / "strange-template.gguf", TinyLlama(strange));
  TinyLlamaOptions chat = plain;
  chat.chat_template =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
      "'<|im_end|>' + "
      "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  Write(dir / "chat.gguf", TinyLlama(chat));

  // What a context file of the plain one is not for.
  TinyLlamaOptions other = plain;
  other.seed = 2;
  Write(dir / "other-weights.gguf", TinyLlama(other));
  other = plain;
  other.n_layers = 3;
  Write(dir / "other-shape.gguf", TinyLlama(other));
  other = plain;
  other.vocab_size = 273;
  other.control_token = "<mem>";
  Write(dir / "other-vocabulary.gguf", TinyLlama(other));

  // More keys and values than anything else: 32 KiB a token in bfloat16, behind 2.5 MB of weights.
  Write(dir / "deep.gguf", TinyLlama({.n_layers = 16,
                                      .n_heads = 8,
                                      .n_kv_heads = 8,
                                      .head_dim = 64,
                                      .context_length = 512,
                                      .weight_type = DType::kQ8_0}));

  // What files declare of RoPE.
  GgufBuilder yarn = TinyLlamaBuilder(plain);
  yarn.Set("llama.rope.scaling.type", "yarn")
      .Set("llama.rope.scaling.factor", 4.0f)
      .Set("llama.rope.scaling.original_context_length", uint32_t{512});
  Write(dir / "yarn.gguf", yarn.Build());
  const std::vector<float> short_factors(static_cast<std::size_t>(plain.head_dim / 2), 1.5f);
  const std::vector<float> long_factors(static_cast<std::size_t>(plain.head_dim / 2), 3.0f);
  GgufBuilder longrope = TinyLlamaBuilder(plain);
  longrope.Set("llama.rope.scaling.type", "longrope")
      .Set("llama.rope.scaling.original_context_length", uint32_t{128})
      .Tensor("rope_factors_short.weight", DType::kF32, {plain.head_dim / 2}, short_factors)
      .Tensor("rope_factors_long.weight", DType::kF32, {plain.head_dim / 2}, long_factors);
  Write(dir / "longrope.gguf", longrope.Build());
  return 0;
}

}  // namespace
}  // namespace longheads

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_tiny_models DIR\n");
    return 2;
  }
  return longheads::Main(argv[1]);
}
