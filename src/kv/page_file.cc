#include "kv/page_file.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"

namespace longheads {

Result<std::shared_ptr<TemporaryPageFile>> TemporaryPageFile::Create(const std::string& folder,
                                                                     uint64_t page_bytes,
                                                                     uint64_t most_bytes) {
  LH_CHECK(page_bytes > 0 && page_bytes % kDirectAlignment == 0);
  LH_ASSIGN(RawFile file, RawFile::Temporary(folder, /*direct=*/true));
  return std::shared_ptr<TemporaryPageFile>(new TemporaryPageFile(std::move(file), page_bytes, most_bytes));
}

Result<uint64_t> TemporaryPageFile::Allot() {
  std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    const uint64_t offset = free_.back();
    free_.pop_back();
    return offset;
  }
  if (most_bytes_ > 0 && end_ + page_bytes_ > most_bytes_) {
    return MakeError(
        ErrorKind::kIo,
        fmt::format("the text's keys and values need more than the {} of disk that --kv-disk-max allows",
                    FormatBytes(most_bytes_)));
  }
  // So that Free never allocates.
  if (const std::size_t n = static_cast<std::size_t>(end_ / page_bytes_) + 1; free_.capacity() < n)
    free_.reserve(n + n / 2 + 64);
  const uint64_t offset = end_;
  end_ += page_bytes_;
  return offset;
}

void TemporaryPageFile::Free(uint64_t offset) {
  std::lock_guard lock(mutex_);
  free_.push_back(offset);
}

}  // namespace longheads
