// The unit of the key/value store: 256 tokens of one layer and KV head. Keys arrive on the plane their method
// wants; nothing here knows rotations or methods.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>

#include "base/result.h"
#include "kv/page_file.h"
#include "kv/page_layout.h"

namespace longheads {

// What every page of a store has in common.
struct KvGeometry {
  int64_t n_layers = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  KvType type = KvType::kBF16;

  int64_t PageBytes() const { return 2 * kPageTokens * RowBytes(type, head_dim); }
  // What a page takes on disk, and in memory where it may go there.
  int64_t PageStride() const {
    constexpr int64_t kUnit = static_cast<int64_t>(kDirectAlignment);
    return (PageBytes() + kUnit - 1) / kUnit * kUnit;
  }
  int64_t PagesFor(int64_t n_tokens) const {
    return (n_tokens + kPageTokens - 1) / kPageTokens * n_layers * n_kv_heads;
  }
  // Bytes that n tokens take, in whole pages over all layers and heads.
  uint64_t BytesFor(int64_t n_tokens) const {
    return static_cast<uint64_t>(PagesFor(n_tokens)) * static_cast<uint64_t>(PageBytes());
  }
};

// Memory of one page, aligned for direct I/O.
class PageFrame {
 public:
  PageFrame() {}  // none
  // Throws std::bad_alloc. Not zeroed.
  explicit PageFrame(int64_t bytes)
      : data_(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlign))) {}

  std::byte* data() const { return data_.get(); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  static constexpr std::align_val_t kAlign{kDirectAlignment};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(static_cast<void*>(p), kAlign); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

// Laid out as kv/page_layout.h says. A page that is full, or shared by two sequences, does not change any
// more. All but what a PinnedPage shows is the pool's.
class KvPage {
 private:
  friend class KvPool;
  enum class Io : uint8_t { kNone, kReading, kWriting };

  PageFrame frame_;  // none: the page is on disk alone, or nothing was written to it yet
  int pins_ = 0;
  bool dirty_ = false;       // not on disk as it is in memory
  bool read_ahead_ = false;  // came before anybody asked, and nobody has yet
  Io io_ = Io::kNone;
  std::shared_ptr<PageFile> file_;  // null: nowhere on disk
  uint64_t offset_ = 0;
  std::optional<uint64_t> next_place_;  // of the pool's file, for when it is written
  uint64_t checksum_ = 0;
  std::optional<Error> failed_;  // why it did not come; for the next who asks
  // Neighbours among the pages in memory, the one used longest ago first.
  KvPage* older_ = nullptr;
  KvPage* newer_ = nullptr;
};

}  // namespace longheads
