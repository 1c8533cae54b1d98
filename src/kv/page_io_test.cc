// Pages on their way, by every way to the disk that this system has.
#include "kv/page_io.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "kv/page_file.h"
#include "tests/support/all_are.h"

namespace longheads {
namespace {

constexpr std::size_t kBlock = kDirectAlignment;
constexpr std::size_t kBlocks = 64;

class PageIoTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto is_there = [](const PageTransfer& transfer) {
      return AllAre(transfer.bytes, static_cast<std::byte>(transfer.offset / kBlock));
    };
    const auto done = [this, is_there](const PageTransfer& transfer, const Status& status) {
      if (!status || !is_there(transfer)) ++n_wrong_;
      if (transfer.landed != taken_[transfer.offset / kBlock].exchange(false)) ++n_wrong_;
      static_cast<std::atomic<int64_t>*>(transfer.page)->fetch_add(1, std::memory_order_release);
    };
    const auto landed = [this, is_there](const PageTransfer& transfer) {
      const std::size_t block = transfer.offset / kBlock;
      if (!transfer.may_land || taken_[block]) ++n_wrong_;
      if (on_landed_) on_landed_();
      if (block % 3 == 0 || !is_there(transfer)) return false;
      ++n_taken_;
      taken_[block] = true;
      return true;
    };
    auto io = MakePageIo(GetParam(), done, landed);
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
            .page = &n_ended,
            .may_land = i % 5 != 0};
  }

  AlignedMemory memory_ = AllocateAligned(kBlocks * kBlock, kDirectAlignment);
  std::optional<RawFile> file_;
  std::array<std::atomic<bool>, kBlocks> taken_ = {};  // when it landed
  std::atomic<int64_t> n_taken_ = 0;
  std::function<void()> on_landed_;
  std::atomic<int64_t> n_wrong_ = 0;
  std::atomic<int64_t> n_ended_ = 0;  // of one thread; outlives what is under way where a test fails
  std::unique_ptr<PageIo> io_;        // goes first: it calls Done
};

INSTANTIATE_TEST_SUITE_P(Every, PageIoTest, testing::Values("threads", "io_uring"));

class LandingTest : public PageIoTest {};  // the readings of threads end when they land
INSTANTIATE_TEST_SUITE_P(Every, LandingTest, testing::Values("io_uring"));

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
        for (const PageTransfer& reading : readings)
          std::memset(reading.bytes.data(), 0xff, reading.bytes.size());
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
  EXPECT_EQ(n_taken_ > 0, !io_->has_threads());  // of so many, before their ends were heard of
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

// Who is told that it landed takes the end, too, and goes on with what has ended by now.
TEST_P(LandingTest, WhatEndsWhileSomebodyTakesItIsHeardOfOnce) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point latest = Clock::now() + std::chrono::seconds(20);
  int64_t n_met = 0;
  on_landed_ = [&] {
    const int64_t n_before = n_ended_;
    while (!io_->TakeEnded() && Clock::now() < latest) std::this_thread::yield();
    EXPECT_EQ(n_ended_, n_before);  // not before it was taken
    ++n_met;
  };
  int64_t n_read = 0;
  for (; n_met < 20 && Clock::now() < latest; ++n_read) {
    const PageTransfer reading =
        Reading(n_read % 2 == 0 ? 4 : 3, n_ended_);  // the one is taken, the other not
    std::memset(reading.bytes.data(), 0xff, reading.bytes.size());
    io_->Submit(std::array{reading});
    while (n_ended_ == n_read && Clock::now() < latest) io_->TakeEnded();
    ASSERT_EQ(n_ended_, n_read + 1);
    EXPECT_EQ(io_->n_heard(), static_cast<uint64_t>(n_ended_));
  }
  EXPECT_EQ(n_met, 20);
  EXPECT_GT(n_taken_, 0);
  EXPECT_LT(n_taken_, n_met);
  EXPECT_EQ(n_wrong_, 0);
  EXPECT_FALSE(io_->Await(io_->n_heard()));
}

}  // namespace
}  // namespace longheads
