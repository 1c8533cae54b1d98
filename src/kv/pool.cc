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

// Who awaits a page looks for its end this often before it sleeps, some 400 microseconds, and a little more
// where looks ask for other memory, too: a layer's pages take as long. To be woken takes a good part of what
// one does, and the system may put who wakes on the core of another thread: these share it for some
// milliseconds, and a core rests.
constexpr int kLooksForAPage = 16000;
// Pages that are sent for in one go.
constexpr std::size_t kMostReads = 64;
// Where less may be in memory, parts of huge pages that nothing lies in are too much of it.
constexpr uint64_t kLeastForHuge = uint64_t{64} << 20;
// Of frames that come and go, this much may be idle: a huge page, what reaches into its neighbours, and some
// for pages that cannot move at the moment.
constexpr int64_t kMostIdle = int64_t{3} << 20;
// Pages that are packed for one that is to come: as much memory as it takes so, and a little more; and in one
// go, while everybody waits.
constexpr std::size_t kPackedForOne = 4;
constexpr std::size_t kMostPacked = 16;

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Of a packed page on disk; 0 where it is not packed there.
int64_t ImageBytes(const KvGeometry& geometry, const PageLayout& layout) {
  if (!layout.packs()) return 0;
  const PackedBf16Places places(geometry.head_dim);
  const int64_t bytes = places.words_bytes + places.rest_bytes();
  const uint64_t read = RoundUp(static_cast<uint64_t>(bytes), kDirectAlignment);
  return read < static_cast<uint64_t>(geometry.PageStride()) ? bytes : 0;
}

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

uint64_t KvPool::ImagesBytes() const { return static_cast<uint64_t>(kMostWrites * images_.frame_bytes()); }

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
  const auto done = [this](const PageTransfer& transfer, const Status& status) { Done(transfer, status); };
  const auto landed = [this](const PageTransfer& transfer) { return Landed(transfer); };
  LH_ASSIGN(io_, MakePageIo(options.io, done, landed));
  const bool in_small_pages = options.ram_bytes < kLeastForHuge;
  const int64_t most_idle = in_small_pages ? 0 : kMostIdle;
  frames_ = FrameStore({.data_bytes = geometry_.PageStride(), .most_idle_bytes = most_idle});
  if (layout_->packs()) {
    const PackedBf16Places places(geometry_.head_dim);
    constexpr auto kLine = static_cast<int64_t>(kCacheLine);
    packed_ = FrameStore({.data_bytes = places.words_bytes,
                          .side_bytes = (places.rest_bytes() + kLine - 1) / kLine * kLine,
                          .most_idle_bytes = most_idle,
                          .in_small_pages = in_small_pages});
    landing_ = FrameStore({.data_bytes = geometry_.PageStride(), .in_small_pages = in_small_pages});
  }
  image_bytes_ = ImageBytes(geometry_, *layout_);
  if (image_bytes_ > 0) images_ = FrameStore({.data_bytes = geometry_.PageStride()});
  ram_frames_ = static_cast<int64_t>(std::min<uint64_t>(options.ram_bytes, INT64_MAX) / stride);
  least_frames_ = least_frames;
  for_token_.resize(static_cast<std::size_t>(geometry_.n_layers * geometry_.n_kv_heads));
  file_ = options.file;
  on_disk_ = true;
  landed_.reserve(static_cast<std::size_t>(kMostLanding));
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
  most_bytes_ = static_cast<uint64_t>(most_frames_ * frames_.frame_bytes());
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
      page->frame_ = FreeFrame(frames_);
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
  SetUnwritten(*page, KvPage::Unwritten::kNo);
  if (page->for_token_) {
    std::erase(for_token_[*page->for_token_], page);
    --n_for_token_;
  }
  if (page->keepers_ > 0) --n_kept_;
  if (on_disk()) Unlink(*page);
  GiveBackFrames(*page);
  if (page->file_) page->file_->Free(page->offset_);
}

