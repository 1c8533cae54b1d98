// Transfers of pages by io_uring: submitted by whoever asks, and awaited by whoever needs them. A thread for
// that would take the processor from those that compute, once for every page.
#include "kv/page_io_uring.h"

#include <liburing.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/pause.h"

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_read_range(void* address, unsigned long size);
extern "C" void __tsan_write_range(void* address, unsigned long size);
#endif

namespace longheads {
namespace {

// Submissions that wait for the system to take them; transfers under way are not counted.
constexpr unsigned kEntries = 1024;
// Readings in sight at a time, bits of a word: those that a disk does next, since who waits looks at all.
constexpr int kMostInSight = 32;
// Stands at a reading's end until it lands. A page that ends so itself is heard of when it has ended.
constexpr uint64_t kNothingYet = 0x9d1c5f0b72e3a846;

// The thread sanitizer sees plain calls move bytes, but not the ring. As if the caller had moved them: it
// then finds whoever touches a page that is under way.
void ShowSanitizer([[maybe_unused]] const PageTransfer& transfer, [[maybe_unused]] int moved) {
#ifdef __SANITIZE_THREAD__
  if (moved <= 0) return;
  const auto size = static_cast<unsigned long>(moved);
  if (transfer.direction == PageTransfer::Direction::kRead) {
    __tsan_write_range(transfer.bytes.data(), size);
  } else {
    __tsan_read_range(transfer.bytes.data(), size);
  }
#endif
}

FileOperation OperationOf(const PageTransfer& transfer) {
  const bool reads = transfer.direction == PageTransfer::Direction::kRead;
  return {.call = reads ? FileCall::kRead : FileCall::kWrite,
          .path = transfer.file->path(),
          .descriptor = transfer.file->descriptor(),
          .offset = transfer.offset,
          .size = transfer.bytes.size(),
          .data = reads ? nullptr : transfer.bytes.data()};
}

// Of a test's faults; a signal's is no error.
FileFaults::Verdict VerdictOn(const PageTransfer& transfer) {
  FileFaults::Verdict verdict;
  if (FileFaults* const faults = InstalledFileFaults()) {
    do {
      verdict = faults->Before(OperationOf(transfer));
    } while (verdict.error == EINTR);
  }
  return verdict;
}

// At memory that the system writes to, or whose it is by now: the sanitizer could order that with nothing. (A
// member of std::atomic_ref would be shown to it.)
#if defined(__SANITIZE_THREAD__)
[[gnu::no_sanitize("thread"), gnu::noinline]]
#endif
bool HoldsNothingYet(const uint64_t* word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) == kNothingYet;
}

class UringIo final : public PageIo {
 public:
  UringIo(const io_uring& ring, Done done, Landed landed)
      : ring_(ring), done_(std::move(done)), landed_(std::move(landed)) {}

  ~UringIo() override {
    while (Await(n_heard())) {
    }
    io_uring_queue_exit(&ring_);
    while (spare_ != nullptr) delete std::exchange(spare_, spare_->next);
  }

  void Submit(std::span<const PageTransfer> transfers) override {
    std::unique_lock lock = LockSoon(mutex_);
    for (const PageTransfer& transfer : transfers) {
      const FileFaults::Verdict verdict = VerdictOn(transfer);
      if (verdict.error != 0) {
        lock.unlock();
        done_(transfer,
              tl::unexpected<Error>(FileError(transfer.file->path(), "move a page", verdict.error)));
        lock = LockSoon(mutex_);
        continue;
      }
      UnderWay* const kept = TakeSpare();
      if (kept == nullptr) {
        lock.unlock();
        done_(transfer, MovePage(transfer));
        lock = LockSoon(mutex_);
        continue;
      }
      kept->transfer = transfer;
      kept->size = static_cast<unsigned>(std::min<uint64_t>(transfer.bytes.size(), verdict.most));
      Queue(kept);
    }
    HandOver(lock);
  }

  bool has_threads() const override { return false; }

  bool TakeEnded() override {
    if (TakeLanded()) return true;
    if (!AnyEnded()) return false;
    std::unique_lock taking(taking_, std::try_to_lock);
    return taking && TakeOne(taking);
  }

  uint64_t n_heard() const override { return n_heard_.load(std::memory_order_relaxed); }

