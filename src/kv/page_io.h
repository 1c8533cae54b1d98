// Pages on their way between memory and disk, beside the work of those who will need them. How the system is
// asked is an implementation's: io_uring, or threads with plain calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/raw_file.h"
#include "base/result.h"

namespace longheads {

struct PageTransfer {
  enum class Direction : uint8_t { kRead, kWrite };

  Direction direction = Direction::kRead;
  const RawFile* file = nullptr;
  uint64_t offset = 0;
  std::span<std::byte> bytes;  // untouched by others until it is done
  void* page = nullptr;        // the caller's
  // Of a reading: PageIo::Landed may hear of it. The last eight bytes of the memory, at a multiple of eight,
  // are overwritten before the reading begins; the memory is there as long as the PageIo.
  bool may_land = false;
  // Landed took it before, and Done hears that it ended: `page` and `file` may be gone.
  bool landed = false;
};

class PageIo {
 public:
  // Hears of every transfer that ended; it may submit none.
  using Done = std::function<void(const PageTransfer& transfer, const Status& status)>;
  // Hears of readings that may land, each once at most, when memory holds something new at their end, and the
  // system has not said yet that they ended: a disk that does one after the other may tell of all when it did
  // the last, and to be told takes some time more. Whether all of it is there is for Landed to find out, by a
  // checksum of a copy, since the system may still write; true where it is, and needed no more. Until Done
  // hears of the end, too, the memory stays untouched by others.
  using Landed = std::function<bool(const PageTransfer& transfer)>;

  virtual ~PageIo() = default;  // after all that was submitted is done
  // All of them in one go, which costs less than one by one. Never waits for the disk, but for what cannot be
  // submitted: that is done before it returns.
  virtual void Submit(std::span<const PageTransfer> transfers) = 0;
  // Who hears of ends: done() is called by threads of the queue's own, or by those that call TakeEnded and
  // Await, and that submit.
  virtual bool has_threads() const = 0;
  // Of one transfer that has ended or landed by now, unless another thread is at it; whether it told of any.
  // Never waits for the disk, and where nothing came takes no time to speak of. Threads that call it run
  // Done, and Landed, side by side.
  virtual bool TakeEnded() { return false; }
  // Ends that were taken, and that Done has heard of.
  virtual uint64_t n_heard() const { return 0; }
  // Of the transfer that ends next, which it waits for. False at once where none is under way, and where one
  // more was taken than `heard`, which n_heard() was before the caller looked for what it needs: that may be
  // it, and Done is about to hear of it.
  virtual bool Await(uint64_t /*heard*/) { return false; }
  virtual std::string_view name() const = 0;
};

// The transfer by plain calls of this thread; where there is no memory for an error's sentence, an error of
// that.
Status MovePage(const PageTransfer& transfer) noexcept;

// "threads", "io_uring", or "auto": io_uring where the system allows it.
Result<std::unique_ptr<PageIo>> MakePageIo(std::string_view name, PageIo::Done done,
                                           PageIo::Landed landed = {});

}  // namespace longheads
