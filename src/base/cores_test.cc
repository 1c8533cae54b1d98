#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace longheads {
namespace {

// A kernel that numbers `n_numbered` processors and lets the process use `allowed`.
GetAffinity Kernel(std::size_t n_numbered, std::vector<std::size_t> allowed,
                   std::vector<std::size_t>* asked) {
  return [=](std::size_t bytes, cpu_set_t* mask) {
    asked->push_back(bytes);
    if (8 * bytes < n_numbered) {
      errno = EINVAL;
      return -1;
    }
    for (const std::size_t cpu : allowed) CPU_SET_S(cpu, bytes, mask);
    return 0;
  };
}

TEST(AllowedCpus, GrowsTheMaskUntilTheKernelTakesIt) {
  std::vector<std::size_t> asked;
  EXPECT_EQ(AllowedCpus(Kernel(8, {0, 3, 7}, &asked)), (std::vector<int>{0, 3, 7}));
  EXPECT_EQ(asked, (std::vector<std::size_t>{128}));
  asked.clear();
  EXPECT_EQ(AllowedCpus(Kernel(1024, {1023}, &asked)), (std::vector<int>{1023}));
  EXPECT_EQ(asked, (std::vector<std::size_t>{128}));
  asked.clear();
  EXPECT_EQ(AllowedCpus(Kernel(1025, {1024, 0}, &asked)), (std::vector<int>{0, 1024}));
  EXPECT_EQ(asked, (std::vector<std::size_t>{128, 256}));
  asked.clear();
  EXPECT_EQ(AllowedCpus(Kernel(8192, {5, 2047, 2048, 8191}, &asked)),
            (std::vector<int>{5, 2047, 2048, 8191}));
  EXPECT_EQ(asked, (std::vector<std::size_t>{128, 256, 512, 1024}));
}

TEST(AllowedCpus, GivesUpWhereTheSizeIsNotWhatIsWrong) {
  int n_asked = 0;
  const auto refuses = [&](int error) {
    return [&n_asked, error](std::size_t, cpu_set_t*) {
      ++n_asked;
      errno = error;
      return -1;
    };
  };
  EXPECT_TRUE(AllowedCpus(refuses(EPERM)).empty());
  EXPECT_EQ(n_asked, 1);
  EXPECT_TRUE(AllowedCpus(refuses(EINVAL)).empty()) << "not for ever";
}

TEST(AllowedCpus, HoldsTheProcessorThatThisRunsOn) {
  cpu_set_t before;
  CPU_ZERO(&before);
  if (sched_getaffinity(0, sizeof(before), &before) != 0) GTEST_SKIP() << "more than 1024 processors";
  const auto get = [](std::size_t bytes, cpu_set_t* mask) { return sched_getaffinity(0, bytes, mask); };
  const std::vector<int> cpus = AllowedCpus(get);
  EXPECT_EQ(static_cast<int>(cpus.size()), CPU_COUNT(&before));
  EXPECT_TRUE(std::is_sorted(cpus.begin(), cpus.end()));
  // Bound to one of them, there is one core.
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(cpus.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AllowedCpus(get), (std::vector<int>{cpus.back()}));
  EXPECT_EQ(PhysicalCores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(PhysicalCores, IsAtLeastOne) { EXPECT_GE(PhysicalCores(), 1); }

}  // namespace
}  // namespace longheads
