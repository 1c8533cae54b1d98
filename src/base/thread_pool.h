// The one thread pool: runs the tasks of a parallel loop on fixed threads and joins them. What a task throws
// is thrown again at the join. Which thread runs a task is not defined, so results must not depend on it.
#pragma once

#include <atomic>
#include <condition_variable>
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

  // Calls body(task, thread) for every task in [0, n_tasks), thread in [0, n_threads). The caller takes part.
  // Allocates nothing. Not re-entrant: a body must not call Run, and one thread at a time may call it.
  template <typename Body>
  void Run(int64_t n_tasks, const Body& body) {
    if (n_tasks <= 0) return;
    RunErased(
        n_tasks,
        [](const void* b, int64_t task, int thread) { (*static_cast<const Body*>(b))(task, thread); }, &body);
  }

 private:
  using Call = void (*)(const void* body, int64_t task, int thread);

  void Stop();
  void RunErased(int64_t n_tasks, Call call, const void* body);
  void WorkerLoop(int thread);
  void TakeTasks(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> next_{0};
  int64_t n_tasks_ = 0;
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace longheads
