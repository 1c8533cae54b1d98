// The one thread pool: runs the tasks of a parallel loop on fixed threads and joins them. What a task throws
// is thrown again at the join. Which thread runs a task is not defined, so results must not depend on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace longheads {

class ThreadPool {
 public:
  // n_threads counts the caller: ThreadPool(1) starts no thread. Throws std::system_error where the system
  // starts no more of them.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, n_tasks), thread in [0, n_threads). The caller takes part,
  // and does not wait for threads that came too late for a task: the system may be running something else on
  // them. Allocates nothing. Not re-entrant: a body must not call Run, and one thread at a time may call it.
  template <typename Body>
  void Run(int64_t n_tasks, const Body& body) {
    const auto call = [](const void* b, int64_t task, int64_t, int thread) {
      (*static_cast<const Body*>(b))(task, thread);
    };
    RunErased(n_tasks, Share::kOne, call, &body);
  }

  // The same for ranges that cover [0, n): body(begin, end, thread). They are long at first and short at
  // last, so that threads read what lies side by side and are done at the same time: for tasks of less than a
  // microsecond.
  template <typename Body>
  void RunRanges(int64_t n, const Body& body) {
    const auto call = [](const void* b, int64_t begin, int64_t end, int thread) {
      (*static_cast<const Body*>(b))(begin, end, thread);
    };
    RunErased(n, Share::kRange, call, &body);
  }

 private:
  static constexpr std::size_t kCacheLine = 64;
  enum class Share { kOne, kRange };  // of the tasks that are left, what a thread takes at a time
  using Call = void (*)(const void* body, int64_t begin, int64_t end, int thread);

  void Stop();
  void RunErased(int64_t n_tasks, Share share, Call call, const void* body);
  void WorkerLoop(int thread);
  void TakeTasks(int thread);

  std::vector<std::thread> workers_;
  std::atomic<bool> stop_{false};
  // The number of the last loop (round 2^19 of them), whether workers may enter it, and how many are in it.
  // What is below belongs to that loop: the caller writes it while none is in it and none may enter. Of 32
  // bits, so that those who sleep wait for this very word.
  static constexpr uint32_t kWorker = 1, kOpen = 1 << 12, kLoop = kOpen << 1;
  alignas(kCacheLine) std::atomic<uint32_t> state_{0};
  alignas(kCacheLine) std::atomic<int64_t> next_{0};
  int64_t n_tasks_ = 0;
  Share share_ = Share::kOne;
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace longheads
