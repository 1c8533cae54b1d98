#include "base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>
#if __has_include(<malloc.h>)
#include <malloc.h>  // of glibc
#endif

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <vector>

#include "tests/support/sanitized.h"

namespace longheads {
namespace {

// A system of its own to read from.
class AvailableMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("longheads-memory-" + std::to_string(getpid()));
    Write("proc/meminfo", "MemTotal:       100 kB\nMemAvailable:      50 kB\nHugePages_Total:       0\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  uint64_t Available() const { return AvailableMemory(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(AvailableMemoryTest, IsTheSystemsWhereThereAreNoGroups) {
  EXPECT_EQ(Available(), 50u * 1024);
  EXPECT_GT(AvailableMemory(), 0u);
  EXPECT_EQ(AvailableMemory((root_ / "nowhere").string()), ~uint64_t{0});
}

TEST_F(AvailableMemoryTest, CountsAGroupsFileCacheAsFree) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "10000\n");
  Write("sys/fs/cgroup/a/b/memory.current", "9500\n");
  EXPECT_EQ(Available(), 500u);
  Write("sys/fs/cgroup/a/b/memory.stat", "anon 100\ninactive_file 6000\nactive_file 2000\nfile 9000\n");
  EXPECT_EQ(Available(), 8500u);
  // Above it is another, which leaves less.
  Write("sys/fs/cgroup/a/memory.max", "700\n");
  Write("sys/fs/cgroup/a/memory.current", "600\n");
  EXPECT_EQ(Available(), 100u);
  Write("sys/fs/cgroup/a/memory.max", "max\n");
  EXPECT_EQ(Available(), 8500u);
  // More in use than is allowed: nothing is left.
  Write("sys/fs/cgroup/a/memory.max", "500\n");
  EXPECT_EQ(Available(), 0u);
}

TEST_F(AvailableMemoryTest, FindsTheContainersOwnGroupAtTheRoot) {
  Write("proc/self/cgroup", "0::/the/hosts/path\n");
  Write("sys/fs/cgroup/memory.max", "3000\n");
  Write("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(Available(), 2000u);
}

TEST_F(AvailableMemoryTest, ReadsTheFirstVersionOfGroupsToo) {
  Write("proc/self/cgroup", "7:cpu:/x\n4:hugetlb,memory:/job\n0::/\n");
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "10000\n");
  Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "9000\n");
  Write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 3000\n");
  EXPECT_EQ(Available(), 4000u);
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Available(), 50u * 1024);
}

TEST(AllocateLines, BeginWithACacheLineAndAreTheCallersToTheirEnd) {
  std::vector<void*> all;
  for (std::size_t size = 0; size < 300; ++size) {
    void* const lines = AllocateLines(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lines) % kCacheLine, 0) << size;
    std::memset(lines, static_cast<int>(size), size);
    all.push_back(lines);
  }
  for (std::size_t size = 0; size < all.size(); ++size) {
    const auto* const bytes = static_cast<const unsigned char*>(all[size]);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(bytes[i], size % 256) << size;
    FreeLines(all[size]);
  }
  FreeLines(nullptr);
  // The address sanitizer ends the process instead.
  if (!kSanitized) {
    EXPECT_THROW(AllocateLines(std::numeric_limits<std::size_t>::max() - 1), std::bad_alloc);
  }
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
// As a text grows: its last blocks are copied, the old ones go, and small objects stay.
TEST(AllocateLines, WhatWasGivenBackIsThereForTheNextOfThatSize) {
  constexpr std::size_t kBlock = 100'000, kBlocks = 30;
  std::vector<void*> blocks(kBlocks), small;
  const std::size_t before = mallinfo2().fordblks;
  for (int round = 0; round < 100; ++round) {
    const std::vector<void*> old = blocks;
    for (void*& block : blocks) block = AllocateLines(kBlock);
    for (int i = 0; i < 100; ++i) small.push_back(::operator new(40));
    for (void* const block : old) FreeLines(block);
  }
  // Sanitizers have an allocator of their own, and look for what is lost or written to beyond its end.
  if (!kSanitized) {
    EXPECT_LE(mallinfo2().fordblks, before + 2 * kBlocks * kBlock);
  }
  for (void* const block : blocks) FreeLines(block);
  for (void* const object : small) ::operator delete(object);
}
#endif

}  // namespace
}  // namespace longheads
