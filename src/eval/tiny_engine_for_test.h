// What the tests of this folder share: a tiny random model in a file of its own (byte-level vocabulary,
// ChatML), and text files.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "eval/model_setup.h"
#include "eval/provenance.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/test_directory.h"

namespace longheads {

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void AppendText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

inline std::string TinyModelFile(const TestDirectory& directory) {
  TinyLlamaOptions options{.seed = 7};
  options.chat_template =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
      "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "
      "endif "
      "%}";
  const std::string path = directory.File("tiny.gguf");
  EXPECT_TRUE(TinyLlamaBuilder(options).Write(path));
  return path;
}

inline Result<std::unique_ptr<Engine>> LoadTiny(const std::string& model, const std::string& attention) {
  return Engine::Load({.model_path = model, .attention = attention, .compute = "f32", .threads = 1});
}

inline std::unique_ptr<Engine> TinyEngine(const TestDirectory& directory, const std::string& attention) {
  Result<std::unique_ptr<Engine>> engine = LoadTiny(TinyModelFile(directory), attention);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

inline Provenance ExampleProvenance() {
  return {.threads = 2, .program = "longheads 1, commit 2", .machine = "a \"processor\""};
}

// With a name that needs care everywhere.
inline ModelSetup ExampleModelSetup() {
  return {.model = "a,b\xff.gguf",
          .model_bytes = 98362432,
          .fingerprint = "0123456789abcdef",
          .compute = "bf16",
          .kv = "bf16",
          .backend = "auto",
          .rope = "--rope-scale 4"};
}

}  // namespace longheads
