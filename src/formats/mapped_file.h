// A regular file mapped into memory, read-only. The file must not shrink while it is mapped: the system
// answers an access past the new end with SIGBUS.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace longheads {

class MappedFile {
 public:
  // Refuses what is missing, empty, unreadable or no regular file; the message names the path and the way
  // out.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }  // begins at a page

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace longheads
