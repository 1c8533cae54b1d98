// Pages on their way, by every way to the disk that this system has.
#include "kv/page_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "kv/page_file.h"

namespace longheads {
namespace {

constexpr std::size_t kBlock = kDirectAlignment;
constexpr std::size_t kBlocks = 64;

class PageIoTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto io = MakePageIo(GetParam(), [this](const PageTransfer& transfer, const Status& status) {
      const std::span<const std::byte> bytes = transfer.bytes;
      const auto holds = static_cast<std::byte>(transfer.offset / kBlock);
      if (!status || !std::ranges::all_of(bytes, [&](std::byte b) { return b == holds; })) ++n_wrong_;
      static_cast<std::atomic<int64_t>*>(transfer.page)->fetch_add(1, std::memory_order_release);
    });
    if (!io) GTEST_SKIP() << io.error().message;
    io_ = std::move(*io);
    auto file = RawFile::Temporary(testing::TempDir(), /*direct=*/true);
    ASSERT_TRUE(file) << file.error().message;
    file_.emplace(std::move(*file));
    for (std::size_t i = 0; i < kBlocks; ++i) {
      std::memset(memory_.get(), static_cast<int>(i), kBlock);
      ASSERT_TRUE(file_->PWrite(i * kBlock, {memory_.get(), kBlock}));
    }
  }

  // The block that lies there in the file, into a place of its own; the end is counted.
  PageTransfer Reading(std::size_t i, std::atomic<int64_t>& n_ended) const {
    return {.file = &*file_,
            .offset = i * kBlock,
            .bytes = {memory_.get() + i * kBlock, kBlock},
            .page = &n_ended};
  }

  AlignedMemory memory_ = AllocateAligned(kBlocks * kBlock, kDirectAlignment);
  std::optional<RawFile> file_;
  std::atomic<int64_t> n_wrong_ = 0;
  std::atomic<int64_t> n_ended_ = 0;  // of one thread; outlives what is under way where a test fails
  std::unique_ptr<PageIo> io_;        // goes first: it calls Done
};

INSTANTIATE_TEST_SUITE_P(Every, PageIoTest, testing::Values("threads", "io_uring"));

// Who sleeps for an end that another thread took would sleep on.
TEST_P(PageIoTest, ManyTakeEndsAndEachIsHeardOfOnce) {
  constexpr int64_t kRounds = 3000, kTogether = 4, kThreads = 4;
  std::array<std::atomic<int64_t>, kThreads> n_ended = {};
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t round = 1; round <= kRounds; ++round) {
        together.arrive_and_wait();  // so that the last end of a round is nobody else's
        std::array<PageTransfer, kTogether> readings;
        for (std::size_t i = 0; i < kTogether; ++i) readings[i] = Reading(t * kTogether + i, n_ended[t]);
        for (const PageTransfer& reading : readings) std::ranges::fill(reading.bytes, std::byte{0xff});
        io_->Submit(readings);
        for (;;) {
          const uint64_t heard = io_->n_heard();
          if (n_ended[t].load(std::memory_order_acquire) == round * kTogether) break;
          if (!io_->TakeEnded() && !io_->Await(heard)) std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& n : n_ended) EXPECT_EQ(n, kRounds * kTogether);
  EXPECT_EQ(n_wrong_, 0);
  EXPECT_FALSE(io_->TakeEnded());
  EXPECT_FALSE(io_->Await(io_->n_heard()));
}

TEST_P(PageIoTest, EndsAreHeardOfByWhoDoesNotWait) {
  using Clock = std::chrono::steady_clock;
  std::atomic<int64_t>& n_ended = n_ended_;
  for (int64_t round = 1; round <= 10; ++round) {
    io_->Submit(std::array{Reading(3, n_ended), Reading(4, n_ended)});
    const Clock::time_point latest = Clock::now() + std::chrono::seconds(20);
    while (n_ended < 2 * round && Clock::now() < latest) io_->TakeEnded();
    ASSERT_EQ(n_ended, 2 * round);
    EXPECT_EQ(io_->n_heard(), io_->has_threads() ? 0u : static_cast<uint64_t>(2 * round));
  }
  EXPECT_EQ(n_wrong_, 0);
}

}  // namespace
}  // namespace longheads
