#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <vector>

namespace longheads {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int n_threads : {1, 2, 5, 20, 70}) {
    ThreadPool pool(n_threads);
    for (int64_t n_tasks : {0, 1, 2, 7, 1000, 100'000}) {
      std::vector<std::atomic<int>> calls(n_tasks);
      pool.Run(n_tasks, [&](int64_t task, int thread) {
        ASSERT_LT(thread, n_threads);
        ++calls[task];
      });
      for (auto& n : calls) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, RangesCoverEveryTaskOnce) {
  for (int n_threads : {1, 2, 5, 20, 70}) {
    ThreadPool pool(n_threads);
    for (int64_t n : {0, 1, 2, 7, 35, 64, 1000, 100'000}) {
      std::vector<std::atomic<int>> calls(n);
      std::atomic<int> ranges{0};
      pool.RunRanges(n, [&](int64_t begin, int64_t end, int thread) {
        ASSERT_LT(thread, n_threads);
        ASSERT_LT(begin, end);
        ASSERT_LE(end, n);
        ++ranges;
        for (int64_t task = begin; task < end; ++task) ++calls[task];
      });
      for (auto& count : calls) EXPECT_EQ(count, 1);
      EXPECT_LE(ranges, std::max(64, 2 * n_threads));
    }
  }
}

TEST(ThreadPool, WakesThreadsThatSleep) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far longer than they look for work
    pool.Run(100, [&](int64_t, int) { ++calls; });
  }
  EXPECT_EQ(calls, 500);
}

std::atomic<bool> kept{false}, let_go{false};

// As the system does with threads of which it has more than processors, for as long as the test likes.
void KeepAway(int) {
  kept = true;
  while (!let_go) {
  }
}

TEST(ThreadPool, DoesNotWaitForAThreadThatHasNoTask) {
  ThreadPool pool(2);
  std::atomic<bool> met{false};
  pthread_t worker{};
  pool.Run(2, [&](int64_t, int thread) {
    if (thread == 1) {
      worker = pthread_self();
      met = true;
    } else {
      while (!met) std::this_thread::yield();
    }
  });
  kept = let_go = false;
  ASSERT_NE(std::signal(SIGUSR1, KeepAway), SIG_ERR);
  ASSERT_EQ(pthread_kill(worker, SIGUSR1), 0);
  while (!kept) std::this_thread::yield();
  int64_t alone = 0;
  for (int round = 0; round < 100; ++round) {
    pool.Run(3, [&](int64_t, int thread) { alone += thread == 0; });
    pool.RunRanges(5,
                   [&](int64_t begin, int64_t end, int thread) { alone += thread == 0 ? end - begin : 0; });
  }
  EXPECT_EQ(alone, 800);

  // Back among the others, it has missed what was done without it, and takes part in what follows.
  let_go = true;
  met = false;
  pool.Run(2, [&](int64_t, int thread) {
    if (thread == 1) met = true;
    while (!met) std::this_thread::yield();
  });
  std::signal(SIGUSR1, SIG_DFL);
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

TEST(ThreadPool, ThrowsAtTheJoinWhatARangeThrew) {
  for (int n_threads : {1, 3}) {
    ThreadPool pool(n_threads);
    std::atomic<int64_t> calls{0};
    const auto fail = [&](int64_t begin, int64_t end, int) {
      calls += end - begin;
      if (begin <= 500 && 500 < end) throw std::runtime_error("task 500");
    };
    for (int round = 0; round < 100; ++round) {
      EXPECT_THROW(pool.RunRanges(1000, fail), std::runtime_error);
      calls = 0;
      pool.RunRanges(500, fail);  // and goes on working, without the error of before
      EXPECT_EQ(calls, 500);
    }
  }
}

// What a loop before left behind of its tasks must not count for the next, of the other kind.
TEST(ThreadPool, LoopsOfTasksAndOfRangesFollowOneAnother) {
  for (int n_threads : {2, 4}) {
    ThreadPool pool(n_threads);
    for (int64_t round = 0; round < 1000; ++round) {
      const int64_t n_tasks = 1 + round % 7, n = 1 + round % 130;
      std::atomic<int64_t> tasks{0}, in_ranges{0};
      pool.Run(n_tasks, [&](int64_t task, int) { tasks += task + 1; });
      pool.RunRanges(n, [&](int64_t begin, int64_t end, int) {
        for (int64_t task = begin; task < end; ++task) in_ranges += task + 1;
      });
      ASSERT_EQ(tasks, n_tasks * (n_tasks + 1) / 2) << round;
      ASSERT_EQ(in_ranges, n * (n + 1) / 2) << round;
    }
  }
}

// A worker that comes too late for a loop must not miss that the pool ends. The moment at which it could is
// too short to be forced: this comes upon it by chance, if at all.
TEST(ThreadPool, EndsWhileItsThreadsAreLate) {
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 300; ++i) {
    ThreadPool pool(4);
    for (int loop = 0; loop < i % 3; ++loop) pool.Run(2, [&](int64_t, int) { ++sum; });
  }
  EXPECT_EQ(sum, 2 * 300);
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 5000; ++i) pool.Run(4, [&](int64_t task, int) { sum += task; });
  EXPECT_EQ(sum, 5000 * 6);
}

}  // namespace
}  // namespace longheads
