// Where in memory pages of a store lie: who leaves for whom, and what lies packed.

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "kv/pool.h"

namespace longheads {
namespace {

// Pages that one look for room moves at most, or that one asks to move to the front, while everybody waits.
constexpr int64_t kMostChances = 64;
// And that one looks at, from the newest on, for one that is done with: so many to choose from, and more
// until there is one.
constexpr int64_t kLooks = 128;
constexpr int64_t kMostLooks = 1024;
// Frames for pages that are read to be packed: the least that there may be, and how many of them the pages
// that tokens are added to leave alone.
constexpr int64_t kLeastLanding = 8;
constexpr int64_t kSpareLanding = 32;

}  // namespace

PageFrame KvPool::FreeFrame(FrameStore& store) {
  if (PageFrame frame = store.TakeFree()) return frame;
  while (on_disk() && FrameBytes() + static_cast<uint64_t>(store.frame_bytes()) > most_bytes_) {
    FrameStore& other = frames_.n_free() > 0 ? frames_ : packed_;
    if (other.n_free() == 0) return {};
    Discard(other.TakeFree());
  }
  PageFrame frame = store.New();
  SeeWhatPresses();
  return frame;
}

void KvPool::GiveBack(PageFrame frame) {
  FrameStore& store = *frame.store();
  // All pages were pinned, or the memory became less.
  if (&store == &landing_ ? store.n_frames() > MostLanding() : HasSurplus()) {
    Discard(std::move(frame));
  } else {
    store.GiveBack(std::move(frame));
  }
}

void KvPool::Discard(PageFrame frame) {
  FrameStore& store = *frame.store();
  store.ExchangeForLast(frame);
  int64_t chances = kMostChances;
  store.ForHoldersBehind(frame, [&](KvPage& page) { return Move(page, frame) || --chances == 0; });
  store.Discard(std::move(frame));
}

bool KvPool::Move(KvPage& page, PageFrame& frame) {
  uint32_t pins = 0;
  const bool is_packed = frame.store() == &packed_;
  PageFrame& now = is_packed ? page.packed_ : page.frame_;
  // Or it left its frame, which another page is about to have.
  const bool is_behind = now && now.store() == frame.store() && now.IsBehind(frame);
  if (!is_behind || page.io_ != KvPage::Io::kNone || !Retire(page, &pins)) return false;
  const PackedBf16Places places(geometry_.head_dim);
  std::memcpy(frame.data(), now.data(),
              static_cast<std::size_t>(is_packed ? places.words_bytes : geometry_.PageStride()));
  if (is_packed) std::memcpy(frame.side(), now.side(), static_cast<std::size_t>(places.rest_bytes()));
  frame.store()->SetHolder(frame, &page);
  std::swap(now, frame);
  page.pins_.fetch_or(pins, std::memory_order_release);  // nobody had it pinned
  return true;
}

void KvPool::GiveBackFrames(KvPage& page) {
  if (page.frame_) GiveBack(std::move(page.frame_));
  if (page.packed_) GiveBack(std::move(page.packed_));
}

void KvPool::DiscardSurplus() {
  for (FrameStore* const store : {&packed_, &frames_}) {
    while (HasSurplus() && store->n_free() > 0) Discard(store->TakeFree());
  }
  const bool spare = SparesKept();
  KvPage* const last = newest_;
  for (KvPage *next = oldest_, *page = nullptr; HasSurplus() && next != nullptr;) {
    page = std::exchange(next, next == last ? nullptr : next->newer_);
    if (PageFrame left = Leave(*page, spare)) Discard(std::move(left));
  }
  while (landing_.n_frames() > MostLanding() && landing_.n_free() > 0) landing_.Discard(landing_.TakeFree());
}

// A thirty-second of what memory holds, within bounds.
int64_t KvPool::MostLanding() const { return std::clamp(most_frames_ / 32, kLeastLanding, kMostLanding); }

bool KvPool::PassOver(KvPage& page) {
  const uint32_t pins = page.pins_.fetch_and(~(KvPage::kUsed | KvPage::kPlanned), std::memory_order_relaxed);
  if ((pins & KvPage::kPlanned) != 0) return true;
  if (page.ahead_ == KvPage::Ahead::kInVain) return false;
  if (page.plans_ == KvPage::kUnplanned) return (pins & KvPage::kUsed) != 0;
  if (page.plans_ == 0) return false;
  --page.plans_;
  return true;
}

PageFrame KvPool::EvictOne(Evict which, const FrameStore* from) {
  const bool spare = which == Evict::kSparingKept && SparesKept();
  // Who pins a page that is ready leaves the order as it is: the page moves when its turn to leave comes.
  int64_t chances = kMostChances;
  bool moved = false;
  bool first = true;  // that could leave
  do {
    if (std::exchange(moved, false)) chances = 0;
    KvPage* const last = newest_;
    KvPage* next = oldest_;
    while (next != nullptr) {
      KvPage* const page = next;
      next = page == last ? nullptr : page->newer_;
      if (next != nullptr && next->newer_ != nullptr) next->newer_->Fetch();  // for the turn after the next
      if (first && MayLeave(*page, spare)) {
        first = false;
        if (IsOfThisRound(*page)) {
          if (PageFrame left = EvictDone(spare, from)) return left;
        }
      }
      if (from != nullptr && page->frame_.store() != from) continue;
      if (chances > 0 && PassOver(*page)) {
        Touch(*page);
        --chances;
        moved = true;
        if (packs() && page->frame_.store() == &frames_ && Pack(*page)) return std::move(page->frame_);
        continue;
      }
      if (PageFrame left = Leave(*page, spare)) return left;
    }
  } while (moved);
  return {};
}

PageFrame KvPool::EvictDone(bool spare_kept, const FrameStore* from) {
  uint32_t& none_at = none_done_at_[from != nullptr ? 1 : 0];
  if (none_at == n_plans_) return {};
  const uint32_t n_of_layer = n_round_ / static_cast<uint32_t>(geometry_.n_layers);
  KvPage* rarest = nullptr;
  int fewest = 0;
  KvPage* next = newest_;
  for (int64_t n = 0; next != nullptr && n < (rarest != nullptr ? kLooks : kMostLooks); ++n) {
    KvPage* const page = std::exchange(next, next->older_);
    // Neither what this layer may still read nor what comes next, nor what is to stay for another round.
    const uint32_t since = n_plans_ - page->planned_at_;
    const bool is_done =
        IsOfThisRound(*page) ? since >= n_of_layer && since < n_round_ / 2 : page->plans_ <= 0;
    if (!is_done || page->planned() || page->pinned() || !MayLeave(*page, spare_kept)) continue;
    if (from != nullptr && page->frame_.store() != from) continue;
    const int n_named = std::popcount(NamedUntilNow(*page));
    if (rarest != nullptr && n_named >= fewest) continue;
    rarest = page;
    fewest = n_named;
  }
  if (rarest != nullptr) return Leave(*rarest, spare_kept);  // unless somebody pins it now
  none_at = n_plans_;
  return {};
}

bool KvPool::MayPack(const KvPage& page) {
  return page.frame_ && !page.dirty() && page.io_ == KvPage::Io::kNone && page.packs_ && !page.pinned();
}

bool KvPool::Pack(KvPage& page) {
  if (!MayPack(page)) return false;
  PageFrame packed = packed_.TakeFree();
  try {
    // Of those that go back to the system, what the page leaves is more than what it takes so.
    if (!packed)
      packed = page.frame_.store() == &frames_ ? packed_.New() : Vacate(packed_, Evict::kSparingKept);
  } catch (const std::bad_alloc&) {
  }
  if (!packed) return false;
  // To have made room it may have left itself.
  if (MayPack(page) && PackInto(page, packed)) return true;
  GiveBack(std::move(packed));
  return false;
}

bool KvPool::PackInto(KvPage& page, PageFrame& packed) {
  uint32_t pins = 0;
  if (!Retire(page, &pins)) return false;
  page.pins_.fetch_or(pins & (KvPage::kUsed | KvPage::kPlanned), std::memory_order_relaxed);  // it stays
  page.packs_ = layout_->Pack(page.frame_.data(), {packed.data(), packed.side()});
  if (!page.packs_) return false;
  SetFrame(page, std::move(packed));
  return true;
}

PageFrame KvPool::Exchange(PageFrame& packed) {
  int64_t chances = kMostChances;
  for (KvPage* page = oldest_; page != nullptr && chances > 0; page = page->newer_, --chances) {
    if (page->frame_.store() != &frames_ || !MayPack(*page)) continue;
    if (PackInto(*page, packed)) return std::move(page->frame_);
  }
  return {};
}

void KvPool::PackSome(std::span<KvPage* const> pages, std::size_t most) {
  std::size_t n = 0;
  for (KvPage* const page : pages) {
    if (n == most || FrameBytes() + static_cast<uint64_t>(packed_.frame_bytes()) <= most_bytes_) return;
    if (!page->frame_ || !Pack(*page)) continue;
    PageFrame frame = std::move(page->frame_);
    if (frame.store() == &frames_) {
      Discard(std::move(frame));
    } else {
      landing_.GiveBack(std::move(frame));
    }
    ++n;
  }
}

PageFrame KvPool::Vacate(FrameStore& store, Evict which) {
  for (;;) {
    PageFrame left;
    if (&store == &landing_) left = EvictOne(which, &frames_);
    if (!left) left = EvictOne(which);
    if (!left) return {};
    if (left.store() == &store && !HasSurplus()) return left;
    if (&store == &frames_ && left.store() == &packed_ && !HasSurplus()) {
      if (PageFrame frame = Exchange(left)) return frame;
    }
    Discard(std::move(left));
    if (PageFrame frame = FreeFrame(store)) return frame;
  }
}

bool KvPool::MayLeave(const KvPage& page, bool spare_kept) {
  return !page.dirty() && page.io_ == KvPage::Io::kNone && !(spare_kept && page.keepers_ > 0);
}

PageFrame KvPool::Leave(KvPage& page, bool spare_kept) {
  if (page.dirty() || page.io_ != KvPage::Io::kNone) return {};
  if (spare_kept && page.keepers_ > 0) {
    Touch(page);  // not to be met at every look for room
    return {};
  }
  if (!Retire(page)) return {};
  page.ahead_ = KvPage::Ahead::kNo;  // in vain
  page.plans_ = KvPage::kUnplanned;
  Unlink(page);
  return std::move(page.packed_ ? page.packed_ : page.frame_);
}

PageFrame KvPool::TakeFrame(std::unique_lock<std::mutex>& lock) {
  // Of writes that an earlier request began, and that ended after it did. The pages are tried again.
  write_error_.reset();
  FrameStore& store = generating_ && landing_.n_free() > kSpareLanding ? landing_ : frames_;
  for (;;) {
    DiscardSurplus();
    if (PageFrame frame = FreeFrame(store)) return frame;
    if (PageFrame frame = Vacate(store, Evict::kSparingKept)) return frame;
    if (write_error_) {
      const Error error = *std::exchange(write_error_, std::nullopt);
      throw PageError(error);
    }
    if (!WriteSome(lock, /*open_too=*/n_writing_ == 0) && !AnyUnderWay()) {
      if (write_error_) continue;
      if (PageFrame frame = Vacate(store, Evict::kAny)) return frame;
      PageFrame frame = store.New();  // all are pinned, which is only for the moment
      SeeWhatPresses();
      return frame;
    }
    if (AnyUnderWay()) AwaitChange(lock);
  }
}

void KvPool::Touch(KvPage& page) {
  if (newest_ == &page) return;
  Unlink(page);
  page.older_ = newest_;
  page.newer_ = nullptr;
  (newest_ != nullptr ? newest_->newer_ : oldest_) = &page;
  newest_ = &page;
}

void KvPool::Demote(KvPage& page) {
  if (oldest_ == &page) return;
  Unlink(page);
  page.older_ = nullptr;
  page.newer_ = oldest_;
  (oldest_ != nullptr ? oldest_->older_ : newest_) = &page;
  oldest_ = &page;
}

void KvPool::Unlink(KvPage& page) {
  if (page.older_ == nullptr && page.newer_ == nullptr && oldest_ != &page) return;
  (page.older_ != nullptr ? page.older_->newer_ : oldest_) = page.newer_;
  (page.newer_ != nullptr ? page.newer_->older_ : newest_) = page.older_;
  page.older_ = page.newer_ = nullptr;
}

void KvPool::Settle(KvPage& page, PageFrame frame) {
  SetFrame(page, std::move(frame));
  Touch(page);
}

void KvPool::SetFrame(KvPage& page, PageFrame frame) {
  frame.store()->SetHolder(frame, &page);
  (frame.store() == &packed_ ? page.packed_ : page.frame_) = std::move(frame);
}

}  // namespace longheads
