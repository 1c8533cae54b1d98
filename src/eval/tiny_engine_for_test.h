// A tiny random model in a file of its own, for the tests of this folder: byte-level vocabulary, ChatML.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "tests/support/gguf_builder.h"

namespace longheads {

// A directory that is removed with its content.
class TestDirectory {
 public:
  TestDirectory() {
    path_ = std::filesystem::temp_directory_path() /
            ("longheads-eval-" + std::to_string(getpid()) + "-" + std::to_string(count_++));
    std::filesystem::create_directories(path_);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
};

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

inline std::unique_ptr<Engine> TinyEngine(const TestDirectory& directory, const std::string& attention) {
  Result<std::unique_ptr<Engine>> engine = Engine::Load(
      {.model_path = TinyModelFile(directory), .attention = attention, .compute = "f32", .threads = 1});
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

}  // namespace longheads
