#include "base/raw_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace longheads {
namespace {

std::atomic<FileFaults*> installed_faults{nullptr};

// What the system returns to `call`(most bytes), asked again where a signal came between; -errno where it or
// the test refuses.
template <typename Call>
int64_t Perform(const FileOperation& operation, const Call& call) {
  FileFaults* const faults = installed_faults.load(std::memory_order_acquire);
  for (;;) {
    FileFaults::Verdict verdict;
    if (faults != nullptr) verdict = faults->Before(operation);
    int64_t done = -verdict.error;
    if (verdict.error == 0) {
      done = call(std::min(operation.size, verdict.most));
      if (done < 0) done = -errno;
      if (done >= 0 && faults != nullptr) faults->After(operation, done);
    }
    if (done != -EINTR) return done;
  }
}

// Of sizes and offsets; kDirectAlignment where the system does not tell.
uint64_t DirectUnit([[maybe_unused]] int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_offset_align > 0) {
    return std::min<uint64_t>(info.stx_dio_offset_align, kDirectAlignment);
  }
#endif
  return kDirectAlignment;
}

tl::unexpected<Error> Failed(std::string_view path, std::string_view doing, int error) {
  return tl::unexpected<Error>(FileError(path, doing, error));
}

Status StatusOf(int64_t done, std::string_view path, std::string_view doing) {
  if (done >= 0) return {};
  return Failed(path, doing, static_cast<int>(-done));
}

// A path that is wrong is the user's to mend; anything else is the system's.
tl::unexpected<Error> CannotOpen(const std::string& path, bool writing, int64_t error) {
  const std::string_view doing = writing ? "write" : "read";
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return InvalidInput(fmt::format("{}: there is no such file or folder; check the path", path));
    case EEXIST:
      return InvalidInput(fmt::format("{}: there is a file of that name already", path));
    case EACCES:
    case EPERM:
      return InvalidInput(
          fmt::format("{}: no permission to {} it; change its mode or its folder's", path, doing));
    case EROFS:
      return InvalidInput(fmt::format("{}: its file system may only be read; name another place", path));
    case EISDIR:
      return InvalidInput(fmt::format("{} is a folder; name a file", path));
    case ENXIO:
      return InvalidInput(fmt::format("{} is a socket or a device; name a regular file", path));
    default:
      return Failed(path, "open it", static_cast<int>(error));
  }
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// A descriptor or -errno.
int OpenDescriptor(FileCall call, const std::string& path, const std::string& shown, int flags,
                   mode_t mode = 0666) {
  return static_cast<int>(Perform({.call = call, .path = shown},
                                  [&](uint64_t) { return open(path.c_str(), flags | O_CLOEXEC, mode); }));
}

// What is before the process, "-" and a number. The host is named, since a folder may be shared with others,
// whose processes are none here.
std::string NamelessPrefix() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format(".longheads-pages-{}-", host.data());
}

// What processes left that were killed between giving such a file its name and removing that.
void SweepNameless(const std::string& folder, const std::string& prefix) {
  std::error_code error;
  // By hand: what a loop over a range meets on its way is thrown, and nobody waits for this.
  for (std::filesystem::directory_iterator entry(folder, error), end_of_folder;
       !error && entry != end_of_folder; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t process = 0;
    if (!name.starts_with(prefix)) continue;
    const char* const end = name.data() + name.size();
    const auto [rest, wrong] = std::from_chars(name.data() + prefix.size(), end, process);
    if (wrong != std::errc() || rest == end || *rest != '-' || process <= 0) continue;
    if (kill(process, 0) != 0 && errno == ESRCH) unlink(entry->path().c_str());
  }
}

