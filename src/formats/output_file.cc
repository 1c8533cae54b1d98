#include "formats/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/raw_file.h"

namespace longheads {
namespace {

Error CannotWrite(const std::string& path, int error) {
  return {ErrorKind::kIo, fmt::format("{}: cannot write it: {}", path, std::strerror(error))};
}

// A descriptor of a new file in `folder`, whose mode follows the umask (which mkstemp's does not); -1 and
// errno where there can be none.
int CreateBeside(const std::filesystem::path& folder, std::string& name) {
  for (int attempt = 0;; ++attempt) {
    name = folder / fmt::format(".longheads-{}-{}", getpid(), attempt);
    const int descriptor = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
}

}  // namespace

OutputFile::OutputFile(std::string path, std::string target, std::FILE* file, std::string temporary)
    : path_(std::move(path)), target_(std::move(target)), file_(file, Abandon{std::move(temporary)}) {}

void OutputFile::Abandon::operator()(std::FILE* file) const {
  std::fclose(file);
  if (!temporary.empty()) unlink(temporary.c_str());
}

Result<OutputFile> OutputFile::Create(const std::string& path) {
  struct stat old {};
  const bool exists = stat(path.c_str(), &old) == 0;
  std::string target = path;
  if (exists) {
    const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
    if (!S_ISREG(old.st_mode) || !real) {
      std::FILE* const file = std::fopen(path.c_str(), "wbe");
      if (file == nullptr) return tl::unexpected<Error>(CannotWrite(path, errno));
      return OutputFile(path, path, file, "");
    }
    target = real.get();
    // A rename asks for no right to the file itself, but whoever took that right away means it.
    if (access(target.c_str(), W_OK) != 0) return tl::unexpected<Error>(CannotWrite(path, errno));
  }
  std::string temporary;
  const int descriptor = CreateBeside(std::filesystem::path(target).parent_path(), temporary);
  std::FILE* const file = descriptor < 0 ? nullptr : fdopen(descriptor, "wb");
  if (file == nullptr) {
    const int error = errno;
    if (descriptor >= 0) {
      close(descriptor);
      unlink(temporary.c_str());
    }
    return tl::unexpected<Error>(CannotWrite(path, error));
  }
  OutputFile output(path, std::move(target), file, std::move(temporary));
  if (exists && fchmod(descriptor, old.st_mode & 07777) != 0) {
    return tl::unexpected<Error>(CannotWrite(path, errno));
  }
  return output;
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  LH_CHECK(file_);
  if (bytes.empty()) return {};  // fwrite takes no null pointer, not even of nothing
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return tl::unexpected<Error>(CannotWrite(path_, errno));
  }
  return {};
}

Status OutputFile::Commit() {
  LH_CHECK(file_);
  const std::string temporary = file_.get_deleter().temporary;
  // Synced before it is renamed: else a crash could leave the name with half of the contents.
  const bool written =
      std::fflush(file_.get()) == 0 && (temporary.empty() || fsync(fileno(file_.get())) == 0);
  if (!written) return tl::unexpected<Error>(CannotWrite(path_, errno));
  const int closed = std::fclose(file_.release());
  if (closed == 0 && (temporary.empty() || std::rename(temporary.c_str(), target_.c_str()) == 0)) {
    return temporary.empty() ? Status() : SyncFolderOf(target_);  // the name lasts too
  }
  const Error error = CannotWrite(path_, errno);
  if (!temporary.empty()) unlink(temporary.c_str());
  return tl::unexpected<Error>(error);
}

Status WriteFile(const std::string& path, std::string_view text) {
  LH_ASSIGN(OutputFile file, OutputFile::Create(path));
  LH_TRY(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

}  // namespace longheads
