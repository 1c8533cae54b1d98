#include "kv/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/pause.h"

namespace longheads {
namespace {

// Transfers of pages that make room under way at a time: enough for a disk to be busy.
constexpr int64_t kMostWrites = 32;
// Pages that are sent for in one go.
constexpr std::size_t kMostReads = 64;
// Pages that one look for room moves at most, while everybody waits.
constexpr int64_t kMostChances = 64;

Error Damaged(const PageFile& file, uint64_t offset) {
  return {ErrorKind::kInvalidInput,
          fmt::format("{}: the page at byte {} is damaged: its checksum does not fit", file.file().path(),
                      offset)};
}

// Where a page could not be moved; also where there is no memory for the sentence.
Error WhyNot(const Status& status, const PageFile& file, uint64_t offset) noexcept try {
  return status ? Damaged(file, offset) : status.error();
} catch (const std::bad_alloc&) {
  return {ErrorKind::kOutOfMemory, "out of memory"};  // short enough to need none
}

// Pages go to disk also while one is let go, in a destructor: nothing is thrown there.
Result<uint64_t> AllotIn(PageFile& file) noexcept try { return file.Allot(); } catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Error{ErrorKind::kOutOfMemory, "out of memory"});
}

}  // namespace

PinnedPage::~PinnedPage() {
  if (pool_ != nullptr) pool_->Unpin(*page_);
}

std::shared_ptr<KvPool> KvPool::Create(const KvGeometry& geometry, const VectorKernels& conversions) {
  return std::shared_ptr<KvPool>(new KvPool(geometry, conversions));
}

KvPool::~KvPool() = default;

Status KvPool::UseDisk(const KvDiskOptions& options) {
  LH_CHECK(n_pages_ == 0 && options.file != nullptr);
  const uint64_t stride = static_cast<uint64_t>(geometry_.PageStride());
  const int64_t least_frames = std::max(kLeastPages, 2 * options.most_pinned);
  const auto least = static_cast<uint64_t>(least_frames);
  if (options.ram_bytes < least * stride) {
    return InvalidInput(
        fmt::format("--kv-ram is {}, but must be {} at least: {} pages of this model's keys and values",
                    FormatBytes(options.ram_bytes), FormatBytes(least * stride), least));
  }
  LH_ASSIGN(io_, MakePageIo(options.io, [this](const PageTransfer& transfer, const Status& status) {
              Done(transfer, status);
            }));
  frames_ = FrameStore(geometry_.PageStride());
  ram_frames_ = static_cast<int64_t>(std::min<uint64_t>(options.ram_bytes, INT64_MAX) / stride);
  least_frames_ = least_frames;
  file_ = options.file;
  on_disk_ = true;
  Reserve(0, 0);
  return {};
}

int64_t KvPool::FramesBeside(uint64_t reserved) const {
  const auto stride = static_cast<uint64_t>(geometry_.PageStride());
  const auto taken = static_cast<int64_t>(reserved / stride + (reserved % stride != 0 ? 1 : 0));
  return std::max(least_frames_, ram_frames_ - std::min(taken, ram_frames_));
}

void KvPool::Reserve(uint64_t before, uint64_t now) {
  std::lock_guard lock(mutex_);
  reserved_ += now - before;
  if (!on_disk()) return;
  most_frames_ = FramesBeside(reserved_);
  // The pages that tokens are being added to, one of each layer and head, would be written again and again.
  const int64_t n_open = geometry_.n_layers * geometry_.n_kv_heads;
  most_dirty_ = std::min(most_frames_ / 4, std::max(most_frames_ / 16, 2 * n_open));
  DiscardSurplus();
  SeeWhatPresses();
}

std::span<std::byte> KvPool::BytesOf(const KvPage& page) const {
  return {page.frame_.data(), static_cast<std::size_t>(geometry_.PageStride())};
}

// ---- Pages