uint64_t KvPool::FreeBytes() const {
  std::lock_guard lock(mutex_);
  return frames_.free_bytes() + packed_.free_bytes() + landing_.free_bytes();
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
  return frames_.n_used() + packed_.n_used() + landing_.n_used() - static_cast<int64_t>(landed_.size());
}

int64_t KvPool::n_packed() const {
  std::lock_guard lock(mutex_);
  return packed_.n_used();
}

int64_t KvPool::n_images() const {
  std::lock_guard lock(mutex_);
  return images_.n_used();
}

uint64_t KvPool::MemoryBytes() const {
  std::lock_guard lock(mutex_);
  return FrameBytes();
}

KvTraffic KvPool::traffic() {
  std::unique_lock lock(mutex_);
  while (n_reading_ > 0) AwaitChange(lock);
  KvTraffic traffic = traffic_;
  for (const Count& count : counts_) {
    traffic.hits += count.ready.load(std::memory_order_relaxed);
    traffic.packed += count.packed.load(std::memory_order_relaxed);
  }
  return traffic;
}

void KvPool::AwaitChange(std::unique_lock<std::mutex>& lock) {
  if (io_->has_threads()) return changed_.wait(lock);
  const uint64_t n_before = n_ended_, heard = io_->n_heard();
  const auto ended = [&] { return n_ended_.load(std::memory_order_relaxed) != n_before; };
  lock.unlock();
  // All who wait look, and share what comes: each end takes as long as to read the page.
  LookFor(kLooksForAPage, [&] {
    while_waiting_.FetchSome();
    if (!ended()) io_->TakeEnded();
    return ended();
  });
  lock = LockSoon(mutex_);
  if (ended()) return;
  if (awaiting_) return changed_.wait(lock);
  awaiting_ = true;
  lock.unlock();
  const bool any = io_->Await(heard);
  lock = LockSoon(mutex_);
  awaiting_ = false;
  changed_.notify_all();  // another one may have to wait for the next end
  // Another thread moves it itself or has taken its end, and tells of it, or is about to submit it.
  if (!any && !ended()) changed_.wait_for(lock, std::chrono::milliseconds(1));
}

// ---- To be read and written

PinnedPage KvPool::Pinned(KvPage& page) {
  PinnedPage pinned;
  pinned.pool_ = on_disk() ? this : nullptr;
  pinned.page_ = &page;
  pinned.data_ = page.frame_.data();
  if (page.packed_ && !page.frame_) pinned.packed_ = {page.packed_.data(), page.packed_.side()};
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
    if (page.in_memory()) return from_disk;
    if (page.file_ && !page.planned()) n_round_ = 0;
    PageFrame frame = TakeFrame(lock);
    if (page.frame_ || page.packed_) {  // another thread was quicker
      GiveBack(std::move(frame));
      continue;
    }
    if (!page.file_) {  // nothing was written to it yet
      std::memset(frame.data(), 0, static_cast<std::size_t>(geometry_.PageStride()));
      Settle(page, std::move(frame));
      return from_disk;
    }
    from_disk = true;
    SetFrame(page, std::move(frame));
    page.io_ = KvPage::Io::kReading;
    ++n_reading_;
    const PageTransfer transfer = ReadingOf(page);
    lock.unlock();
    Done(transfer, MovePage(transfer));
    lock = LockSoon(mutex_);
  }
}

KvPool::Count& KvPool::CountOfThread() {
  static std::atomic<std::size_t> n_threads{0};
  thread_local const std::size_t thread = n_threads.fetch_add(1, std::memory_order_relaxed);
  return counts_[thread % counts_.size()];
}

bool KvPool::PinReady(KvPage& page) {
  uint32_t pins = page.pins_.load(std::memory_order_relaxed);
  do {
    if ((pins & KvPage::kReady) == 0) return false;
  } while (!page.pins_.compare_exchange_weak(pins, ((pins + 1) | KvPage::kUsed) & ~KvPage::kPlanned,
                                             std::memory_order_acquire, std::memory_order_relaxed));
  CountOfThread().ready.fetch_add(1, std::memory_order_relaxed);
  return true;
}

