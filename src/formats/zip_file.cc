#include "formats/zip_file.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <memory>

#include "base/bytes.h"

namespace longheads {
namespace {

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;

Result<Archive> Open(const std::string& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  return InvalidInput(fmt::format("{}: cannot be read as a zip archive: {}", path, reason));
}

}  // namespace

Result<std::vector<std::string>> ZipFileNames(const std::string& archive) {
  LH_ASSIGN(const Archive opened, Open(archive));
  std::vector<std::string> names;
  const zip_int64_t n = zip_get_num_entries(opened.get(), 0);
  for (zip_int64_t i = 0; i < n; ++i) {
    const char* const name = zip_get_name(opened.get(), static_cast<zip_uint64_t>(i), 0);
    if (name != nullptr && *name != '\0' && !std::string_view(name).ends_with('/')) names.emplace_back(name);
  }
  return names;
}

Result<std::string> ReadZippedFile(const std::string& archive, const std::string& name, uint64_t most_bytes) {
  const std::string place = fmt::format("{}: {}", archive, name);
  const auto refused = [&](const char* reason) {
    return InvalidInput(fmt::format("{}: cannot be unpacked: {}", place, reason));
  };
  const auto too_large = [&] {
    return InvalidInput(fmt::format("{}: is larger than {}; unpack the archive and name its folder instead",
                                    place, FormatBytes(most_bytes)));
  };
  LH_ASSIGN(const Archive opened, Open(archive));
  zip_stat_t stat;
  if (zip_stat(opened.get(), name.c_str(), 0, &stat) != 0) return refused(zip_strerror(opened.get()));
  if ((stat.valid & ZIP_STAT_SIZE) != 0 && stat.size > most_bytes) return too_large();
  const std::unique_ptr<zip_file_t, Discard> file(zip_fopen(opened.get(), name.c_str(), 0));
  if (!file) return refused(zip_strerror(opened.get()));

  std::string bytes;
  constexpr std::size_t kPiece = 1 << 20;
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kPiece);
    const zip_int64_t n = zip_fread(file.get(), bytes.data() + before, kPiece);
    if (n < 0) return refused(zip_file_strerror(file.get()));
    bytes.resize(before + static_cast<std::size_t>(n));
    if (bytes.size() > most_bytes) return too_large();
    if (n == 0) return bytes;
  }
}

}  // namespace longheads
