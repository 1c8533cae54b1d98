// A regular file read and written at offsets by plain system calls, and what goes with it: locks, syncs,
// names and unlinked temporaries. Formats lie above this (formats/); reading a model by mapping it is
// formats/mapped_file.h, writing a small file whole is formats/output_file.h.
//
// Every system call here asks a test's FileFaults first, which may let it fail, shorten it, or write it down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace longheads {

// Direct I/O takes offsets, sizes and addresses that are multiples of this (it wants those of the disk's
// block, which is never larger where Linux mounts it).
inline constexpr uint64_t kDirectAlignment = 4096;

class RawFile {
 public:
  enum class Mode {
    kRead,       // must exist
    kWrite,      // read and write; must exist
    kCreate,     // read and write; must not exist
    kCreateAny,  // read and write; made where it does not exist, left as it is where it does
  };
  struct Options {
    Mode mode = Mode::kRead;
    // Past the system's cache where the file system takes it (tmpfs does not): see direct().
    bool direct = false;
    bool owner_only = false;  // a new file may be opened by its owner alone; else as the umask says
  };

  // kInvalidInput where the path is wrong (missing, a folder, a device, no permission), kIo where the system
  // refuses otherwise. Links are followed.
  static Result<RawFile> Open(const std::string& path, Options options);

  // A file of `folder` without a name: it vanishes with this object, or with the process however it ends.
  static Result<RawFile> Temporary(const std::string& folder, bool direct);

  RawFile() = default;  // no file: assign one before any other call
  RawFile(RawFile&& other) noexcept;
  RawFile& operator=(RawFile&& other) noexcept;
  ~RawFile();  // closes; what must be on disk was synced before

  // Exactly these bytes, whatever the system does in pieces. PRead and PWrite may be called by several
  // threads at once. A transfer whose offset, size and address are multiples of kDirectAlignment goes past
  // the cache where direct() holds, and so does a reading whose offset and size are those of direct_unit();
  // any other goes through it, and both see each other's bytes. Reading beyond the end is an error (kIo) that
  // says how long the file is.
  Status PRead(uint64_t offset, std::span<std::byte> to) const;
  Status PWrite(uint64_t offset, std::span<const std::byte> from) const;

  // What was written is on disk, with the size it needs. Where this fails, what lies on disk is unknown and a
  // second call would not find out (Linux forgets which pages it lost): treat the writes as lost.
  Status Sync() const;
  Status Truncate(uint64_t size) const;  // cuts or extends with zeros
  Result<uint64_t> Size() const;
  // Bytes of the disk that it takes: less than its size where it has holes. Its size where the file system
  // does not tell.
  Result<uint64_t> Allocated() const;

  // An exclusive lock that lasts as long as this object and that other processes' TryLock respects. False:
  // somebody else has it. Never waits.
  Result<bool> TryLock() const;

  // Whether `path` still names this very file (it may have been renamed, replaced or removed since).
  Result<bool> IsAt(const std::string& path) const;

  bool is_open() const { return descriptor_ >= 0; }
  bool direct() const { return direct_descriptor_ >= 0; }
  // As given to Open; of a temporary, its folder. For messages.
  const std::string& path() const { return path_; }
  // What direct I/O wants of offsets and sizes: multiples of what the disk asks for, where the system tells
  // of it (Linux 6.1), else of kDirectAlignment. For readings: a file system may have to complete what is
  // written of one of its blocks.
  uint64_t direct_unit() const { return direct_unit_; }
  // For asynchronous I/O on aligned pieces: bypasses the cache where direct() holds. Whoever uses it asks
  // InstalledFileFaults() himself.
  int descriptor() const { return direct() ? direct_descriptor_ : descriptor_; }

 private:
  struct Sizes {
    uint64_t bytes;
    uint64_t allocated;
  };

  explicit RawFile(std::string path) : path_(std::move(path)) {}
  Result<Sizes> AskSizes() const;
  void OpenDirect(bool writable);
  bool GoesDirect(uint64_t offset, const void* address, uint64_t size, uint64_t unit) const;

  std::string path_;
  int descriptor_ = -1;
  int direct_descriptor_ = -1;  // the same file, opened a second time
  uint64_t direct_unit_ = kDirectAlignment;
};

// Gives `from` the name `to`, in one step, in place of what had it. SyncFolderOf(to) makes it last.
Status RenameFile(const std::string& from, const std::string& to);
// The same, but an error where `to` exists already.
Status RenameFileToNew(const std::string& from, const std::string& to);
// No error where there is none.
Status RemoveFile(const std::string& path);
// The names of the folder that holds `path` are on disk: what was created, renamed or removed there lasts.
Status SyncFolderOf(const std::string& path);
// Bytes that this user may still write to the file system that `path` (which exists) lies on.
Result<uint64_t> FreeSpace(const std::string& path);
// Whether what is written to the file system of `path` stays in memory, as on tmpfs.
bool LiesInMemory(const std::string& path);
// Whether files of the folder cannot be read and written past the system's cache (RawFile::direct). Not where
// it cannot be tried.
bool RefusesDirect(const std::string& folder);

// Error{kIo, "PATH: cannot DOING: what the system said"}, with what to do where the disk is full;
// kOutOfMemory where there is no memory for the sentence.
Error FileError(std::string_view path, std::string_view doing, int error) noexcept;

// ---- For tests ----

enum class FileCall : uint8_t {
  kOpen,
  kReopenDirect,
  kRead,
  kWrite,
  kSync,
  kTruncate,
  kSize,
  kLock,
  kIdentity,
  kRename,
  kRemove,
  kSyncFolder,
  kFreeSpace
};

struct FileOperation {
  FileCall call;
  std::string_view path;
  int descriptor = -1;         // of calls on an open file
  uint64_t offset = 0;         // kRead, kWrite; of kTruncate the new size
  uint64_t size = 0;           // kRead, kWrite: bytes asked for
  const void* data = nullptr;  // kWrite: what is written
  std::string_view to = {};    // kRename
};

// What a test puts between this file and the system. Called by any thread.
class FileFaults {
 public:
  struct Verdict {
    int error = 0;               // an errno: the call fails with it and the system is not asked
    uint64_t most = UINT64_MAX;  // kRead, kWrite: ask for no more than so many bytes
  };
  virtual ~FileFaults() = default;
  virtual Verdict Before(const FileOperation& operation) = 0;
  // The system has done it; `done` is what it returned (bytes; of kOpen and kReopenDirect the descriptor).
  virtual void After(const FileOperation& /*operation*/, int64_t /*done*/) {}
};

// Asked from now on; null: nobody is. The caller keeps it alive, and makes no calls meanwhile.
void InstallFileFaults(FileFaults* faults);
FileFaults* InstalledFileFaults();

}  // namespace longheads
