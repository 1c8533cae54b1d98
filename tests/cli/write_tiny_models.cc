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
  TinyLlamaOptions strange = plain;
  strange.chat_template = "{{ a template nobody knows }}";
  Write(dir / "strange-template.gguf", TinyLlama(strange));
  TinyLlamaOptions chat = plain;
  chat.chat_template =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
      "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  Write(dir / "chat.gguf", TinyLlama(chat));
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
