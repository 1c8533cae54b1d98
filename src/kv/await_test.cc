// Who needs several pages takes them as they come.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kv/pool.h"

namespace longheads {
namespace {

constexpr KvGeometry kGeometry{.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .type = KvType::kF32};
const auto kStride = static_cast<uint64_t>(kGeometry.PageStride());
constexpr int kPages = 3 * KvPool::kLeastPages;

// Keeps who reads one place waiting, and fails readings where it is told to.
class SlowPlace final : public FileFaults {
 public:
  SlowPlace() { InstallFileFaults(this); }
  ~SlowPlace() override { InstallFileFaults(nullptr); }
  Verdict Before(const FileOperation& operation) override {
    std::unique_lock lock(mutex_);
    if (operation.call != FileCall::kRead) return {};
    // Until somebody releases it; with an end, so that a test that fails does end.
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return operation.offset != slow_; });
    return {.error = fails_ ? EIO : 0};
  }
  void Hold(uint64_t offset) {
    const std::lock_guard lock(mutex_);
    slow_ = offset;
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    slow_.reset();
    changed_.notify_all();
  }
  void Fail(bool fails) {
    const std::lock_guard lock(mutex_);
    fails_ = fails;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<uint64_t> slow_;
  bool fails_ = false;
};

// Pages on disk, of which the first are there alone.
class AwaitTest : public testing::Test {
 protected:
  void SetUp() override {
    const Status status = pool_->UseDisk({.ram_bytes = KvPool::kLeastPages * kStride,
                                          .file = *TemporaryPageFile::Create(testing::TempDir(), kStride, 0),
                                          .io = "threads"});
    ASSERT_TRUE(status) << status.error().message;
    std::vector<KvPage*> all;
    for (int i = 0; i < kPages; ++i) {
      pages_.push_back(pool_->Acquire());
      all.push_back(pages_.back().get());
      std::memset(pool_->Write(*all.back(), /*fills=*/true).data(), i + 1, kStride);
    }
    ASSERT_TRUE(pool_->Flush(all));
    wanted_.assign(all.begin(), all.begin() + 3);
    DriveOut();
  }
  void DriveOut() {
    for (int pass = 0; pass < 2; ++pass) {
      for (int i = 3; i < kPages; ++i) pool_->Read(*pages_[static_cast<std::size_t>(i)]);
    }
    for (KvPage* const page : wanted_) ASSERT_FALSE(pool_->IsNear(*page));
  }
  void SendFor() { pool_->ReadAhead(wanted_, KvPool::Asked::kForCertain); }
  // The first, which comes while somebody waits for it; or before, where this thread gets no time till then.
  void AwaitHeld(SlowPlace& disk) {
    wanted_.resize(1);
    disk.Hold(pool_->PlaceOf(*wanted_[0]).offset);
    SendFor();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      disk.Release();
    });
    EXPECT_EQ(pool_->AwaitOne(wanted_), 0u);
    other.join();
  }
  bool Holds(std::size_t i) {
    return pool_->Read(*wanted_[i]).data()[kStride - 1] == static_cast<std::byte>(i + 1);
  }

  std::shared_ptr<KvPool> pool_ = KvPool::Create(kGeometry);
  std::vector<std::shared_ptr<KvPage>> pages_;
  std::vector<KvPage*> wanted_;
};

TEST_F(AwaitTest, WhatComesFirstIsGivenFirst) {
  SlowPlace disk;
  disk.Hold(pool_->PlaceOf(*wanted_[0]).offset);
  SendFor();
  std::vector<KvPage*> left = wanted_;
  for (int i = 0; i < 2; ++i) {
    const std::size_t at = pool_->AwaitOne(left);
    ASSERT_NE(left[at], wanted_[0]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
  }
  ASSERT_EQ(left.front(), wanted_[0]);
  EXPECT_TRUE(Holds(1));
  EXPECT_TRUE(Holds(2));
  disk.Release();
  EXPECT_EQ(pool_->AwaitOne(left), 0u);
  EXPECT_TRUE(pool_->IsNear(*wanted_[0]));
  EXPECT_TRUE(Holds(0));
}

TEST_F(AwaitTest, WhoWaitedCountsAMissAndItsTime) {
  SlowPlace disk;
  double waited = 0;
  for (int i = 0; i < 20 && waited == 0; ++i) {
    const KvTraffic before = pool_->traffic();
    AwaitHeld(disk);
    EXPECT_TRUE(Holds(0));
    const KvTraffic since = pool_->traffic() - before;
    waited = since.waited_seconds;
    EXPECT_EQ(since.misses, waited > 0 ? 1u : 0u);
    EXPECT_EQ(since.hits, waited > 0 ? 0u : 1u);
    EXPECT_TRUE(Holds(0));
    EXPECT_EQ((pool_->traffic() - before).hits, since.hits + 1);
    DriveOut();
  }
  EXPECT_GT(waited, 0);
}

TEST_F(AwaitTest, WhatIsInMemoryComesBeforeWhatNobodySentFor) {
  EXPECT_EQ(pool_->AwaitOne(wanted_), 0u);
  EXPECT_FALSE(pool_->IsNear(*wanted_[0]));
  EXPECT_TRUE(Holds(2));
  EXPECT_EQ(pool_->AwaitOne(wanted_), 2u);
}

TEST_F(AwaitTest, WhoWaitsHearsOfAReadingThatFails) {
  SlowPlace disk;
  disk.Fail(true);
  AwaitHeld(disk);
  EXPECT_THROW(pool_->Read(*wanted_[0]), PageError);
}

TEST_F(AwaitTest, WhatCannotBeReadIsGivenToo) {
  SlowPlace disk;
  disk.Fail(true);
  SendFor();
  EXPECT_EQ(pool_->traffic().read_ahead, 3u);  // waits for their ends
  EXPECT_EQ(pool_->AwaitOne(wanted_), 0u);
  EXPECT_THROW(pool_->Read(*wanted_[0]), PageError);
  disk.Fail(false);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(Holds(i));
}

}  // namespace
}  // namespace longheads
