// Writes down what raw_file.h does to the files of a folder, and says what a power loss could have left of
// them: what was synced is there, of what was not any part may be. Names last once their folder was synced;
// until then the first few changes of names are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/raw_file.h"

namespace longheads {

// The files of a folder.
using FolderImage = std::map<std::string, std::vector<std::byte>>;

FolderImage ReadFolder(const std::string& folder);
// Makes the folder hold these files and no others.
void WriteFolder(const std::string& folder, const FolderImage& image);

class WrittenFiles : public FileFaults {
 public:
  // From now on; the files that are there already are taken to be on disk.
  explicit WrittenFiles(const std::string& folder);
  ~WrittenFiles() override;

  // To be called between operations: what came before has happened as far as its caller can tell.
  void Mark();
  // Nothing is written down any more.
  void Stop();

  Verdict Before(const FileOperation&) override { return {}; }
  void After(const FileOperation& operation, int64_t done) override;

  int n_syncs() const;
  // Calls check(image, marks) with what may be left by a power loss before each sync ends and after all of
  // it; `marks` are those that came before. Up to 2^8 subsets of what was not synced, then samples; writes
  // are also torn at sectors. As if the sync of number `ignored` (from 0) had not been there. Ends early
  // where check returns false; true if it never did.
  using Check = std::function<bool(const FolderImage& image, int marks)>;
  bool ForEachPowerLoss(std::optional<int> ignored, const Check& check) const;

 private:
  enum class Kind { kWrite, kTruncate, kSync, kCreate, kRename, kRemove, kSyncFolder, kMark };
  struct Event {
    Kind kind;
    int file = -1;
    uint64_t offset = 0;  // kTruncate: the size
    std::vector<std::byte> bytes = {};
    std::string name = {};
    std::string to = {};
  };
  class Replay;

  int FileOf(int descriptor);

  std::string folder_;
  mutable std::mutex mutex_;
  bool stopped_ = false;
  std::map<uint64_t, int> file_of_inode_;
  std::map<std::string, int> names_before_;           // when this began
  std::vector<std::vector<std::byte>> bytes_before_;  // [file]
  std::vector<Event> events_;
};

}  // namespace longheads
