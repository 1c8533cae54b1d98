#include "kv/disk_speed.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>

#include "kv/frame_store.h"
#include "kv/page_io.h"

namespace longheads {

Result<std::vector<double>> MeasureDiskSpeed(const std::string& folder, uint64_t bytes, int repeats,
                                             const CancelToken* cancel) {
  using Clock = std::chrono::steady_clock;
  const Error stopped = {ErrorKind::kCancelled, "interrupted"};
  constexpr uint64_t kPiece = uint64_t{64} << 10;
  const uint64_t n_pieces = bytes / kPiece;
  LH_ASSIGN(const RawFile file, RawFile::Temporary(folder, /*direct=*/true));
  constexpr uint64_t kUnderWay = 64;
  FrameStore store({.data_bytes = kPiece});
  std::vector<PageFrame> frames;
  while (frames.size() < kUnderWay) frames.push_back(store.New());
  const auto place = [&](uint64_t i) { return std::span(frames[i].data(), kPiece); };
  std::memset(place(0).data(), 0x5a, kPiece);
  for (uint64_t i = 0; i < n_pieces; ++i) {
    if (Cancelled(cancel)) return tl::unexpected<Error>(stopped);
    LH_TRY(file.PWrite(i * kPiece, place(0)));
  }
  LH_TRY(file.Sync());
  std::vector<uint64_t> order(n_pieces);
  std::iota(order.begin(), order.end(), 0);
  std::mutex mutex;
  std::condition_variable ended;
  uint64_t n_left = 0;
  Status failed;
  LH_ASSIGN(const std::unique_ptr<PageIo> io,
            MakePageIo("auto", [&](const PageTransfer&, const Status& status) {
              const std::scoped_lock lock(mutex);
              if (!status) failed = status;
              if (--n_left == 0) ended.notify_one();
            }));
  std::vector<double> rates;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::shuffle(order.begin(), order.end(), std::mt19937_64(static_cast<uint64_t>(repeat)));
    const auto start = Clock::now();
    for (uint64_t first = 0; first < n_pieces; first += kUnderWay) {
      if (Cancelled(cancel)) return tl::unexpected<Error>(stopped);
      const uint64_t n = std::min(kUnderWay, n_pieces - first);
      n_left = n;
      std::vector<PageTransfer> transfers;
      for (uint64_t i = 0; i < n; ++i) {
        transfers.push_back({.file = &file, .offset = order[first + i] * kPiece, .bytes = place(i)});
      }
      io->Submit(transfers);
      while (io->Await(io->n_heard())) {
      }
      std::unique_lock lock(mutex);
      ended.wait(lock, [&n_left] { return n_left == 0; });
    }
    LH_TRY(failed);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    rates.push_back(static_cast<double>(n_pieces * kPiece) / seconds);
  }
  return rates;
}

}  // namespace longheads