const std::byte* KvPool::Peek(KvPage& page, int64_t offset) const {
  if (!on_disk()) return page.frame_.data() + offset;
  uint32_t pins = page.pins_.load(std::memory_order_relaxed);
  do {
    if ((pins & KvPage::kReady) == 0) return nullptr;
  } while (!page.pins_.compare_exchange_weak(pins, pins + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  const std::byte* const data = page.packed_ ? page.packed_.data() : page.frame_.data() + offset;
  if (page.packed_) {
    for (int64_t at = 0; at < packed_.side_bytes(); at += int64_t{kCacheLine}) {
      __builtin_prefetch(page.packed_.side() + at);
    }
  }
  page.pins_.fetch_sub(1, std::memory_order_release);
  return data;
}

bool KvPool::Retire(KvPage& page, uint32_t* pins) {
  uint32_t before = page.pins_.load(std::memory_order_relaxed);
  if ((before & KvPage::kPins) != 0 ||
      !page.pins_.compare_exchange_strong(before, 0, std::memory_order_acquire, std::memory_order_relaxed)) {
    return false;
  }
  if (pins != nullptr) *pins = before;
  return true;
}

PinnedPage KvPool::Pin(KvPage& page) {
  io_->TakeEnded();  // beside the work: those who wait in the end find it done
  if (PinReady(page)) return Pinned(page);
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock = LockSoon(mutex_);
  bool from_disk = false;
  if (!page.in_memory() || page.failed_) {
    const Clock::time_point start = Clock::now();
    from_disk = Bring(page, lock);
    traffic_.waited_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  page.pins_.fetch_add(1, std::memory_order_relaxed);
  const uint32_t before =
      page.pins_.fetch_and(~(KvPage::kPlanned | KvPage::kAwaited), std::memory_order_relaxed);
  page.pins_.fetch_or(KvPage::kReady | KvPage::kUsed, std::memory_order_release);
  Touch(page);
  ++(from_disk || (before & KvPage::kAwaited) != 0 ? traffic_.misses : traffic_.hits);
  if (page.ahead_ != KvPage::Ahead::kNo) {
    ++traffic_.read_ahead_used;
    if (page.ahead_ != KvPage::Ahead::kPlanned) ++traffic_.foreseen_used;
    page.ahead_ = KvPage::Ahead::kNo;
  }
  return Pinned(page);
}

void KvPool::Unpack(KvPage& page) {
  std::unique_lock lock = LockSoon(mutex_);
  if (!page.packed_ || page.io_ != KvPage::Io::kNone) return;
  PageFrame frame = TakeFrame(lock);
  // Meanwhile it may have left, or another thread has it; to unpack it, which takes a moment.
  if (!page.packed_ || page.io_ != KvPage::Io::kNone || !Retire(page)) {
    GiveBack(std::move(frame));
    return;
  }
  layout_->Unpack({page.packed_.data(), page.packed_.side()}, frame.data());
  CountOfThread().packed.fetch_add(1, std::memory_order_relaxed);
  GiveBack(std::move(page.packed_));
  SetFrame(page, std::move(frame));
}

PinnedPage KvPool::Read(KvPage& page) {
  if (!on_disk()) return Pinned(page);
  for (;;) {
    PinnedPage pinned = Pin(page);
    if (pinned.data() != nullptr) return pinned;
    pinned = {};
    Unpack(page);
  }
}

PinnedPage KvPool::ReadAsItLies(KvPage& page) {
  if (!on_disk()) return Pinned(page);
  PinnedPage pinned = Pin(page);
  if (pinned.data() == nullptr) CountOfThread().packed.fetch_add(1, std::memory_order_relaxed);
  return pinned;
}

PinnedPage KvPool::Read(KvPage& page, std::byte* scratch) {
  if (scratch == nullptr) return Read(page);
  PinnedPage pinned = ReadAsItLies(page);
  if (pinned.data() != nullptr) return pinned;
  layout_->Unpack(pinned.packed(), scratch);
  PinnedPage unpacked;
  unpacked.data_ = scratch;
  return unpacked;
}

PinnedPage KvPool::Write(KvPage& page, bool fills) {
  if (!on_disk()) return Pinned(page);
  PinnedPage pinned = Read(page);
  std::unique_lock lock = LockSoon(mutex_);
  while (page.io_ != KvPage::Io::kNone) AwaitChange(lock);  // what goes to disk stands still
  Touch(page);                                              // what is used longest ago is written first
  page.packs_ = true;                                       // what is written may
  SetUnwritten(page, fills ? KvPage::Unwritten::kFilled : KvPage::Unwritten::kOpen);
  return pinned;
}

void KvPool::SetUnwritten(KvPage& page, KvPage::Unwritten unwritten) {
  if (page.unwritten_ == unwritten) return;
  const auto count = [&](int64_t change) {
    if (page.unwritten_ == KvPage::Unwritten::kOpen) n_open_ += change;
    if (page.unwritten_ == KvPage::Unwritten::kFilled) n_filled_ += change;
  };
  count(-1);
  page.unwritten_ = unwritten;
  count(1);
  SeeWhatPresses();
}

// Too many texts have pages that wait for more.
bool KvPool::OpenPress() const { return n_open_ + n_filled_ - n_writing_ > most_frames_ / 4; }

// So few clean pages that there might be none when room is needed or, while tokens are generated, more filled
// ones than go to disk together: pages lie packed once they are there. Then many go at a time.
bool KvPool::WritesPress() const {
  if (FrameBytes() < most_bytes_ / 4 * 3 || n_writing_ > kMostWrites / 2 || write_error_) return false;
  const int64_t most = generating_ ? std::min(most_frames_ / 16, kMostWrites) : most_frames_ / 16;
  return n_filled_ - n_writing_ > most || OpenPress();
}

void KvPool::SeeWhatPresses() { presses_.store(HasSurplus() || WritesPress(), std::memory_order_relaxed); }

void KvPool::Unpin(KvPage& page) {
  if (!presses_.load(std::memory_order_relaxed)) {
    page.pins_.fetch_sub(1, std::memory_order_release);
    return;
  }
  io_->TakeEnded();
  std::unique_lock lock = LockSoon(mutex_);
  page.pins_.fetch_sub(1, std::memory_order_release);
  if (HasSurplus() && !page.dirty() && page.io_ == KvPage::Io::kNone && Retire(page)) {
    Unlink(page);
    GiveBackFrames(page);
  }
  if (WritesPress()) WriteSome(lock, OpenPress());
  SeeWhatPresses();
}

void KvPool::ReadAhead(std::span<KvPage* const> pages, Asked asked, int64_t n_texts,
                       std::span<KvPage* const> foreseen) {
  if (!on_disk()) return;
  for (const KvPage* const page : pages) page->Fetch();
  io_->TakeEnded();
  std::unique_lock lock = LockSoon(mutex_);
  const bool certain = asked == Asked::kAgain || asked == Asked::kForCertain;
  const bool generates = asked == Asked::kAgain && layout_->packs();
  if (certain && std::exchange(generating_, generates) != generates) SeeWhatPresses();
  if (generating_) packing_.store(true, std::memory_order_relaxed);
  uint64_t n_there = 0;
  if (asked == Asked::kAgain) CountPlan(pages, n_texts);
  if (asked == Asked::kForCertain) n_round_ = 0;
  constexpr std::size_t kAhead = 4;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i + kAhead < pages.size()) pages[i + kAhead]->FetchNeighbours();
    KvPage* const page = pages[i];
    if (certain) {
      page->pins_.fetch_or(KvPage::kPlanned, std::memory_order_relaxed);
      if (page->ahead_ == KvPage::Ahead::kInVain) page->ahead_ = KvPage::Ahead::kForeseen;
    }
    if (!page->in_memory()) continue;
    Touch(*page);
    ++n_there;
  }
  for (KvPage* const page : foreseen) {
    if (page->ahead_ != KvPage::Ahead::kForeseen || page->planned()) continue;
    page->ahead_ = KvPage::Ahead::kInVain;
    if (page->in_memory()) Demote(*page);
  }
  if (certain) {
    traffic_.planned += pages.size();
    traffic_.planned_in_memory += n_there;
  }
  if (asked == Asked::kAgain && layout_->packs() && n_there < pages.size()) {
    PackSome(pages, std::min(kMostPacked, kPackedForOne * (pages.size() - n_there)));
  }
  std::array<PageTransfer, kMostReads> transfers;
  std::size_t n = 0;
  const auto submit = [&] {
    lock.unlock();
    io_->Submit(std::span(transfers).first(std::exchange(n, 0)));
    lock = LockSoon(mutex_);
  };
  bool rests = n_reading_ + n_writing_ == 0;
  for (KvPage* const page : pages) {
    if (n_reading_ >= most_frames_ / 2) break;
    if (page->frame_ || page->packed_ || page->io_ != KvPage::Io::kNone || !page->file_) continue;
    const bool drives_out = certain || (asked == Asked::kLikely && IsLikely(*page));
    PageFrame frame, packed;
    const auto room_in = [&](FrameStore& store) {
      PageFrame room = FreeFrame(store);
      return room || !drives_out ? std::move(room) : Vacate(store, Evict::kSparingKept);
    };
    try {
      const bool lands = landing_.n_free() > 0 || landing_.n_frames() < MostLanding();
      const bool is_short = FrameBytes() > most_bytes_ / 16 * 15;
      const bool packed_too = packs() && page->packs_ && lands && is_short;
      if (packed_too) packed = room_in(packed_);
      if (packed || !packed_too || drives_out) frame = room_in(packed ? landing_ : frames_);
    } catch (const std::bad_alloc&) {  // those who need the page hear of it
    }
    if (!frame) {
      if (packed) GiveBack(std::move(packed));
      if (asked == Asked::kPerhaps) break;
      if (!drives_out) continue;
      WriteSome(lock, /*open_too=*/n_writing_ == 0);
      break;
    }
    SetFrame(*page, std::move(frame));
    if (packed) SetFrame(*page, std::move(packed));
    page->io_ = KvPage::Io::kReading;
    page->ahead_ = certain ? KvPage::Ahead::kPlanned : KvPage::Ahead::kForeseen;
    ++n_reading_;
    ++traffic_.read_ahead;
    if (!certain) ++traffic_.foreseen;
    transfers[n++] = ReadingOf(*page);
    // A disk that rests begins with the first, while the others are prepared.
    if (n == transfers.size() || std::exchange(rests, false)) submit();
  }
  if (n > 0) submit();
}

void KvPool::CountPlan(std::span<KvPage* const> pages, int64_t n_texts) {
  ++n_plans_;
  n_round_ = static_cast<uint32_t>(geometry_.n_layers * geometry_.n_kv_heads * n_texts);
  for (KvPage* const page : pages) {
    if (page->planned_at_ == n_plans_) continue;  // several heads name it
    page->named_ = static_cast<uint8_t>(NamedUntilNow(*page) | 1);
    page->planned_at_ = n_plans_;
    if (page->plans_ < KvPage::kMostPlans) ++page->plans_;
  }
}

uint8_t KvPool::NamedUntilNow(const KvPage& page) const {
  if (n_round_ == 0) return page.named_;
  const uint32_t rounds = (n_plans_ - page.planned_at_ + n_round_ / 2) / n_round_;
  return rounds < KvPage::kRounds ? static_cast<uint8_t>(page.named_ << rounds) : uint8_t{0};
}

void KvPool::AddKeeper(KvPage& page, int change) {
  const bool was_kept = page.keepers_ > 0;
  page.keepers_ += change;
  LH_CHECK(page.keepers_ >= 0);
  n_kept_ += (page.keepers_ > 0 ? 1 : 0) - (was_kept ? 1 : 0);
}

void KvPool::Keep(KvPage& page, bool keep) {
  if (!on_disk()) return;
  std::lock_guard lock(mutex_);
  AddKeeper(page, keep ? 1 : -1);
}

void KvPool::KeepForToken(std::size_t table, std::span<KvPage* const> pages, int64_t n_coming) {
  std::lock_guard lock(mutex_);
  EndKeepingOf(table);
  const int64_t n_otherwise = n_kept_ - n_for_token_;
  const int64_t most = MostPages();
  const int64_t room = std::min(most / 4 * 3, most - n_coming) - n_otherwise;
  const int64_t share = std::max<int64_t>(0, room) / static_cast<int64_t>(for_token_.size());
  const auto n = std::min(pages.size(), static_cast<std::size_t>(share));
  std::vector<KvPage*>& kept = for_token_[table];
  kept.reserve(n);
  for (KvPage* const page : pages.first(n)) {
    kept.push_back(page);
    page->for_token_ = static_cast<uint32_t>(table);
    AddKeeper(*page, 1);
    ++n_for_token_;
  }
}

void KvPool::EndKeeping(std::size_t table) {
  if (n_for_token_.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(mutex_);
  EndKeepingOf(table);
}

void KvPool::EndKeepingOf(std::size_t table) {
  for (KvPage* const page : for_token_[table]) {
    page->for_token_.reset();
    AddKeeper(*page, -1);
    --n_for_token_;
  }
  for_token_[table].clear();
}

bool KvPool::IsNear(const KvPage& page) const {
  if (!on_disk() || page.pins_.load(std::memory_order_relaxed) & KvPage::kReady) return true;
  const std::unique_lock lock = LockSoon(mutex_);
  return page.in_memory();
}

std::size_t KvPool::AwaitOne(std::span<KvPage* const> pages) {
  LH_CHECK(on_disk() && !pages.empty());
  using Clock = std::chrono::steady_clock;
  const auto may_be_read = [](const KvPage* page) { return page->in_memory(); };
  const auto is_still = [](const KvPage* page) { return page->io_ != KvPage::Io::kReading; };
  std::optional<Clock::time_point> start;
  io_->TakeEnded();
  std::unique_lock lock = LockSoon(mutex_);
  for (;;) {
    auto found = std::ranges::find_if(pages, may_be_read);
    if (found == pages.end()) found = std::ranges::find_if(pages, is_still);
    if (found != pages.end()) {
      if (start) {
        traffic_.waited_seconds += std::chrono::duration<double>(Clock::now() - *start).count();
        (*found)->pins_.fetch_or(KvPage::kAwaited, std::memory_order_relaxed);
      }
      return static_cast<std::size_t>(found - pages.begin());
    }
    if (!start) start = Clock::now();
    AwaitChange(lock);
  }
}

// ---- To disk

PageFrame KvPool::TakeImage(const KvPage& page) {
  if (image_bytes_ == 0 || !page.packs_ || !page.file_->TakesPacked()) return {};
  if (PageFrame image = images_.TakeFree()) return image;
  if (images_.n_frames() == kMostWrites) return {};
  try {
    return images_.New();
  } catch (const std::bad_alloc&) {
  }
  return {};
}

void KvPool::Submit(std::span<PageTransfer> writes) {
  const PackedBf16Places places(geometry_.head_dim);
  for (PageTransfer& write : writes) {
    const PageFrame& image = static_cast<KvPage*>(write.page)->image_;
    if (!image || !layout_->Pack(write.bytes.data(), {image.data(), image.data() + places.words_bytes}))
      continue;
    write.bytes = {image.data(), write.bytes.size()};  // whole places, which lie side by side in the file
  }
  io_->Submit(writes);
}

PageTransfer KvPool::ReadingOf(KvPage& page) {
  std::span<std::byte> bytes = BytesOf(page);
  if (page.packed_there_) {
    bytes = bytes.first(RoundUp(static_cast<uint64_t>(image_bytes_), page.file_->file().direct_unit()));
  }
  return {.direction = PageTransfer::Direction::kRead,
          .file = &page.file_->file(),
          .offset = page.offset_,
          .bytes = bytes,
          .page = &page,
          .may_land = page.packed_there_ && page.packed_};
}

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
  page.image_ = TakeImage(page);
  ++n_writing_;
  return PageTransfer{.direction = PageTransfer::Direction::kWrite,
                      .file = &page.file_->file(),
                      .offset = page.offset_,
                      .bytes = BytesOf(page),
                      .page = &page};
}

bool KvPool::WriteSome(std::unique_lock<std::mutex>& lock, bool open_too) {
  std::array<PageTransfer, kMostWrites> transfers;
  const int64_t most = kMostWrites - n_writing_;
  int64_t n = 0;
  const auto begin_some = [&](KvPage::Unwritten which) {
    for (KvPage* page = oldest_; page != nullptr && n < most; page = page->newer_) {
      if (page->unwritten_ != which || page->io_ != KvPage::Io::kNone || page->pinned()) continue;
      const std::optional<PageTransfer> transfer = BeginWrite(*page);
      if (!transfer) return;
      transfers[static_cast<std::size_t>(n++)] = *transfer;
    }
  };
  begin_some(KvPage::Unwritten::kFilled);
  if (n == 0 && open_too && !write_error_) begin_some(KvPage::Unwritten::kOpen);
  if (n == 0) return false;
  lock.unlock();
  Submit(std::span(transfers).first(static_cast<std::size_t>(n)));
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
    Submit(std::span(transfers).first(std::exchange(n, 0)));
    lock.lock();
  };
  for (KvPage* const page : pages) {
    if (!page->dirty()) continue;
    if (page->io_ != KvPage::Io::kNone || n_writing_ >= kMostWrites) {
      submit();
      // Until there is room for several, which go together again.
      while (page->io_ != KvPage::Io::kNone || n_writing_ > kMostWrites / 2) AwaitChange(lock);
      if (!page->dirty()) continue;
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
    if (!page->dirty()) continue;
    Error error = write_error_ ? *std::exchange(write_error_, std::nullopt)
                               : Error{ErrorKind::kIo, "a page could not be written"};
    return tl::unexpected<Error>(std::move(error));
  }
  return {};
}

KvPool::Place KvPool::PlaceOf(const KvPage& page) const {
  std::lock_guard lock(mutex_);
  LH_CHECK(page.file_ == file_ && !page.dirty());
  return {page.file_, page.offset_, page.checksum_};
}

std::pair<std::span<std::byte>, std::span<std::byte>> KvPool::PackedBytesOf(KvPage& page) const {
  const PackedBf16Places places(geometry_.head_dim);
  return {{page.packed_.data(), static_cast<std::size_t>(places.words_bytes)},
          {page.packed_.side(), static_cast<std::size_t>(places.rest_bytes())}};
}

void KvPool::CopyImage(KvPage& page) const {
  const auto [words, rest] = PackedBytesOf(page);
  std::memcpy(words.data(), page.frame_.data(), words.size());
  std::memcpy(rest.data(), page.frame_.data() + words.size(), rest.size());
}

bool KvPool::Arrange(KvPage& page) {
  if (!page.packed_there_) {
    return page.packed_ && layout_->Pack(page.frame_.data(), {page.packed_.data(), page.packed_.side()});
  }
  const PackedBf16Places places(geometry_.head_dim);
  const PackedBf16 image{page.frame_.data(), page.frame_.data() + places.words_bytes};
  if (page.packed_) {
    CopyImage(page);
    return true;
  }
  alignas(kCacheLine) std::byte numbers[2 * kMaxRun * kMaxHeadDim * sizeof(BFloat16)];
  layout_->Unpack(image, numbers);
  std::memcpy(page.frame_.data(), numbers, static_cast<std::size_t>(geometry_.PageBytes()));
  return false;
}

uint64_t KvPool::ChecksumOf(std::span<const std::byte> bytes, bool is_packed) const {
  // Of the page, not of what fills its place.
  return Checksum(bytes.first(static_cast<std::size_t>(is_packed ? image_bytes_ : geometry_.PageBytes())));
}

void KvPool::Came(KvPage& page, uint64_t n_bytes) {
  if (page.ahead_ == KvPage::Ahead::kInVain) {
    Demote(page);
  } else {
    Touch(page);
  }
  page.pins_.fetch_or(KvPage::kUsed, std::memory_order_relaxed);
  traffic_.bytes_read += n_bytes;
}

void KvPool::TellOfEnd(KvPage& page) {
  page.io_ = KvPage::Io::kNone;
  ++n_ended_;
  if (std::exchange(page.awaited_, false)) came_.notify_all();
  changed_.notify_all();
}

bool KvPool::Landed(const PageTransfer& transfer) {
  // While it is read it is nobody else's.
  KvPage& page = *static_cast<KvPage*>(transfer.page);
  CopyImage(page);
  try {
    const auto [words, rest] = PackedBytesOf(page);
    if (Checksum(words, rest) != page.checksum_) return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  const std::unique_lock lock = LockSoon(mutex_);
  --n_reading_;
  ++traffic_.landed;
  landing_.SetHolder(page.frame_, nullptr);
  landed_.push_back(std::move(page.frame_));
  Came(page, transfer.bytes.size());
  TellOfEnd(page);
  return true;
}

void KvPool::LeaveLanded(const std::byte* data) {
  const std::unique_lock lock = LockSoon(mutex_);
  const auto frame = std::ranges::find(landed_, data, &PageFrame::data);
  LH_CHECK(frame != landed_.end());
  std::swap(*frame, landed_.back());
  GiveBack(std::move(landed_.back()));
  landed_.pop_back();
  ++n_ended_;
  changed_.notify_all();
}

void KvPool::Done(const PageTransfer& transfer, const Status& status) {
  if (transfer.landed) return LeaveLanded(transfer.bytes.data());
  KvPage& page = *static_cast<KvPage*>(transfer.page);
  const bool reads = transfer.direction == PageTransfer::Direction::kRead;
  const bool is_packed = reads ? page.packed_there_ : transfer.bytes.data() != page.frame_.data();
  const uint64_t checksum = status ? ChecksumOf(transfer.bytes, is_packed) : 0;
  // While it is read it is nobody else's.
  const bool packs = reads && status && checksum == page.checksum_ && Arrange(page);
  const std::unique_lock lock = LockSoon(mutex_);
  if (reads) {
    --n_reading_;
    if (status && checksum == page.checksum_) {
      if (page.packed_) {
        page.packs_ = packs;
        GiveBack(std::move(packs ? page.frame_ : page.packed_));
      }
      Came(page, transfer.bytes.size());
    } else {
      GiveBackFrames(page);
      // Nobody may ever want what was read ahead; who does reads it again, and hears of it himself.
      if (std::exchange(page.ahead_, KvPage::Ahead::kNo) == KvPage::Ahead::kNo) {
        page.failed_ = WhyNot(status, *page.file_, page.offset_);
      }
    }
  } else {
    --n_writing_;
    if (page.image_) {
      page.packs_ = is_packed;
      images_.GiveBack(std::move(page.image_));
    }
    if (status) {
      page.checksum_ = checksum;
      page.packed_there_ = is_packed;
      SetUnwritten(page, KvPage::Unwritten::kNo);
      traffic_.bytes_written += transfer.bytes.size();
    } else {
      write_error_ = WhyNot(status, *page.file_, page.offset_);
      SeeWhatPresses();
    }
  }
  TellOfEnd(page);
}

}  // namespace longheads
