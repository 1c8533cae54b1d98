#include "formats/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace longheads {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> CannotOpen(const std::string& path, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return InvalidInput(fmt::format("{}: there is no such file; check the path", path));
    case EACCES:
    case EPERM:
      return InvalidInput(fmt::format(
          "{}: no permission to read it; change its mode (chmod +r) or read it as another user", path));
    case ENXIO:
      return InvalidInput(fmt::format("{} is a socket or a device; name a regular file", path));
    default:
      return MakeError(ErrorKind::kIo, fmt::format("{}: cannot open it: {}", path, std::strerror(error)));
  }
}

Status CheckMappable(const std::string& path, const struct stat& info) {
  if (S_ISDIR(info.st_mode)) {
    return InvalidInput(fmt::format("{} is a directory; name the model file in it", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidInput(fmt::format(
        "{} is a pipe or a device, which cannot be mapped; copy it to a regular file first", path));
  }
  if (info.st_size == 0) {
    return InvalidInput(fmt::format("{} is empty (0 bytes); download or copy it again", path));
  }
  return {};
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a pipe without a writer would otherwise keep us waiting. Regular files ignore it.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return CannotOpen(path, errno);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return CannotOpen(path, errno);
  LH_TRY(CheckMappable(path, info));
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    const ErrorKind kind = errno == ENOMEM ? ErrorKind::kOutOfMemory : ErrorKind::kIo;
    return MakeError(kind, fmt::format("{}: cannot map its {} bytes: {}", path, size, std::strerror(errno)));
  }
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace longheads