int OpenNameless(const std::string& folder) {
  int descriptor = OpenDescriptor(FileCall::kOpen, folder, folder, O_RDWR | O_TMPFILE | O_EXCL);
  // Some file systems (overlays, NFS) know no files without a name: one is made and its name removed.
  const std::string prefix = NamelessPrefix();
  if (descriptor < 0) SweepNameless(folder, prefix);
  for (int attempt = 0; descriptor < 0; ++attempt) {
    const std::string name =
        std::filesystem::path(folder) / fmt::format("{}{}-{}", prefix, getpid(), attempt);
    descriptor = OpenDescriptor(FileCall::kOpen, name, name, O_RDWR | O_CREAT | O_EXCL);
    if (descriptor == -EEXIST) continue;
    if (descriptor < 0) break;
    const int64_t removed =
        Perform({.call = FileCall::kRemove, .path = name}, [&](uint64_t) { return unlink(name.c_str()); });
    if (removed >= 0) break;
    close(descriptor);
    return static_cast<int>(removed);
  }
  return descriptor;
}

}  // namespace

void InstallFileFaults(FileFaults* faults) { installed_faults.store(faults, std::memory_order_release); }
FileFaults* InstalledFileFaults() { return installed_faults.load(std::memory_order_acquire); }

Error FileError(std::string_view path, std::string_view doing, int error) noexcept try {
  const std::string said = fmt::format("{}: cannot {}: {}", path, doing, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return {ErrorKind::kIo, said + "; make room there or name another disk"};
  }
  return {ErrorKind::kIo, said};
} catch (const std::bad_alloc&) {
  return {ErrorKind::kOutOfMemory, "out of memory"};  // short enough to need none
}

