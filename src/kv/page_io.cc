#include "kv/page_io.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "kv/page_io_uring.h"

namespace longheads {
namespace {

class ThreadedIo final : public PageIo {
 public:
  // As many transfers at once: solid-state disks need some to be fast, and a waiting thread costs next to
  // nothing.
  static constexpr int kThreads = 8;

  // Throws what std::thread throws where there may be no more threads.
  explicit ThreadedIo(Done done) : done_(std::move(done)) {
    try {
      for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (...) {
      Stop();
      throw;
    }
  }

  ~ThreadedIo() override { Stop(); }

  void Submit(std::span<const PageTransfer> transfers) override {
    std::size_t n = 0;
    try {
      std::lock_guard lock(mutex_);
      for (; n < transfers.size(); ++n) Push(transfers[n]);
    } catch (const std::bad_alloc&) {
    }
    wake_.notify_all();
    for (const PageTransfer& transfer : transfers.subspan(n)) done_(transfer, MovePage(transfer));
  }

  bool has_threads() const override { return true; }
  std::string_view name() const override { return "threads"; }

 private:
  // A deque would allocate again and again, as it moves on.
  void Push(const PageTransfer& transfer) {
    if (first_ > queue_.size() / 2) {
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(std::exchange(first_, 0)));
    }
    queue_.push_back(transfer);
  }

  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || first_ < queue_.size(); });
      if (first_ == queue_.size()) return;
      const PageTransfer transfer = queue_[first_++];
      lock.unlock();
      done_(transfer, MovePage(transfer));
      lock.lock();
    }
  }

  Done done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<PageTransfer> queue_;
  std::size_t first_ = 0;  // those before are under way
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Status MovePage(const PageTransfer& transfer) noexcept try {
  return transfer.direction == PageTransfer::Direction::kRead
             ? transfer.file->PRead(transfer.offset, transfer.bytes)
             : transfer.file->PWrite(transfer.offset, transfer.bytes);
} catch (const std::bad_alloc&) {
  return tl::unexpected<Error>(Error{ErrorKind::kOutOfMemory, "out of memory"});  // short enough to need none
}

Result<std::unique_ptr<PageIo>> MakePageIo(std::string_view name, PageIo::Done done, PageIo::Landed landed) {
  if (name == "io_uring" || name == "auto") {
    std::string declined;
    if (std::unique_ptr<PageIo> io = MakeUringIo(done, std::move(landed), declined)) return io;
    if (name == "io_uring") return Unsupported(fmt::format("io_uring is not allowed here: {}", declined));
  }
  if (name == "auto" || name == "threads") return std::make_unique<ThreadedIo>(std::move(done));
  return InvalidInput(fmt::format("pages are read and written by threads or io_uring, not by '{}'", name));
}

}  // namespace longheads
