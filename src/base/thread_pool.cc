#include "base/thread_pool.h"

#include <sched.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"

namespace longheads {
namespace {

// A decode step meets at a join some hundred times; sleeping there would cost more than the step. Idle
// workers therefore look for work this often before they sleep: about 50 microseconds.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// CPUs of the cgroup's quota ("max 100000" or "200000 100000"), or a negative number where there is none.
double CgroupQuota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return -1;
  return std::strtod(quota.c_str(), nullptr) / period;
}

}  // namespace

int PhysicalCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  std::set<std::pair<int, int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    int package = 0;
    int core = cpu;
    std::ifstream(topology + "physical_package_id") >> package;
    std::ifstream(topology + "core_id") >> core;
    cores.emplace(package, core);
  }
  int n = std::max<int>(1, static_cast<int>(cores.size()));
  const double quota = CgroupQuota();
  if (quota > 0) n = std::max(1, std::min(n, static_cast<int>(std::ceil(quota))));
  return n;
}

ThreadPool::ThreadPool(int n_threads) {
  LH_CHECK(n_threads >= 1);
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
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    ++generation_;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::TakeTasks(int thread) {
  for (;;) {
    const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks_) return;
    try {
      call_(body_, task, thread);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_.store(n_tasks_, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::RunErased(int64_t n_tasks, Call call, const void* body) {
  n_tasks_ = n_tasks;
  call_ = call;
  body_ = body;
  next_.store(0, std::memory_order_relaxed);
  const bool share = n_tasks > 1 && !workers_.empty();
  if (share) {
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
  }
  TakeTasks(0);
  if (share) {
    for (int spin = 0; running_.load(std::memory_order_acquire) != 0; ++spin) {
      if (spin < kSpins) {
        Pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::WorkerLoop(int thread) {
  uint64_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) Pause();
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    TakeTasks(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace longheads
