// A model file on disk for as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longheads {

class ModelFile {
 public:
  explicit ModelFile(std::span<const std::byte> bytes);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Where the bytes after a name lie in a GGUF file's bytes: a key's type and value, or a tensor's count of
// dimensions. Nothing where the name is not there.
std::optional<std::size_t> AfterName(std::span<const std::byte> gguf, std::string_view name);

}  // namespace longheads
