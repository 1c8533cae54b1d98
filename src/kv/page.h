// The unit of the key/value store: 256 tokens of one layer and KV head. Keys arrive on the plane their method
// wants; nothing here knows rotations or methods.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/result.h"
#include "kv/frame_store.h"
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

// Laid out as kv/page_layout.h says. A page that is full, or shared by two sequences, does not change any
// more. All but what a PinnedPage shows is the pool's.
class KvPage {
 private:
  friend class KvPool;
  enum class Io : uint8_t { kNone, kReading, kWriting };
  // It came before anybody asked, and nobody has yet: for a plan, or since it was foreseen; kInVain: for a
  // plan that then did not name it.
  enum class Ahead : uint8_t { kNo, kPlanned, kForeseen, kInVain };
  // Not on disk as it is in memory, and so dirty: more is about to be added to it, or it is filled.
  enum class Unwritten : uint8_t { kNo, kOpen, kFilled };

  // Beside the count of pins. Readers may pin a page that is kReady without the pool's lock; it becomes so,
  // and is no longer, with the lock held. Since it was last considered for leaving it was pinned or brought
  // (kUsed), planned and not pinned yet (kPlanned), and somebody waited who pins it next (kAwaited).
  static constexpr uint32_t kReady = uint32_t{1} << 31;
  static constexpr uint32_t kUsed = uint32_t{1} << 30;
  static constexpr uint32_t kPlanned = uint32_t{1} << 29;
  static constexpr uint32_t kAwaited = uint32_t{1} << 28;
  static constexpr uint32_t kPins = kAwaited - 1;
  bool pinned() const { return (pins_.load(std::memory_order_acquire) & kPins) != 0; }
  bool planned() const { return (pins_.load(std::memory_order_relaxed) & kPlanned) != 0; }

  // First what is looked at of every page that is planned, and of its neighbours: Fetch.
  std::atomic<uint32_t> pins_ = 0;
  uint32_t planned_at_ = 0;  // KvPool::n_plans_ as the last of them named it; 0: none did
  Io io_ = Io::kNone;
  Ahead ahead_ = Ahead::kNo;
  bool packs_ = true;  // as far as is known: it was never tried in vain
  // Whether plans named it: a bit for each of the eight rounds (KvPool::IsOfThisRound) that end with the one
  // of planned_at_, which has the lowest.
  static constexpr uint32_t kRounds = 8;
  uint8_t named_ = 0;
  // How many generated tokens' plans named it since it came, up to kMostPlans, less how often it was passed
  // over since: what is read again and again stays longer than what was read last. kUnplanned: none did.
  static constexpr int8_t kUnplanned = -1;
  static constexpr int8_t kMostPlans = 4;
  int8_t plans_ = kUnplanned;
  // Neighbours among the pages in memory, the one used longest ago first.
  KvPage* older_ = nullptr;
  KvPage* newer_ = nullptr;
  // Where it lies as it is, or packed: in one of them, and in none where it is on disk alone, or nothing was
  // written to it yet. Both while it is read to be packed.
  PageFrame frame_;
  PageFrame packed_;
  bool in_memory() const { return (frame_ || packed_) && io_ != Io::kReading; }

  Unwritten unwritten_ = Unwritten::kNo;
  bool dirty() const { return unwritten_ != Unwritten::kNo; }
  bool awaited_ = false;  // somebody sleeps until its reading ends
  bool packed_there_ = false;
  int keepers_ = 0;                    // those for whom it goes only where nothing else can
  std::optional<uint32_t> for_token_;  // KvPool::KeepForToken, which counts as one: the table
  PageFrame image_;                    // packed, as it goes to disk; while it does
  std::shared_ptr<PageFile> file_;     // null: nowhere on disk
  uint64_t offset_ = 0;
  std::optional<uint64_t> next_place_;  // of the pool's file, for when it is written
  uint64_t checksum_ = 0;
  std::optional<Error> failed_;  // why it did not come; for the next who asks

  // Asks for what a plan looks at, all at once: one after the other, each would be waited for.
  void Fetch() const {
    __builtin_prefetch(&pins_);
    __builtin_prefetch(&packed_);
  }
  // And for what is changed in its neighbours where it moves among them.
  void FetchNeighbours() const {
    __builtin_prefetch(older_, /*rw=*/1);
    __builtin_prefetch(newer_, /*rw=*/1);
  }
};

}  // namespace longheads
