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

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  LH_CHECK(n_threads >= 1 && n_threads <= static_cast<int>(kOpen));
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
  stop_ = true;
  state_.fetch_add(kLoop);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::TakeTasks(int thread) {
  for (;;) {
    int64_t begin = 0, end = 0;
    if (share_ == Share::kOne) {
      begin = next_.fetch_add(1, std::memory_order_relaxed);
      end = begin + 1;
    } else {
      begin = next_.load(std::memory_order_relaxed);
      do {
        end = begin + std::max<int64_t>(1, (n_tasks_ - begin) / (2 * n_threads()));
      } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    }
    if (begin >= n_tasks_) return;
    try {
      call_(body_, begin, end, thread);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_.store(n_tasks_, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::RunErased(int64_t n_tasks, Share share, Call call, const void* body) {
  if (n_tasks <= 0) return;
  n_tasks_ = n_tasks;
  share_ = share;
  call_ = call;
  body_ = body;
  next_.store(0, std::memory_order_relaxed);
  const bool together = n_tasks > 1 && !workers_.empty();
  if (together) {
    state_.store(state_.load(std::memory_order_relaxed) + kLoop + kOpen, std::memory_order_seq_cst);
    state_.notify_all();  // a system call only where one sleeps
  }
  TakeTasks(0);
  if (together) {
    // What the workers did is seen when their leaving is: all changes since the loop was opened are of one
    // chain of additions, this one among them.
    state_.fetch_sub(kOpen, std::memory_order_relaxed);
    for (int spin = 0; (state_.load(std::memory_order_acquire) & (kOpen - 1)) != 0;) {
      if (spin < kSpins) {
        ++spin;
        Pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t last = 0;
  for (;;) {
    uint32_t state = state_.load(std::memory_order_acquire);
    for (int spin = 0; state / kLoop == last && !stop_; state = state_.load(std::memory_order_acquire)) {
      if (spin < kSpins) {
        ++spin;
        Pause();
      } else {
        state_.wait(state, std::memory_order_acquire);
      }
    }
    last = state / kLoop;
    if (stop_) return;
    // One that fails has seen others come or go, or the loop closed, or another loop, of which it looks anew
    // whether it is the end.
    while ((state & kOpen) != 0 && state / kLoop == last) {
      if (state_.compare_exchange_weak(state, state + kWorker, std::memory_order_acquire)) {
        TakeTasks(thread);
        state_.fetch_sub(kWorker, std::memory_order_release);
        break;
      }
    }
  }
}

}  // namespace longheads
