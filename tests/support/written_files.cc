#include "tests/support/written_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "base/check.h"
#include "base/checksum.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSector = 512;
constexpr std::size_t kAllSubsetsOf = 8;
constexpr int kSamples = 96;

std::vector<std::byte> ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

uint64_t InodeOf(int descriptor) {
  struct stat info {};
  LH_CHECK(fstat(descriptor, &info) == 0);
  return info.st_ino;
}

}  // namespace

FolderImage ReadFolder(const std::string& folder) {
  FolderImage image;
  for (const auto& entry : fs::directory_iterator(folder))
    image[entry.path().filename()] = ReadAll(entry.path());
  return image;
}

void WriteFolder(const std::string& folder, const FolderImage& image) {
  for (const auto& entry : fs::directory_iterator(folder)) fs::remove(entry.path());
  for (const auto& [name, bytes] : image) {
    std::ofstream file(fs::path(folder) / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    LH_CHECK(file.good());
  }
}

WrittenFiles::WrittenFiles(const std::string& folder) : folder_(folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    struct stat info {};
    LH_CHECK(stat(entry.path().c_str(), &info) == 0);
    const int file = static_cast<int>(bytes_before_.size());
    bytes_before_.push_back(ReadAll(entry.path()));
    names_before_[entry.path().filename()] = file;
    file_of_inode_[info.st_ino] = file;
  }
  InstallFileFaults(this);
}

WrittenFiles::~WrittenFiles() { Stop(); }

void WrittenFiles::Stop() {
  if (!stopped_) InstallFileFaults(nullptr);
  stopped_ = true;
}

void WrittenFiles::Mark() { events_.push_back({.kind = Kind::kMark}); }

int WrittenFiles::FileOf(int descriptor) {
  const auto found = file_of_inode_.find(InodeOf(descriptor));
  LH_CHECK(found != file_of_inode_.end());
  return found->second;
}

void WrittenFiles::After(const FileOperation& operation, int64_t done) {
  const std::lock_guard lock(mutex_);
  const std::string name = fs::path(operation.path).filename();
  switch (operation.call) {
    case FileCall::kOpen: {
      const uint64_t inode = InodeOf(static_cast<int>(done));
      if (file_of_inode_.contains(inode)) return;
      const int file = static_cast<int>(bytes_before_.size());
      bytes_before_.emplace_back();
      file_of_inode_[inode] = file;
      events_.push_back({.kind = Kind::kCreate, .file = file, .name = name});
      return;
    }
    case FileCall::kWrite: {
      const auto* const from = static_cast<const std::byte*>(operation.data);
      events_.push_back({.kind = Kind::kWrite,
                         .file = FileOf(operation.descriptor),
                         .offset = operation.offset,
                         .bytes = {from, from + done}});
      return;
    }
    case FileCall::kTruncate:
      events_.push_back(
          {.kind = Kind::kTruncate, .file = FileOf(operation.descriptor), .offset = operation.offset});
      return;
    case FileCall::kSync:
      events_.push_back({.kind = Kind::kSync, .file = FileOf(operation.descriptor)});
      return;
    case FileCall::kRename:
      events_.push_back({.kind = Kind::kRename, .name = name, .to = fs::path(operation.to).filename()});
      return;
    case FileCall::kRemove: {
      // Its number may be given to the next file.
      std::erase_if(file_of_inode_, [&](const auto& one) {
        for (const auto& entry : fs::directory_iterator(folder_)) {
          struct stat info {};
          if (stat(entry.path().c_str(), &info) == 0 && info.st_ino == one.first) return false;
        }
        return true;
      });
      events_.push_back({.kind = Kind::kRemove, .name = name});
      return;
    }
    case FileCall::kSyncFolder:
      events_.push_back({.kind = Kind::kSyncFolder});
      return;
    case FileCall::kReopenDirect:
    case FileCall::kRead:
    case FileCall::kSize:
    case FileCall::kLock:
    case FileCall::kIdentity:
    case FileCall::kFreeSpace:
      return;
  }
}

int WrittenFiles::n_syncs() const {
  return static_cast<int>(std::count_if(events_.begin(), events_.end(), [](const Event& event) {
    return event.kind == Kind::kSync || event.kind == Kind::kSyncFolder;
  }));
}

// The events before one point, told apart by whether they were synced by then.
class WrittenFiles::Replay {
 public:
  Replay(const WrittenFiles& written, std::size_t point, std::optional<std::size_t> ignored)
      : written_(written), point_(point) {
    std::map<int, std::size_t> synced;  // file -> its last sync
    std::optional<std::size_t> names_synced;
    for (std::size_t i = 0; i < point; ++i) {
      const Event& event = written.events_[i];
      if (i == ignored) continue;
      if (event.kind == Kind::kSync) synced[event.file] = i;
      if (event.kind == Kind::kSyncFolder) names_synced = i;
    }
    for (std::size_t i = 0; i < point; ++i) {
      const Event& event = written.events_[i];
      switch (event.kind) {
        case Kind::kWrite:
        case Kind::kTruncate:
          if (!synced.contains(event.file) || i > synced[event.file]) pending_.push_back(i);
          break;
        case Kind::kCreate:
        case Kind::kRename:
        case Kind::kRemove:
          if (!names_synced || i > *names_synced) ++n_pending_names_;
          ++n_names_;
          break;
        case Kind::kSync:
        case Kind::kSyncFolder:
        case Kind::kMark:
          break;
      }
    }
  }

