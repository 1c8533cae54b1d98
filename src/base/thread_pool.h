// The one thread pool: runs the tasks of a parallel loop on fixed threads and joins them. What a task throws
// is thrown again at the join. Which thread runs a task is not defined, so results must not depend on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
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
    const auto call = [](const void* b, int64_t begin, int64_t end, int thread) {
      for (int64_t task = begin; task < end; ++task) (*static_cast<const Body*>(b))(task, thread);
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
  enum class Share { kOne, kRange };  // of the tasks, what is taken at a time
  using Call = void (*)(const void* body, int64_t begin, int64_t end, int thread);

  // The tasks of a loop, and the pieces in which they are taken.
  struct Loop {
    Call call = nullptr;
    const void* body = nullptr;
    int64_t n_tasks = 0;
    int n_pieces = 0;
    int width = 1;       // of ranges: how many are alike
    int n_halvings = 0;  // and how often the next ones have half the length, so many alike each time

    void Divide(Share share, int n_threads);
    std::pair<int64_t, int64_t> Piece(int piece) const;  // its first task, and the first behind it
  };

  // How many pieces the loop has (its lower half, without kStop), and how many were taken. Threads take one
  // by one addition, and only after they have seen that one is left, so that each adds in vain once a loop at
  // most.
  static constexpr uint32_t kTaken = 1 << 16, kStop = 1 << 15;
  static constexpr int kMaxPieces = kStop - 1, kMaxThreads = 1 << 12;
  static int NumPieces(uint32_t pieces) { return static_cast<int>(pieces % kStop); }
  static int NumTaken(uint32_t pieces) { return static_cast<int>(pieces / kTaken); }
  static bool IsLeft(uint32_t pieces) { return NumTaken(pieces) < NumPieces(pieces); }

  void Stop();
  void RunErased(int64_t n_tasks, Share share, Call call, const void* body);
  void WorkerLoop(int thread);
  int TakePieces(int thread);

  std::vector<std::thread> workers_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};  // what is left of the loop is taken, and not called
  alignas(kCacheLine) std::atomic<uint32_t> pieces_{0};
  // Loops that were opened, round 2^32: two loops may leave the same word of pieces behind. Of 32 bits, so
  // that those who sleep wait for this very word.
  std::atomic<uint32_t> n_opened_{0};
  // Pieces that the workers are done with. Until all are done that were taken, and none is left, the loop
  // stays as it is: who holds a piece may read it.
  alignas(kCacheLine) std::atomic<int> n_done_{0};
  alignas(kCacheLine) Loop loop_;
};

}  // namespace longheads
