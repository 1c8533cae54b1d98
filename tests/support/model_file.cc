#include "tests/support/model_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"

namespace longheads {

ModelFile::ModelFile(std::span<const std::byte> bytes) {
  static std::atomic<int> count{0};
  path_ = (std::filesystem::temp_directory_path() / fmt::format("longheads_{}_{}.gguf", getpid(), ++count))
              .string();
  std::ofstream file(path_, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  LH_CHECK(file.good());
}

ModelFile::~ModelFile() { std::remove(path_.c_str()); }

std::optional<std::size_t> AfterName(std::span<const std::byte> gguf, std::string_view name) {
  const uint64_t length = name.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  text += name;
  const std::string_view file(reinterpret_cast<const char*>(gguf.data()), gguf.size());
  const std::size_t at = file.find(text);
  if (at == std::string_view::npos) return std::nullopt;
  return at + text.size();
}

}  // namespace longheads