  bool Await(uint64_t heard) override {
    std::unique_lock taking(taking_);
    if (TakeOne(taking)) return true;
    if (n_taken_.load(std::memory_order_relaxed) != heard) return false;
    {
      const std::unique_lock lock = LockSoon(mutex_);
      if (n_under_way_ == 0) return false;
    }
    io_uring_cqe* completion = nullptr;
    if (const int status = io_uring_wait_cqe(&ring_, &completion); status != 0) {
      // A signal came; where it is anything else, at least the processor is left to others.
      if (status != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return true;
    }
    TakeOne(taking);
    return true;
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  // What came of a reading in sight that a thread unwatched: it is still at it; it was taken, or left to its
  // end; or it ended while the thread is at it, which then tells of the end, too.
  enum class Seen : uint8_t { kNotYet, kTaken, kLeft, kEnded };
  struct UnderWay {
    PageTransfer transfer;
    unsigned size = 0;  // bytes to be asked for
    int moved = 0;      // what the system said when it ended
    int in_sight = -1;  // its place among those, or none
    std::atomic<Seen> seen = Seen::kNotYet;
    UnderWay* next = nullptr;  // among the spare ones, or those that wait
  };
  // A reading that may land, and its last word, which is looked at without a lock: it may be of a reading
  // that ended meanwhile.
  struct InSight {
    std::atomic<uint64_t*> last_word = nullptr;
    UnderWay* reading = nullptr;
  };

  // With the lock held, all up to HandOver. Null where there is no memory.
  UnderWay* TakeSpare() {
    if (spare_ == nullptr) return new (std::nothrow) UnderWay;
    return std::exchange(spare_, spare_->next);
  }
  void KeepSpare(UnderWay* one) {
    if (one->in_sight >= 0) places_taken_ &= ~BitOf(std::exchange(one->in_sight, -1));
    one->next = std::exchange(spare_, one);
  }

  static uint32_t BitOf(int place) { return uint32_t{1} << place; }

  void Queue(UnderWay* one) {
    one->next = nullptr;
    (first_ != nullptr ? last_->next : first_) = one;
    last_ = one;
    ++n_queued_;
    ++n_under_way_;
    if (landed_ && one->transfer.may_land && places_taken_ != ~uint32_t{0}) Watch(*one);
  }

  void Watch(UnderWay& one) {
    const std::span<std::byte> bytes = one.transfer.bytes;
    LH_CHECK(one.transfer.direction == PageTransfer::Direction::kRead && bytes.size() >= sizeof(uint64_t));
    std::byte* const last = bytes.data() + bytes.size() - sizeof(uint64_t);
    LH_CHECK(reinterpret_cast<uintptr_t>(last) % sizeof(uint64_t) == 0);
    auto* const word = reinterpret_cast<uint64_t*>(last);
    std::atomic_ref(*word).store(kNothingYet, std::memory_order_relaxed);
    one.in_sight = std::countr_one(places_taken_);
    one.seen.store(Seen::kNotYet, std::memory_order_relaxed);
    places_taken_ |= BitOf(one.in_sight);
    InSight& place = in_sight_[static_cast<std::size_t>(one.in_sight)];
    place.last_word.store(word, std::memory_order_relaxed);
    place.reading = &one;
    watched_.fetch_or(BitOf(one.in_sight), std::memory_order_release);
  }

  // Whether the place was watched: then its reading is the caller's, to be taken or to be ended.
  bool Unwatch(int place) {
    return (watched_.fetch_and(~BitOf(place), std::memory_order_acq_rel) & BitOf(place)) != 0;
  }

  // Of one reading that landed; whether of any.
  bool TakeLanded() {
    for (uint32_t left = watched_.load(std::memory_order_acquire); left != 0; left &= left - 1) {
      const int i = std::countr_zero(left);
      const InSight& place = in_sight_[static_cast<std::size_t>(i)];
      if (HoldsNothingYet(place.last_word.load(std::memory_order_relaxed)) || !Unwatch(i)) continue;
      UnderWay& one = *place.reading;
      // Another one's word, maybe, which ended meanwhile: that it is missed then does no harm.
      const bool landed = !HoldsNothingYet(place.last_word.load(std::memory_order_relaxed)) && Take(one);
      const bool ended =
          one.seen.exchange(landed ? Seen::kTaken : Seen::kLeft, std::memory_order_acq_rel) == Seen::kEnded;
      if (ended) EndWhatLanded(one, landed);
      if (landed || ended) return true;
    }
    return false;
  }

  bool Take(const UnderWay& one) {
    ShowSanitizer(one.transfer, static_cast<int>(one.transfer.bytes.size()));
    return landed_(one.transfer);
  }

  void EndWhatLanded(UnderWay& one, bool landed) {
    const PageTransfer transfer = one.transfer;
    const int moved = one.moved;
    {
      const std::unique_lock lock = LockSoon(mutex_);
      KeepSpare(&one);
    }
    TellOfEnd(transfer, moved, landed);
  }

  // Entries of the ring for those in the queue, as many as it has room for.
  void Prepare() {
    for (; first_ != nullptr; first_ = first_->next, --n_queued_) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) return;
      const PageTransfer& transfer = first_->transfer;
      const int file = transfer.file->descriptor();
      if (transfer.direction == PageTransfer::Direction::kRead) {
        io_uring_prep_read(entry, file, transfer.bytes.data(), first_->size, transfer.offset);
      } else {
        io_uring_prep_write(entry, file, transfer.bytes.data(), first_->size, transfer.offset);
      }
      io_uring_sqe_set_data(entry, first_);
    }
  }

