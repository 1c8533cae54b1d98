#include "eval/benchmark_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "formats/zip_file.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

}  // namespace

Result<BenchmarkFiles> BenchmarkFiles::Open(const std::string& path, std::string origin) {
  BenchmarkFiles files;
  files.path_ = path;
  files.origin_ = std::move(origin);
  if (path.empty()) {
    return InvalidInput("--data is missing: the folder or the zip archive with the official files; " +
                        files.origin_);
  }
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    files.folder_ = path;
    const fs::path archive = fs::path(path) / "data.zip";
    if (IsFile(archive)) files.archive_ = archive.string();
  } else if (IsFile(path)) {
    files.folder_ = fs::path(path).parent_path().string();
    files.archive_ = path;
  } else {
    return InvalidInput(
        fmt::format("--data {}: there is no such folder or archive; {}", path, files.origin_));
  }
  if (!files.archive_.empty()) {
    LH_ASSIGN(files.zipped_, ZipFileNames(files.archive_));
  }
  return files;
}

Result<LineFile> BenchmarkFiles::Lines(const std::string& name) const {
  if (archive_ != path_) {
    for (const fs::path& place : {fs::path(folder_) / name, fs::path(folder_) / "data" / name}) {
      if (IsFile(place)) return LineFile::Open(place.string());
    }
  }
  const auto zipped = std::ranges::find_if(
      zipped_, [&](const std::string& entry) { return entry == name || entry.ends_with("/" + name); });
  if (zipped != zipped_.end()) return LineFile::OpenZipped(archive_, *zipped);
  return InvalidInput(fmt::format("{}: has no {}; {}", path_, name, origin_));
}

Result<BenchmarkFiles::Text> BenchmarkFiles::FindText(const std::string& given, const std::string& name,
                                                      const std::string& option) const {
  Text found{.path = given, .text = {}};
  for (const fs::path& place :
       {fs::path(folder_) / name, fs::path(folder_) / "config" / name, fs::path(folder_) / "src" / name}) {
    if (found.path.empty() && IsFile(place)) found.path = place.string();
  }
  if (found.path.empty()) {
    return InvalidInput(fmt::format("{}: has no {}, neither in config/ nor in src/; name it with {}. {}",
                                    path_, name, option, origin_));
  }
  std::ifstream in(found.path, std::ios::binary);
  if (!IsFile(found.path) || !in) {
    return InvalidInput(fmt::format("{} {}: there is no such file; {}", option, found.path, origin_));
  }
  found.text.assign(std::istreambuf_iterator<char>(in), {});
  return found;
}

}  // namespace longheads
