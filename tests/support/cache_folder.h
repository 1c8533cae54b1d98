// A user's cache folder of the test's own, not made yet, for as long as the object lives: nothing is found
// there that another run left, and nothing is left in the user's.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace longheads {

class CacheFolder {
 public:
  CacheFolder() {
    static std::atomic<int> n{0};
    path_ = std::filesystem::temp_directory_path() /
            ("longheads-cache-" + std::to_string(getpid()) + "-" + std::to_string(n++));
    if (const char* const before = std::getenv(kVariable)) before_ = before;
    setenv(kVariable, path_.c_str(), /*overwrite=*/1);
  }
  ~CacheFolder() {
    before_ ? setenv(kVariable, before_->c_str(), 1) : unsetenv(kVariable);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  static constexpr const char* kVariable = "XDG_CACHE_HOME";
  std::filesystem::path path_;
  std::optional<std::string> before_;
};

}  // namespace longheads