std::shared_ptr<KvPage> KvPool::Own(std::unique_ptr<KvPage> page) {
  {
    std::lock_guard lock(mutex_);
    ++n_pages_;
  }
  return std::shared_ptr<KvPage>(page.release(),
                                 [pool = shared_from_this()](KvPage* p) { pool->Release(p); });
}

std::shared_ptr<PageFile> KvPool::WriteTo(std::shared_ptr<PageFile> file) {
  LH_CHECK(on_disk() && file != nullptr);
  std::lock_guard lock(mutex_);
  file_.swap(file);
  return file;
}

std::shared_ptr<PageFile> KvPool::file() const {
  std::lock_guard lock(mutex_);
  return file_;
}

void KvPool::WillWrite(KvPage& page) {
  if (!on_disk()) return;
  std::lock_guard lock(mutex_);
  if (!file_->InOrderOfText() || page.next_place_) return;
  if (page.file_ == file_ && file_->MayOverwrite(page.offset_)) return;
  const Result<uint64_t> offset = file_->Allot();
  if (!offset) throw PageError(offset.error());
  page.next_place_ = *offset;
}

std::vector<std::shared_ptr<KvPage>> KvPool::Acquire(int64_t n, ThreadPool* threads) {
  std::vector<std::shared_ptr<KvPage>> pages;
  pages.reserve(static_cast<std::size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    auto page = std::make_unique<KvPage>();
    WillWrite(*page);
    if (!on_disk()) {
      std::lock_guard lock(mutex_);
      page->frame_ = FreeFrame();
    }
    pages.push_back(Own(std::move(page)));
  }
  if (on_disk()) return pages;
  // By huge pages of the system, of which two threads would each make one for the same place.
  const int64_t together = std::max<int64_t>(1, int64_t{kHugePage} / geometry_.PageBytes());
  const auto clear = [&](int64_t task, int) {
    for (int64_t i = task * together; i < std::min(n, (task + 1) * together); ++i) {
      std::memset(pages[static_cast<std::size_t>(i)]->frame_.data(), 0,
                  static_cast<std::size_t>(geometry_.PageBytes()));
    }
  };
  const int64_t n_tasks = (n + together - 1) / together;
  if (threads != nullptr) {
    threads->Run(n_tasks, clear);
  } else {
    for (int64_t task = 0; task < n_tasks; ++task) clear(task, 0);
  }
  return pages;
}

std::shared_ptr<KvPage> KvPool::Adopt(std::shared_ptr<PageFile> file, uint64_t offset, uint64_t checksum) {
  LH_CHECK(on_disk());
  auto page = std::make_unique<KvPage>();
  page->file_ = std::move(file);
  page->offset_ = offset;
  page->checksum_ = checksum;
  return Own(std::move(page));
}

void KvPool::Release(KvPage* page) {
  const std::unique_ptr<KvPage> owned(page);
  std::unique_lock lock(mutex_);
  while (page->io_ != KvPage::Io::kNone) AwaitChange(lock);
  LH_CHECK(!page->pinned());
  --n_pages_;
  if (page->dirty_) --n_dirty_;
  if (page->keepers_ > 0) --n_kept_;
  if (page->frame_) {
    if (on_disk()) Unlink(*page);
    GiveBack(std::move(page->frame_));
  }
  if (page->file_) page->file_->Free(page->offset_);
}

uint64_t KvPool::FreeBytes() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint64_t>(frames_.n_free() * geometry_.PageBytes());
}

uint64_t KvPool::reserved_bytes() const {
  std::lock_guard lock(mutex_);
  return reserved_;
}

int64_t KvPool::n_pages() const {
  std::lock_guard lock(mutex_);
  return n_pages_;
}

int64_t KvPool::n_near() const {
  std::lock_guard lock(mutex_);
  return frames_.n_frames() - frames_.n_free();
}

