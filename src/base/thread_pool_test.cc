#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace longheads {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    for (int64_t n_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(n_tasks);
      pool.Run(n_tasks, [&](int64_t task, int thread) {
        ASSERT_LT(thread, n_threads);
        ++calls[task];
      });
      for (auto& n : calls) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, ThrowsAtTheJoinWhatATaskThrew) {
  ThreadPool pool(3);
  const auto fail = [](int64_t task, int) {
    if (task == 5) throw std::runtime_error("task 5");
  };
  EXPECT_THROW(pool.Run(100, fail), std::runtime_error);
  std::atomic<int> calls{0};
  pool.Run(10, [&](int64_t, int) { ++calls; });  // and goes on working
  EXPECT_EQ(calls, 10);
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 5000; ++i) pool.Run(4, [&](int64_t task, int) { sum += task; });
  EXPECT_EQ(sum, 5000 * 6);
}

}  // namespace
}  // namespace longheads
