#include "cli/out_file.h"

#include <fmt/format.h>

#include <filesystem>

namespace longheads {

Status CheckNotInput(const char* flag, const std::string& out, const std::string& input, const char* what) {
  std::error_code missing;  // then they are two files
  if (!std::filesystem::equivalent(out, input, missing)) return {};
  return InvalidInput(fmt::format("{} {} is {} itself: name another file", flag, out, what));
}

}  // namespace longheads