KvTraffic KvPool::traffic() {
  std::unique_lock lock(mutex_);
  while (n_reading_ > 0) AwaitChange(lock);
  KvTraffic traffic = traffic_;
  for (const Count& hits : ready_hits_) traffic.hits += hits.n.load(std::memory_order_relaxed);
  return traffic;
}

void KvPool::AwaitChange(std::unique_lock<std::mutex>& lock) {
  if (io_->has_threads()) return changed_.wait(lock);
  const uint64_t n_before = n_ended_;
  const auto ended = [&] { return n_ended_.load(std::memory_order_relaxed) != n_before; };
  if (awaiting_) {
    lock.unlock();
    LookFor(kLooksForAPage, ended);
    lock = LockSoon(mutex_);
    if (!ended() && awaiting_) changed_.wait(lock);
    return;
  }
  awaiting_ = true;
  lock.unlock();
  const bool any = io_->Await();
  lock = LockSoon(mutex_);
  awaiting_ = false;
  changed_.notify_all();  // another one may have to wait for the next end
  // Another thread moves it itself, and tells of it, or is about to submit it.
  if (!any && !ended()) changed_.wait_for(lock, std::chrono::milliseconds(1));
}

// ---- Frames

PageFrame KvPool::FreeFrame() {
  if (PageFrame frame = frames_.TakeFree()) return frame;
  if (on_disk() && frames_.n_frames() >= most_frames_) return {};
  PageFrame frame = frames_.New();
  SeeWhatPresses();
  return frame;
}

void KvPool::GiveBack(PageFrame frame) {
  if (on_disk() && frames_.n_frames() > most_frames_) {  // all pages were pinned, or the memory became less
    frames_.Discard(std::move(frame));
  } else {
    frames_.GiveBack(std::move(frame));
  }
}

void KvPool::DiscardSurplus() {
  while (frames_.n_frames() > most_frames_ && frames_.n_free() > 0) frames_.Discard(frames_.TakeFree());
  const bool spare = n_kept_ <= most_frames_ / 2;
  KvPage* const last = newest_;
  for (KvPage *next = oldest_, *page = nullptr; frames_.n_frames() > most_frames_ && next != nullptr;) {
    page = std::exchange(next, next == last ? nullptr : next->newer_);
    if (PageFrame frame = Leave(*page, spare)) frames_.Discard(std::move(frame));
  }
}

bool KvPool::PassOver(KvPage& page) {
  const uint32_t pins = page.pins_.fetch_and(~(KvPage::kUsed | KvPage::kPlanned), std::memory_order_relaxed);
  if ((pins & KvPage::kPlanned) != 0) return true;
  if (page.plans_ == KvPage::kUnplanned) return (pins & KvPage::kUsed) != 0;
  if (page.plans_ == 0) return false;
  --page.plans_;
  return true;
}

PageFrame KvPool::EvictOne(Evict which) {
  const bool spare = which == Evict::kSparingKept && n_kept_ <= most_frames_ / 2;
  // Who pins a page that is ready leaves the order as it is: the page moves when its turn to leave comes.
  int64_t chances = kMostChances;
  bool moved = false;
  do {
    if (std::exchange(moved, false)) chances = 0;
    KvPage* const last = newest_;
    KvPage* next = oldest_;
    while (next != nullptr) {
      KvPage* const page = next;
      next = page == last ? nullptr : page->newer_;
      if (chances > 0 && PassOver(*page)) {
        Touch(*page);
        --chances;
        moved = true;
        continue;
      }
      if (PageFrame frame = Leave(*page, spare)) return frame;
    }
  } while (moved);
  return {};
}

PageFrame KvPool::Leave(KvPage& page, bool spare_kept) {
  if (page.dirty_ || page.io_ != KvPage::Io::kNone) return {};
  if (spare_kept && page.keepers_ > 0) {
    Touch(page);  // not to be met at every look for room
    return {};
  }
  if (!Retire(page)) return {};
  page.ahead_ = KvPage::Ahead::kNo;  // in vain
  page.plans_ = KvPage::kUnplanned;
  Unlink(page);
  return std::move(page.frame_);
}