RawFile::RawFile(RawFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      direct_descriptor_(std::exchange(other.direct_descriptor_, -1)),
      direct_unit_(other.direct_unit_) {}

RawFile& RawFile::operator=(RawFile&& other) noexcept {
  RawFile taken(std::move(other));
  std::swap(path_, taken.path_);
  std::swap(descriptor_, taken.descriptor_);
  std::swap(direct_descriptor_, taken.direct_descriptor_);
  std::swap(direct_unit_, taken.direct_unit_);
  return *this;
}

RawFile::~RawFile() {
  if (direct_descriptor_ >= 0) close(direct_descriptor_);
  if (descriptor_ >= 0) close(descriptor_);
}

Result<RawFile> RawFile::Open(const std::string& path, Options options) {
  const bool writing = options.mode != Mode::kRead;
  // O_NONBLOCK: a pipe without a writer would otherwise keep us waiting. Regular files ignore it.
  int flags = (writing ? O_RDWR : O_RDONLY) | O_NONBLOCK;
  if (options.mode == Mode::kCreate) flags |= O_CREAT | O_EXCL;
  if (options.mode == Mode::kCreateAny) flags |= O_CREAT;
  RawFile file(path);
  file.descriptor_ = OpenDescriptor(FileCall::kOpen, path, path, flags, options.owner_only ? 0600 : 0666);
  if (file.descriptor_ < 0) return CannotOpen(path, writing, -file.descriptor_);
  struct stat info {};
  const int64_t looked = Perform({.call = FileCall::kIdentity, .path = path, .descriptor = file.descriptor_},
                                 [&](uint64_t) { return fstat(file.descriptor_, &info); });
  if (looked < 0) return CannotOpen(path, writing, -looked);
  if (S_ISDIR(info.st_mode)) return CannotOpen(path, writing, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    return InvalidInput(fmt::format("{} is a pipe or a device; name a regular file", path));
  }
  if (options.direct) file.OpenDirect(writing);
  return file;
}

Result<RawFile> RawFile::Temporary(const std::string& folder, bool direct) {
  RawFile file(folder);
  file.descriptor_ = OpenNameless(folder);
  if (file.descriptor_ < 0) return CannotOpen(folder, /*writing=*/true, -file.descriptor_);
  if (direct) file.OpenDirect(/*writable=*/true);
  return file;
}

// A second open of the same file, which may have no name (any more). Where it cannot be had, all goes through
// the cache.
void RawFile::OpenDirect(bool writable) {
  direct_descriptor_ = OpenDescriptor(FileCall::kReopenDirect, fmt::format("/proc/self/fd/{}", descriptor_),
                                      path_, (writable ? O_RDWR : O_RDONLY) | O_DIRECT);
  if (direct()) direct_unit_ = DirectUnit(direct_descriptor_);
}

bool RawFile::GoesDirect(uint64_t offset, const void* address, uint64_t size, uint64_t unit) const {
  return direct() && (offset | size) % unit == 0 &&
         reinterpret_cast<uintptr_t>(address) % kDirectAlignment == 0;
}

Status RawFile::PRead(uint64_t offset, std::span<std::byte> to) const {
  LH_CHECK(is_open());
  while (!to.empty()) {
    const auto read_from = [&](int descriptor) {
      const FileOperation operation{.call = FileCall::kRead,
                                    .path = path_,
                                    .descriptor = descriptor,
                                    .offset = offset,
                                    .size = to.size()};
      return Perform(operation, [&](uint64_t most) -> int64_t {
        return pread(descriptor, to.data(), most, static_cast<off_t>(offset));
      });
    };
    const bool goes_direct = GoesDirect(offset, to.data(), to.size(), direct_unit_);
    int64_t done = read_from(goes_direct ? direct_descriptor_ : descriptor_);
    // Larger blocks than ours.
    if (done == -EINVAL && goes_direct) done = read_from(descriptor_);
    if (done < 0) {
      return StatusOf(done, path_, fmt::format("read {} at offset {}", FormatBytes(to.size()), offset));
    }
    if (done == 0) {
      return MakeError(ErrorKind::kIo,
                       fmt::format("{}: cut off: it ends before offset {}, where {} more should be", path_,
                                   offset, FormatBytes(to.size())));
    }
    offset += static_cast<uint64_t>(done);
    to = to.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

Status RawFile::PWrite(uint64_t offset, std::span<const std::byte> from) const {
  LH_CHECK(is_open());
  while (!from.empty()) {
    const auto write_to = [&](int descriptor) {
      const FileOperation operation{.call = FileCall::kWrite,
                                    .path = path_,
                                    .descriptor = descriptor,
                                    .offset = offset,
                                    .size = from.size(),
                                    .data = from.data()};
      return Perform(operation, [&](uint64_t most) -> int64_t {
        return pwrite(descriptor, from.data(), most, static_cast<off_t>(offset));
      });
    };
    const bool goes_direct = GoesDirect(offset, from.data(), from.size(), kDirectAlignment);
    int64_t done = write_to(goes_direct ? direct_descriptor_ : descriptor_);
    if (done == -EINVAL && goes_direct) done = write_to(descriptor_);
    if (done == 0) done = -ENOSPC;  // a regular file takes nothing only where nothing fits
    if (done < 0) {
      return StatusOf(done, path_, fmt::format("write {} at offset {}", FormatBytes(from.size()), offset));
    }
    offset += static_cast<uint64_t>(done);
    from = from.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

Status RawFile::Sync() const {
  LH_CHECK(is_open());
  return StatusOf(Perform({.call = FileCall::kSync, .path = path_, .descriptor = descriptor_},
                          [&](uint64_t) { return fdatasync(descriptor_); }),
                  path_, "bring it to disk");
}

Status RawFile::Truncate(uint64_t size) const {
  LH_CHECK(is_open());
  if (size > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    return Failed(path_, "change its size", EFBIG);
  }
  return StatusOf(
      Perform({.call = FileCall::kTruncate, .path = path_, .descriptor = descriptor_, .offset = size},
              [&](uint64_t) { return ftruncate(descriptor_, static_cast<off_t>(size)); }),
      path_, fmt::format("change its size to {}", FormatBytes(size)));
}

Result<RawFile::Sizes> RawFile::AskSizes() const {
  LH_CHECK(is_open());
  struct stat info {};
  LH_TRY(StatusOf(Perform({.call = FileCall::kSize, .path = path_, .descriptor = descriptor_},
                          [&](uint64_t) { return fstat(descriptor_, &info); }),
                  path_, "ask for its size"));
  constexpr uint64_t kStatBlock = 512;
  const auto bytes = static_cast<uint64_t>(info.st_size);
  const auto blocks = static_cast<uint64_t>(info.st_blocks);
  return Sizes{bytes, blocks > 0 ? blocks * kStatBlock : bytes};
}

Result<uint64_t> RawFile::Size() const {
  LH_ASSIGN(const Sizes sizes, AskSizes());
  return sizes.bytes;
}

Result<uint64_t> RawFile::Allocated() const {
  LH_ASSIGN(const Sizes sizes, AskSizes());
  return sizes.allocated;
}

Result<bool> RawFile::TryLock() const {
  LH_CHECK(is_open());
  const int64_t done = Perform({.call = FileCall::kLock, .path = path_, .descriptor = descriptor_},
                               [&](uint64_t) { return flock(descriptor_, LOCK_EX | LOCK_NB); });
  if (done >= 0) return true;
  if (done == -EWOULDBLOCK) return false;
  return Failed(path_, "lock it", static_cast<int>(-done));
}

Result<bool> RawFile::IsAt(const std::string& path) const {
  LH_CHECK(is_open());
  struct stat here {};
  struct stat there {};
  int error_there = 0;
  const int64_t done =
      Perform({.call = FileCall::kIdentity, .path = path, .descriptor = descriptor_}, [&](uint64_t) {
        if (fstat(descriptor_, &here) != 0) return -1;
        if (stat(path.c_str(), &there) == 0) return 0;
        error_there = errno;
        return error_there == ENOENT || error_there == ENOTDIR ? 0 : -1;
      });
  if (done < 0) return Failed(path, "look it up", static_cast<int>(-done));
  return error_there == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

Status RenameFile(const std::string& from, const std::string& to) {
  return StatusOf(Perform({.call = FileCall::kRename, .path = from, .to = to},
                          [&](uint64_t) { return std::rename(from.c_str(), to.c_str()); }),
                  from, fmt::format("give it the name {}", to));
}

Status RenameFileToNew(const std::string& from, const std::string& to) {
  const FileOperation operation{.call = FileCall::kRename, .path = from, .to = to};
  int64_t done = Perform(operation, [&](uint64_t) {
    return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  });
  // The file system does not know how (EINVAL, EOPNOTSUPP), or the kernel or a sandbox does not (ENOSYS): as
  // near to it as there is.
  if (done == -EINVAL || done == -EOPNOTSUPP || done == -ENOSYS) {
    done = Perform(operation, [&](uint64_t) {
      if (access(to.c_str(), F_OK) != 0) return std::rename(from.c_str(), to.c_str());
      errno = EEXIST;
      return -1;
    });
  }
  return StatusOf(done, from, fmt::format("give it the name {}", to));
}

Status RemoveFile(const std::string& path) {
  const int64_t done =
      Perform({.call = FileCall::kRemove, .path = path}, [&](uint64_t) { return unlink(path.c_str()); });
  if (done == -ENOENT) return {};
  return StatusOf(done, path, "remove it");
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = FolderOf(path);
  const int64_t done = Perform({.call = FileCall::kSyncFolder, .path = folder}, [&](uint64_t) {
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    int done_here = fsync(descriptor);
    const int error = errno;
    // Some file systems have nothing to sync in a folder and say so this way.
    if (done_here != 0 && error == EINVAL) done_here = 0;
    close(descriptor);
    errno = error;
    return done_here;
  });
  return StatusOf(done, folder, "bring its names to disk");
}

Result<uint64_t> FreeSpace(const std::string& path) {
  struct statvfs info {};
  LH_TRY(StatusOf(Perform({.call = FileCall::kFreeSpace, .path = path},
                          [&](uint64_t) { return statvfs(path.c_str(), &info); }),
                  path, "ask for the free space there"));
  return CheckedMul(info.f_bavail, info.f_frsize).value_or(std::numeric_limits<uint64_t>::max());
}

bool RefusesDirect(const std::string& folder) {
  const Result<RawFile> file = RawFile::Temporary(folder, /*direct=*/true);
  return file && !file->direct();
}

bool LiesInMemory(const std::string& path) {
  struct statfs info {};
  return statfs(path.c_str(), &info) == 0 &&
         (info.f_type == TMPFS_MAGIC || static_cast<uint32_t>(info.f_type) == RAMFS_MAGIC);
}

}  // namespace longheads
