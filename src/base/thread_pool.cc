#include "base/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/pause.h"

namespace longheads {
namespace {

// A decode step meets at a join some hundred times; sleeping there would cost more than the step. Idle
// workers therefore look for work this often before they sleep: about 50 microseconds.
constexpr int kSpins = 2000;

// Who takes a piece waits for those who take one at the same time. So ranges are about so many, and with few
// threads fewer.
constexpr int kRanges = 64, kMaxHalvings = 5;

}  // namespace

void ThreadPool::Loop::Divide(Share share, int n_threads) {
  if (share == Share::kOne) {
    n_pieces = width = static_cast<int>(std::min<int64_t>(n_tasks, kMaxPieces));
    return;
  }
  width = static_cast<int>(std::min<int64_t>(n_tasks, n_threads));
  const int most = std::clamp(kRanges / width - 1, 1, kMaxHalvings);
  while (n_halvings < most && (n_tasks >> (n_halvings + 1)) >= width) ++n_halvings;
  n_pieces = width * (n_halvings + 1);
}

std::pair<int64_t, int64_t> ThreadPool::Loop::Piece(int piece) const {
  const int halving = piece / width, place = piece % width;
  const int64_t left = n_tasks >> halving, n = halving < n_halvings ? left - left / 2 : left;
  const int64_t begin = n_tasks - left;
  return {begin + n * place / width, begin + n * (place + 1) / width};
}

ThreadPool::ThreadPool(int n_threads) {
  LH_CHECK(n_threads >= 1 && n_threads <= kMaxThreads);
  try {
    for (int thread = 1; thread < n_threads; ++thread) {
      workers_.emplace_back([this, thread] { WorkerLoop(thread); });
    }
  } catch (...) {  // those that started must end before the members they wait on do
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  pieces_.fetch_or(kStop);
  n_opened_.fetch_add(1);
  n_opened_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// Those that it found, as long as there are any; how many.
int ThreadPool::TakePieces(int thread) {
  for (int n = 0;; ++n) {
    uint32_t pieces = pieces_.load(std::memory_order_relaxed);
    if (!IsLeft(pieces)) return n;
    pieces = pieces_.fetch_add(kTaken, std::memory_order_acquire);
    if (!IsLeft(pieces)) return n;
    if (failed_.load(std::memory_order_relaxed)) continue;
    try {
      const auto [begin, end] = loop_.Piece(NumTaken(pieces));
      loop_.call(loop_.body, begin, end, thread);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::RunErased(int64_t n_tasks, Share share, Call call, const void* body) {
  if (n_tasks <= 0) return;
  if (workers_.empty() || n_tasks == 1) return call(body, 0, n_tasks, 0);
  loop_ = {call, body, n_tasks};
  loop_.Divide(share, n_threads());
  n_done_.store(0, std::memory_order_relaxed);
  pieces_.store(loop_.n_pieces, std::memory_order_release);
  n_opened_.store(n_opened_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  n_opened_.notify_all();  // a system call only where one sleeps
  const int n_others = loop_.n_pieces - TakePieces(0);
  for (int spin = 0; n_done_.load(std::memory_order_acquire) != n_others;) {
    if (spin < kSpins) {
      ++spin;
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (error_) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadPool::WorkerLoop(int thread) {
  for (;;) {
    // A loop of which it gets nothing shows that others follow: it looks on as long again.
    uint32_t last = n_opened_.load(std::memory_order_acquire);
    for (int spin = 0;;) {
      const uint32_t n_opened = n_opened_.load(std::memory_order_acquire);
      const uint32_t pieces = pieces_.load(std::memory_order_relaxed);
      if (IsLeft(pieces)) break;
      if ((pieces & kStop) != 0) return;
      if (std::exchange(last, n_opened) != n_opened) spin = 0;
      if (spin < kSpins) {
        ++spin;
        Pause();
      } else {
        n_opened_.wait(n_opened, std::memory_order_acquire);
      }
    }
    if (const int n = TakePieces(thread); n > 0) n_done_.fetch_add(n, std::memory_order_release);
  }
}

}  // namespace longheads