  // Hands over the queue, unless another thread is at it: that one takes along what came meanwhile. A call to
  // the system takes longer than a plan, so that others would sleep until it returns. What a busy system does
  // not take is handed over with the next, or after something ended; where the system has nothing nobody
  // would come, so that it is tried again.
  void HandOver(std::unique_lock<std::mutex>& lock) {
    if (entering_) return;
    entering_ = true;
    for (;;) {
      Prepare();
      if (io_uring_sq_ready(&ring_) == 0) break;
      lock.unlock();
      const int taken = io_uring_submit(&ring_);
      lock = LockSoon(mutex_);
      if (taken > 0) continue;
      if (n_under_way_ > n_queued_ + static_cast<int>(io_uring_sq_ready(&ring_))) break;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock = LockSoon(mutex_);
    }
    entering_ = false;
  }

  // Whether an end is there to be taken. Without a lock, and next to nothing to ask.
  bool AnyEnded() const {
    const auto n_taken = static_cast<unsigned>(n_taken_.load(std::memory_order_relaxed));
    return io_uring_smp_load_acquire(ring_.cq.ktail) != n_taken;
  }

  // Whether there was one. `taking` holds taking_, and lets it go before the caller's Done hears of the end:
  // that goes through the page, while another thread may take the next.
  bool TakeOne(std::unique_lock<std::mutex>& taking) {
    io_uring_cqe* completion = nullptr;
    if (io_uring_peek_cqe(&ring_, &completion) != 0) return false;
    auto* const ended = static_cast<UnderWay*>(io_uring_cqe_get_data(completion));
    const int moved = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    n_taken_.fetch_add(1, std::memory_order_relaxed);
    PageTransfer transfer;
    Seen seen = Seen::kLeft;
    {
      // Also what makes the submitter's writes visible here: it held the lock before the system had them.
      std::unique_lock lock = LockSoon(mutex_);
      ended->moved = moved;
      transfer = ended->transfer;
      if (ended->in_sight >= 0 && !Unwatch(ended->in_sight)) {
        seen = ended->seen.exchange(Seen::kEnded, std::memory_order_acq_rel);
      }
      if (seen != Seen::kNotYet) KeepSpare(ended);
      --n_under_way_;  // while taking_ is held: who sleeps for an end has counted right
      HandOver(lock);
    }
    taking.unlock();
    if (seen != Seen::kNotYet) TellOfEnd(transfer, moved, seen == Seen::kTaken);
    return true;
  }

  // Of a transfer that is in sight no more.
  void TellOfEnd(PageTransfer transfer, int moved, bool landed) {
    transfer.landed = landed;
    Tell(transfer, moved);
    n_heard_.fetch_add(1, std::memory_order_relaxed);
  }

  void Tell(const PageTransfer& transfer, int moved) {
    if (transfer.landed) return done_(transfer, Status());
    ShowSanitizer(transfer, moved);
    if (FileFaults* const faults = InstalledFileFaults(); faults != nullptr && moved >= 0) {
      faults->After(OperationOf(transfer), moved);
    }
    const bool whole = moved >= 0 && static_cast<std::size_t>(moved) == transfer.bytes.size();
    // Plain calls bring the rest, or the error with its sentence.
    done_(transfer, whole ? Status() : MovePage(transfer));
  }

  io_uring ring_;
  std::mutex taking_;  // of ends, one at a time; held, too, by who sleeps until one comes
  // Looked at by all who read a page: on a line of their own.
  alignas(kCacheLine) std::atomic<uint64_t> n_taken_ = 0;
  std::atomic<uint64_t> n_heard_ = 0;     // of them, those that done_ returned from
  alignas(kCacheLine) std::mutex mutex_;  // of submissions
  bool entering_ = false;                 // a thread is in HandOver: the ring's submissions are its
  UnderWay* first_ = nullptr;             // of the queue: to be handed over
  UnderWay* last_ = nullptr;
  int n_queued_ = 0;
  int n_under_way_ = 0;        // those too; submitted, and their ends not taken
  UnderWay* spare_ = nullptr;  // of transfers that ended, for the next ones
  uint32_t places_taken_ = 0;  // of in_sight_, by readings that have not ended
  alignas(kCacheLine) std::array<InSight, kMostInSight> in_sight_;
  // Of them, those whose end nobody saw. Looked at as n_taken_ is.
  alignas(kCacheLine) std::atomic<uint32_t> watched_ = 0;
  Done done_;
  Landed landed_;
};

}  // namespace

std::unique_ptr<PageIo> MakeUringIo(PageIo::Done done, PageIo::Landed landed, std::string& declined) {
  io_uring ring;
  const int status = io_uring_queue_init(kEntries, &ring, 0);
  if (status != 0) {
    declined = std::strerror(-status);
    return nullptr;
  }
  // Older kernels (before 5.6) do not know these transfers, and may lose word of their ends.
  if ((ring.features & IORING_FEAT_RW_CUR_POS) == 0) {
    io_uring_queue_exit(&ring);
    declined = "the kernel is older than 5.6";
    return nullptr;
  }
  try {
    return std::make_unique<UringIo>(ring, std::move(done), std::move(landed));
  } catch (const std::exception& error) {  // there may be no more threads
    io_uring_queue_exit(&ring);
    declined = error.what();
    return nullptr;
  }
}

}  // namespace longheads
