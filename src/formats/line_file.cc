#include "formats/line_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <sstream>

#include "base/check.h"
#include "formats/zip_file.h"

namespace longheads {
namespace {

// More than any file of a benchmark that is shipped zipped; a limit for archives that unpack to no end.
constexpr uint64_t kMostZipped = uint64_t{4} << 30;

bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

Result<LineFile> LineFile::Open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return InvalidInput(path + ": is a folder, not a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) return MakeError(ErrorKind::kIo, fmt::format("{}: {}", path, std::strerror(errno)));
  LineFile file(path);
  int64_t number = 0;
  uint64_t begin = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!IsBlank(line)) file.lines_.push_back({begin, line.size(), number});
    begin += line.size() + 1;
  }
  if (in.bad()) return MakeError(ErrorKind::kIo, path + ": could not be read to its end");
  return file;
}

Result<LineFile> LineFile::OpenZipped(const std::string& archive, const std::string& name) {
  LineFile file(archive + ": " + name);
  LH_ASSIGN(file.bytes_, ReadZippedFile(archive, name, kMostZipped));
  file.zipped_ = true;
  const std::string_view text = file.bytes_;
  int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++number;
    if (!IsBlank(text.substr(begin, end - begin))) file.lines_.push_back({begin, end - begin, number});
    begin = end + 1;
  }
  return file;
}

Result<std::string> LineFile::Line(int64_t i) const {
  LH_CHECK(i >= 0 && i < n_lines());
  const Range& range = lines_[static_cast<std::size_t>(i)];
  if (zipped_) return bytes_.substr(range.begin, range.n_bytes);
  std::ifstream in(name_, std::ios::binary);
  std::string line(range.n_bytes, '\0');
  in.seekg(static_cast<std::streamoff>(range.begin));
  in.read(line.data(), static_cast<std::streamsize>(line.size()));
  if (!in) return MakeError(ErrorKind::kIo, PlaceOf(i) + ": cannot be read any more; was the file changed?");
  return line;
}

std::string LineFile::PlaceOf(int64_t i) const {
  return fmt::format("{}, line {}", name_, lines_[static_cast<std::size_t>(i)].number);
}

}  // namespace longheads
