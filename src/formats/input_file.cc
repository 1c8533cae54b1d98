#include "formats/input_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <utf8proc.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/bytes.h"

namespace longheads {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

}  // namespace

Result<std::string> ReadStream(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const std::size_t n = std::fread(buffer, 1, sizeof(buffer), file);
    text.append(buffer, n);
    if (text.size() > kMostBytes) {
      return InvalidInput(fmt::format("{} is larger than {}: that is more than any model reads", name,
                                      FormatBytes(kMostBytes)));
    }
    if (n == sizeof(buffer)) continue;
    if (std::ferror(file))
      return MakeError(ErrorKind::kIo, fmt::format("{}: {}", name, std::strerror(errno)));
    return text;
  }
}

Result<std::string> ReadFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return InvalidInput(fmt::format("{}: {}", path,
                                    missing ? "there is no such file; check the path" : std::strerror(errno)));
  }
  if (S_ISDIR(info.st_mode)) return InvalidInput(fmt::format("{} is a directory, not a file", path));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return InvalidInput(fmt::format("{}: {}", path, std::strerror(errno)));
  return ReadStream(file.get(), path);
}

std::string DescribeInvalidUtf8(std::string_view text) {
  const auto* const begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t n =
        utf8proc_iterate(begin + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (n < 1) {
      return fmt::format("byte 0x{:02X} at offset {} is not UTF-8", static_cast<unsigned char>(text[at]), at);
    }
    at += static_cast<std::size_t>(n);
  }
  return "";
}

Result<std::string> ReadUtf8File(const std::string& path) {
  LH_ASSIGN(std::string text, ReadFile(path));
  const std::string invalid = DescribeInvalidUtf8(text);
  if (invalid.empty()) return text;
  return InvalidInput(fmt::format(
      "{} is not UTF-8 ({}): convert it, for instance with 'iconv -f latin1 -t utf-8'", path, invalid));
}

}  // namespace longheads
