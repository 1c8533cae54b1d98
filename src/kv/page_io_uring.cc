// Transfers of pages by io_uring: submitted by whoever asks, awaited by one thread.
#include "kv/page_io_uring.h"

#include <liburing.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "base/check.h"

namespace longheads {
namespace {

// Submissions that wait for the system to take them; transfers under way are not counted.
constexpr unsigned kEntries = 1024;

// What plain calls make of it: where the ring came to less than all of the bytes, they bring the rest, or the
// error with its sentence.
Status ByPlainCalls(const PageTransfer& transfer) {
  return transfer.direction == PageTransfer::Direction::kRead
             ? transfer.file->PRead(transfer.offset, transfer.bytes)
             : transfer.file->PWrite(transfer.offset, transfer.bytes);
}

class UringIo final : public PageIo {
 public:
  UringIo(const io_uring& ring, Done done)
      : ring_(ring), done_(std::move(done)), waiter_([this] { Wait(); }) {}

  ~UringIo() override {
    {
      std::lock_guard lock(mutex_);
      io_uring_sqe* const last = NextEntry();
      LH_CHECK(last != nullptr);
      io_uring_prep_nop(last);
      last->flags |= IOSQE_IO_DRAIN;  // after all before it
      io_uring_sqe_set_data(last, nullptr);
      io_uring_submit(&ring_);
    }
    waiter_.join();
    io_uring_queue_exit(&ring_);
  }

  void Submit(const PageTransfer& transfer) override {
    auto* const copy = new (std::nothrow) PageTransfer(transfer);
    std::unique_lock lock(mutex_);
    io_uring_sqe* const entry = copy != nullptr ? NextEntry() : nullptr;
    if (entry == nullptr) {
      lock.unlock();
      delete copy;
      done_(transfer, ByPlainCalls(transfer));
      return;
    }
    const auto size = static_cast<unsigned>(transfer.bytes.size());
    if (transfer.direction == PageTransfer::Direction::kRead) {
      io_uring_prep_read(entry, transfer.file->descriptor(), transfer.bytes.data(), size, transfer.offset);
    } else {
      io_uring_prep_write(entry, transfer.file->descriptor(), transfer.bytes.data(), size, transfer.offset);
    }
    io_uring_sqe_set_data(entry, copy);
    // What is not taken now is with the next, or by the waiter when it finds the system less busy.
    io_uring_submit(&ring_);
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  io_uring_sqe* NextEntry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry != nullptr) return entry;
    io_uring_submit(&ring_);
    return io_uring_get_sqe(&ring_);
  }

  void Wait() {
    for (;;) {
      io_uring_cqe* completion = nullptr;
      if (io_uring_wait_cqe(&ring_, &completion) != 0) continue;  // a signal came
      const std::unique_ptr<PageTransfer> transfer(
          static_cast<PageTransfer*>(io_uring_cqe_get_data(completion)));
      const int moved = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (!transfer) return;
      const bool whole = moved >= 0 && static_cast<std::size_t>(moved) == transfer->bytes.size();
      done_(*transfer, whole ? Status() : ByPlainCalls(*transfer));
      std::lock_guard lock(mutex_);
      if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
    }
  }

  io_uring ring_;
  std::mutex mutex_;  // of submissions
  Done done_;
  std::thread waiter_;
};

}  // namespace

std::unique_ptr<PageIo> MakeUringIo(PageIo::Done done, std::string& declined) {
  io_uring ring;
  const int status = io_uring_queue_init(kEntries, &ring, 0);
  if (status != 0) {
    declined = std::strerror(-status);
    return nullptr;
  }
  return std::make_unique<UringIo>(ring, std::move(done));
}

}  // namespace longheads