  std::size_t n_pending() const { return pending_.size(); }
  int n_pending_names() const { return n_pending_names_; }

  // kept[i]: of the i-th pending event. With `torn`, of each such write only some sectors.
  FolderImage Build(const std::vector<bool>& kept, int n_kept_names, std::mt19937_64* torn) const {
    std::vector<std::vector<std::byte>> bytes = written_.bytes_before_;
    std::map<std::string, int> names = written_.names_before_;
    std::size_t next_pending = 0;
    int names_left = n_names_ - n_pending_names_ + n_kept_names;
    for (std::size_t i = 0; i < point_; ++i) {
      const Event& event = written_.events_[i];
      const bool pending = next_pending < pending_.size() && pending_[next_pending] == i;
      if (pending && !kept[next_pending++]) continue;
      switch (event.kind) {
        case Kind::kWrite:
          Write(event, pending ? torn : nullptr, bytes[static_cast<std::size_t>(event.file)]);
          break;
        case Kind::kTruncate:
          bytes[static_cast<std::size_t>(event.file)].resize(event.offset);
          break;
        case Kind::kCreate:
          if (names_left-- > 0) names[event.name] = event.file;
          break;
        case Kind::kRename:
          if (names_left-- > 0) {
            names[event.to] = names.at(event.name);
            names.erase(event.name);
          }
          break;
        case Kind::kRemove:
          if (names_left-- > 0) names.erase(event.name);
          break;
        case Kind::kSync:
        case Kind::kSyncFolder:
        case Kind::kMark:
          break;
      }
    }
    FolderImage image;
    for (const auto& [name, file] : names) image[name] = bytes[static_cast<std::size_t>(file)];
    return image;
  }

 private:
  static void Write(const Event& event, std::mt19937_64* torn, std::vector<std::byte>& to) {
    const uint64_t end = event.offset + event.bytes.size();
    if (to.size() < end) to.resize(end);
    for (uint64_t at = event.offset; at < end;) {
      const uint64_t sector_end = std::min(end, (at / kSector + 1) * kSector);
      if (torn == nullptr || (*torn)() % 2 == 0) {
        std::memcpy(to.data() + at, event.bytes.data() + (at - event.offset), sector_end - at);
      }
      at = sector_end;
    }
  }

  const WrittenFiles& written_;
  std::size_t point_;
  std::vector<std::size_t> pending_;
  int n_names_ = 0;
  int n_pending_names_ = 0;
};

bool WrittenFiles::ForEachPowerLoss(std::optional<int> ignored, const Check& check) const {
  std::vector<std::size_t> syncs;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (events_[i].kind == Kind::kSync || events_[i].kind == Kind::kSyncFolder) syncs.push_back(i);
  }
  std::optional<std::size_t> ignored_event;
  if (ignored) ignored_event = syncs.at(static_cast<std::size_t>(*ignored));
  std::vector<std::size_t> points = syncs;
  points.push_back(events_.size());

  std::mt19937_64 random(1);
  std::set<uint64_t> seen;  // what was checked already
  for (const std::size_t point : points) {
    const Replay replay(*this, point, ignored_event);
    const auto marks =
        static_cast<int>(std::count_if(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(point),
                                       [](const Event& event) { return event.kind == Kind::kMark; }));
    const auto check_one = [&](const std::vector<bool>& kept, int names, std::mt19937_64* torn) {
      const FolderImage image = replay.Build(kept, names, torn);
      uint64_t key = static_cast<uint64_t>(marks);
      for (const auto& [name, bytes] : image) {
        key = key * 31 + Checksum(bytes);
        key = key * 31 + Checksum(std::as_bytes(std::span(name)));
      }
      return !seen.insert(key).second || check(image, marks);
    };
    const std::size_t n = replay.n_pending();
    for (int names = 0; names <= replay.n_pending_names(); ++names) {
      std::vector<bool> kept(n, true);
      if (!check_one(kept, names, nullptr)) return false;
      if (n <= kAllSubsetsOf) {
        for (uint64_t subset = 0; subset < uint64_t{1} << n; ++subset) {
          for (std::size_t i = 0; i < n; ++i) kept[i] = (subset >> i & 1) != 0;
          if (!check_one(kept, names, nullptr)) return false;
        }
      }
      for (int sample = 0; n > 0 && sample < kSamples; ++sample) {
        // One missing, one there, or any.
        for (std::size_t i = 0; i < n; ++i)
          kept[i] = sample % 3 == 0 || (sample % 3 == 2 && random() % 2 == 0);
        if (sample % 3 != 2) kept[random() % n] = sample % 3 == 1;
        if (!check_one(kept, names, sample % 2 == 0 ? nullptr : &random)) return false;
      }
    }
  }
  return true;
}

}  // namespace longheads