PageFrame KvPool::TakeFrame(std::unique_lock<std::mutex>& lock) {
  // Of writes that an earlier request began, and that ended after it did. The pages are tried again.
  write_error_.reset();
  for (;;) {
    DiscardSurplus();
    if (PageFrame frame = FreeFrame()) return frame;
    if (PageFrame frame = EvictOne(Evict::kSparingKept)) return frame;
    if (write_error_) {
      const Error error = *std::exchange(write_error_, std::nullopt);
      throw PageError(error);
    }
    if (!WriteSome(lock, kMostWrites) && n_reading_ == 0 && n_writing_ == 0) {
      if (write_error_) continue;
      if (PageFrame frame = EvictOne(Evict::kAny)) return frame;
      PageFrame frame = frames_.New();  // all are pinned, which is only for the moment
      SeeWhatPresses();
      return frame;
    }
    if (n_reading_ > 0 || n_writing_ > 0) AwaitChange(lock);
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

void KvPool::Unlink(KvPage& page) {
  if (page.older_ == nullptr && page.newer_ == nullptr && oldest_ != &page) return;
  (page.older_ != nullptr ? page.older_->newer_ : oldest_) = page.newer_;
  (page.newer_ != nullptr ? page.newer_->older_ : newest_) = page.older_;
  page.older_ = page.newer_ = nullptr;
}

void KvPool::Settle(KvPage& page, PageFrame frame) {
  page.frame_ = std::move(frame);
  Touch(page);
}

// ---- To be read and written

PinnedPage KvPool::Pinned(KvPage& page) {
  PinnedPage pinned;
  pinned.pool_ = on_disk() ? this : nullptr;
  pinned.page_ = &page;
  pinned.data_ = page.frame_.data();
  return pinned;
}

bool KvPool::Bring(KvPage& page, std::unique_lock<std::mutex>& lock) {
  bool from_disk = false;
  for (;;) {
    if (page.io_ == KvPage::Io::kReading) {
      from_disk = true;
      if (io_->has_threads()) {
        page.awaited_ = true;
        came_.wait(lock);
      } else {
        AwaitChange(lock);
      }
      continue;
    }
    if (page.failed_) {
      const Error error = *std::exchange(page.failed_, std::nullopt);
      throw PageError(error);
    }
    if (page.frame_) return from_disk;
    PageFrame frame = TakeFrame(lock);
    if (page.frame_ || page.io_ == KvPage::Io::kReading) {  // another thread was quicker
      GiveBack(std::move(frame));
      continue;
    }
    if (!page.file_) {  // nothing was written to it yet
      std::memset(frame.data(), 0, static_cast<std::size_t>(geometry_.PageStride()));
      Settle(page, std::move(frame));
      return from_disk;
    }
    from_disk = true;
    page.frame_ = std::move(frame);
    page.io_ = KvPage::Io::kReading;
    ++n_reading_;
    lock.unlock();
    const PageTransfer transfer{.direction = PageTransfer::Direction::kRead,
                                .file = &page.file_->file(),
                                .offset = page.offset_,
                                .bytes = BytesOf(page),
                                .page = &page};
    Done(transfer, MovePage(transfer));
    lock = LockSoon(mutex_);
  }
}

bool KvPool::PinReady(KvPage& page) {
  uint32_t pins = page.pins_.load(std::memory_order_relaxed);
  do {
    if ((pins & KvPage::kReady) == 0) return false;
  } while (!page.pins_.compare_exchange_weak(pins, ((pins + 1) | KvPage::kUsed) & ~KvPage::kPlanned,
                                             std::memory_order_acquire, std::memory_order_relaxed));
  static std::atomic<std::size_t> n_threads{0};
  thread_local const std::size_t thread = n_threads.fetch_add(1, std::memory_order_relaxed);
  ready_hits_[thread % ready_hits_.size()].n.fetch_add(1, std::memory_order_relaxed);
  return true;
}

const std::byte* KvPool::Peek(KvPage& page) const {
  if (!on_disk()) return page.frame_.data();
  uint32_t pins = page.pins_.load(std::memory_order_relaxed);
  do {
    if ((pins & KvPage::kReady) == 0) return nullptr;
  } while (!page.pins_.compare_exchange_weak(pins, pins + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  const std::byte* const data = page.frame_.data();
  page.pins_.fetch_sub(1, std::memory_order_release);
  return data;
}

bool KvPool::Retire(KvPage& page) {
  uint32_t pins = page.pins_.load(std::memory_order_relaxed);
  return (pins & KvPage::kPins) == 0 &&
         page.pins_.compare_exchange_strong(pins, 0, std::memory_order_acquire, std::memory_order_relaxed);
}

PinnedPage KvPool::Pin(KvPage& page) {
  if (PinReady(page)) return Pinned(page);
  io_->TakeEnded();
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock = LockSoon(mutex_);
  bool from_disk = false;
  if (!page.frame_ || page.io_ == KvPage::Io::kReading || page.failed_) {
    const Clock::time_point start = Clock::now();
    from_disk = Bring(page, lock);
    traffic_.waited_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  page.pins_.fetch_add(1, std::memory_order_relaxed);
  page.pins_.fetch_and(~KvPage::kPlanned, std::memory_order_relaxed);
  page.pins_.fetch_or(KvPage::kReady | KvPage::kUsed, std::memory_order_release);
  Touch(page);
  ++(from_disk ? traffic_.misses : traffic_.hits);
  if (page.ahead_ != KvPage::Ahead::kNo) {
    ++traffic_.read_ahead_used;
    if (page.ahead_ == KvPage::Ahead::kForeseen) ++traffic_.foreseen_used;
    page.ahead_ = KvPage::Ahead::kNo;
  }
  return Pinned(page);
}

PinnedPage KvPool::Read(KvPage& page) { return on_disk() ? Pin(page) : Pinned(page); }

PinnedPage KvPool::Write(KvPage& page) {
  if (!on_disk()) return Pinned(page);
  PinnedPage pinned = Pin(page);
  std::unique_lock lock = LockSoon(mutex_);
  while (page.io_ != KvPage::Io::kNone) AwaitChange(lock);  // what goes to disk stands still
  Touch(page);                                              // what is used longest ago is written first
  if (!page.dirty_) {
    page.dirty_ = true;
    ++n_dirty_;
    SeeWhatPresses();
  }
  return pinned;
}

// So few clean pages that there might be none when room is needed.
bool KvPool::WritesPress() const {
  return frames_.n_frames() >= most_frames_ / 4 * 3 && n_dirty_ - n_writing_ > most_dirty_;
}

void KvPool::SeeWhatPresses() {
  presses_.store(frames_.n_frames() > most_frames_ || WritesPress(), std::memory_order_relaxed);
}

void KvPool::Unpin(KvPage& page) {
  if (!presses_.load(std::memory_order_relaxed)) {
    page.pins_.fetch_sub(1, std::memory_order_release);
    return;
  }
  io_->TakeEnded();
  std::unique_lock lock = LockSoon(mutex_);
  page.pins_.fetch_sub(1, std::memory_order_release);
  if (frames_.n_frames() > most_frames_ && !page.dirty_ && page.io_ == KvPage::Io::kNone && Retire(page)) {
    Unlink(page);
    GiveBack(std::move(page.frame_));
  }
  if (WritesPress()) WriteSome(lock, kMostWrites - n_writing_);
  SeeWhatPresses();
}

void KvPool::ReadAhead(std::span<KvPage* const> pages, Asked asked) {
  if (!on_disk()) return;
  io_->TakeEnded();
  std::unique_lock lock = LockSoon(mutex_);
  const bool certain = asked == Asked::kAgain || asked == Asked::kForCertain;
  uint64_t n_there = 0;
  for (KvPage* const page : pages) {
    if (asked == Asked::kAgain && page->plans_ < KvPage::kMostPlans) ++page->plans_;
    if (certain) page->pins_.fetch_or(KvPage::kPlanned, std::memory_order_relaxed);
    if (!page->frame_ || page->io_ == KvPage::Io::kReading) continue;
    Touch(*page);
    ++n_there;
  }
  if (certain) {
    traffic_.planned += pages.size();
    traffic_.planned_in_memory += n_there;
  }
  std::array<PageTransfer, kMostReads> transfers;
  std::size_t n = 0;
  const auto submit = [&] {
    lock.unlock();
    io_->Submit(std::span(transfers).first(std::exchange(n, 0)));
    lock = LockSoon(mutex_);
  };
  int64_t most = most_frames_ / 2 - n_reading_;
  for (KvPage* const page : pages) {
    if (most <= 0) break;
    if (page->frame_ || page->io_ != KvPage::Io::kNone || !page->file_) continue;
    PageFrame frame;
    try {
      frame = FreeFrame();
    } catch (const std::bad_alloc&) {  // those who need the page hear of it
      break;
    }
    if (!frame && asked == Asked::kPerhaps) break;
    if (!frame) frame = EvictOne(Evict::kSparingKept);
    if (!frame) {
      WriteSome(lock, kMostWrites - n_writing_);
      break;
    }
    page->frame_ = std::move(frame);
    page->io_ = KvPage::Io::kReading;
    page->ahead_ = certain ? KvPage::Ahead::kPlanned : KvPage::Ahead::kForeseen;
    ++n_reading_;
    ++traffic_.read_ahead;
    if (!certain) ++traffic_.foreseen;
    --most;
    transfers[n++] = {.direction = PageTransfer::Direction::kRead,
                      .file = &page->file_->file(),
                      .offset = page->offset_,
                      .bytes = BytesOf(*page),
                      .page = page};
    if (n == transfers.size()) submit();
  }
  if (n > 0) submit();
}

void KvPool::Keep(KvPage& page, bool keep) {
  if (!on_disk()) return;
  std::lock_guard lock(mutex_);
  const bool was_kept = page.keepers_ > 0;
  page.keepers_ += keep ? 1 : -1;
  LH_CHECK(page.keepers_ >= 0);
  n_kept_ += (page.keepers_ > 0 ? 1 : 0) - (was_kept ? 1 : 0);
}

bool KvPool::IsNear(const KvPage& page) const {
  if (!on_disk() || page.pins_.load(std::memory_order_relaxed) & KvPage::kReady) return true;
  const std::unique_lock lock = LockSoon(mutex_);
  return page.frame_ && page.io_ != KvPage::Io::kReading;
}

// ---- To disk

std::optional<PageTransfer> KvPool::BeginWrite(KvPage& page) {
  if (page.next_place_ || page.file_ != file_ || !file_->MayOverwrite(page.offset_)) {
    Result<uint64_t> offset = page.next_place_ ? *page.next_place_ : AllotIn(*file_);
    if (!offset) {
      write_error_ = std::move(offset.error());
      return std::nullopt;
    }
    if (page.file_) page.file_->Free(page.offset_);
    page.file_ = file_;
    page.offset_ = *offset;
    page.next_place_.reset();
  }
  page.io_ = KvPage::Io::kWriting;
  ++n_writing_;
  return PageTransfer{.direction = PageTransfer::Direction::kWrite,
                      .file = &page.file_->file(),
                      .offset = page.offset_,
                      .bytes = BytesOf(page),
                      .page = &page};
}

bool KvPool::WriteSome(std::unique_lock<std::mutex>& lock, int64_t most) {
  std::array<PageTransfer, kMostWrites> transfers;
  int64_t n = 0;
  for (KvPage* page = oldest_; page != nullptr && n < std::min(most, kMostWrites); page = page->newer_) {
    if (!page->dirty_ || page->io_ != KvPage::Io::kNone || page->pinned()) continue;
    const std::optional<PageTransfer> transfer = BeginWrite(*page);
    if (!transfer) break;
    transfers[static_cast<std::size_t>(n++)] = *transfer;
  }
  if (n == 0) return false;
  lock.unlock();
  io_->Submit(std::span(transfers).first(static_cast<std::size_t>(n)));
  lock.lock();
  return true;
}

Status KvPool::Flush(std::span<KvPage* const> pages) {
  LH_CHECK(on_disk());
  std::unique_lock lock(mutex_);
  write_error_.reset();  // as in TakeFrame
  std::array<PageTransfer, kMostWrites> transfers;
  std::size_t n = 0;
  const auto submit = [&] {
    if (n == 0) return;
    lock.unlock();
    io_->Submit(std::span(transfers).first(std::exchange(n, 0)));
    lock.lock();
  };
  for (KvPage* const page : pages) {
    if (!page->dirty_) continue;
    if (page->io_ != KvPage::Io::kNone || n_writing_ >= kMostWrites) {
      submit();
      // Until there is room for several, which go together again.
      while (page->io_ != KvPage::Io::kNone || n_writing_ > kMostWrites / 2) AwaitChange(lock);
      if (!page->dirty_) continue;
    }
    const std::optional<PageTransfer> transfer = write_error_ ? std::nullopt : BeginWrite(*page);
    if (!transfer) {
      Error error = *std::exchange(write_error_, std::nullopt);
      submit();
      return tl::unexpected<Error>(std::move(error));
    }
    transfers[n++] = *transfer;
  }
  submit();
  for (KvPage* const page : pages) {
    while (page->io_ != KvPage::Io::kNone) AwaitChange(lock);
    if (!page->dirty_) continue;
    Error error = write_error_ ? *std::exchange(write_error_, std::nullopt)
                               : Error{ErrorKind::kIo, "a page could not be written"};
    return tl::unexpected<Error>(std::move(error));
  }
  return {};
}

KvPool::Place KvPool::PlaceOf(const KvPage& page) const {
  std::lock_guard lock(mutex_);
  LH_CHECK(page.file_ == file_ && !page.dirty_);
  return {page.file_, page.offset_, page.checksum_};
}

void KvPool::Done(const PageTransfer& transfer, const Status& status) {
  KvPage& page = *static_cast<KvPage*>(transfer.page);
  // Of the page, not of what fills its place.
  const uint64_t checksum =
      status ? Checksum(transfer.bytes.first(static_cast<std::size_t>(geometry_.PageBytes()))) : 0;
  const std::unique_lock lock = LockSoon(mutex_);
  page.io_ = KvPage::Io::kNone;
  if (transfer.direction == PageTransfer::Direction::kRead) {
    --n_reading_;
    if (status && checksum == page.checksum_) {
      Touch(page);
      page.pins_.fetch_or(KvPage::kUsed, std::memory_order_relaxed);
      traffic_.bytes_read += transfer.bytes.size();
    } else {
      GiveBack(std::move(page.frame_));
      // Nobody may ever want what was read ahead; who does reads it again, and hears of it himself.
      if (std::exchange(page.ahead_, KvPage::Ahead::kNo) == KvPage::Ahead::kNo) {
        page.failed_ = WhyNot(status, *page.file_, page.offset_);
      }
    }
  } else {
    --n_writing_;
    if (status) {
      page.checksum_ = checksum;
      page.dirty_ = false;
      --n_dirty_;
      traffic_.bytes_written += transfer.bytes.size();
    } else {
      write_error_ = WhyNot(status, *page.file_, page.offset_);
      SeeWhatPresses();
    }
  }
  ++n_ended_;
  if (std::exchange(page.awaited_, false)) came_.notify_all();
  changed_.notify_all();
}

}  // namespace longheads
