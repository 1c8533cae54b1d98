#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace longheads {

// A directory that is removed with its content.
class TestDirectory {
 public:
  TestDirectory() {
    path_ = std::filesystem::temp_directory_path() /
            ("longheads-test-" + std::to_string(getpid()) + "-" + std::to_string(count_++));
    std::filesystem::create_directories(path_);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
};

}  // namespace longheads
