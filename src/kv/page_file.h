// Where pages lie on disk: who keeps a file gives each page a place in it. What is in a page, and when it
// comes and goes, is the pool's business (kv/pool.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "base/result.h"

namespace longheads {

// All calls may come from several threads at once.
class PageFile {
 public:
  virtual ~PageFile() = default;

  virtual const RawFile& file() const = 0;
  // A place for one page: a multiple of kDirectAlignment.
  virtual Result<uint64_t> Allot() = 0;
  // The page there is not needed any more.
  virtual void Free(uint64_t offset) = 0;
  // Whether a page that changed may be written over what lies there; else it gets another place.
  virtual bool MayOverwrite(uint64_t offset) const = 0;
  // Whether places are asked for when pages are made, in the order of the text, and not when they leave
  // memory: then what the file looks like does not depend on when that was.
  virtual bool InOrderOfText() const { return false; }
  // Whether pages lie there as the pool likes; else as they are.
  virtual bool TakesPacked() const { return false; }
};

// A file without a name, which vanishes with the process however that ends.
class TemporaryPageFile final : public PageFile {
 public:
  // In `folder`, at most `most_bytes` long (0: as the disk allows); places are `page_bytes` apart.
  static Result<std::shared_ptr<TemporaryPageFile>> Create(const std::string& folder, uint64_t page_bytes,
                                                           uint64_t most_bytes);

  const RawFile& file() const override { return file_; }
  Result<uint64_t> Allot() override;
  void Free(uint64_t offset) override;
  bool MayOverwrite(uint64_t) const override { return true; }
  bool TakesPacked() const override { return true; }

 private:
  TemporaryPageFile(RawFile file, uint64_t page_bytes, uint64_t most_bytes)
      : file_(std::move(file)), page_bytes_(page_bytes), most_bytes_(most_bytes) {}

  RawFile file_;
  uint64_t page_bytes_;
  uint64_t most_bytes_;
  std::mutex mutex_;
  std::vector<uint64_t> free_;
  uint64_t end_ = 0;  // places below have been given
};

}  // namespace longheads
