// What a prompt read last stays in memory for the token behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "kv/sequence.h"
#include "tests/support/allocations.h"

namespace longheads {
namespace {

constexpr KvGeometry kGeometry{.n_layers = 2, .n_kv_heads = 3, .head_dim = 8, .type = KvType::kF32};
constexpr int64_t kTables = 6;
constexpr int64_t kFrames = 96;  // that memory has room for
constexpr int64_t kPages = 60;   // of each layer and head of a text that is many times as much
// And of one whose ends, three pages of each layer and head, are kept too: beside two of its layers memory
// has room for 48 kept ones, of which 36 are ends, so that 2 of each layer and head are left.
constexpr int64_t kShort = 8;

class KeepForToken : public testing::Test {
 protected:
  void SetUp() override {
    const auto stride = static_cast<uint64_t>(kGeometry.PageStride());
    const auto file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0);
    const Status status = pool_->UseDisk({.ram_bytes = kFrames * stride, .file = file, .io = "threads"});
    ASSERT_TRUE(status) << status.error().message;
    Fill(long_, kPages);
    Fill(short_, kShort);
  }
  // With whole pages, all on disk: what is not there yet stays longer.
  void Fill(KvSequence& sequence, int64_t n_pages) {
    const std::vector<float> zeros(static_cast<std::size_t>(kPageTokens * kGeometry.head_dim));
    sequence.Reserve(n_pages * kPageTokens);
    for (int64_t page = 0; page < n_pages; ++page) {
      ForEachTable([&](int64_t layer, int64_t head) {
        sequence.Write(layer, head, page * kPageTokens, kPageTokens, zeros.data(), kGeometry.head_dim,
                       zeros.data(), kGeometry.head_dim);
        KvPage* const one = sequence.PageAt(layer, head, page);
        ASSERT_TRUE(pool_->Flush(std::span(&one, 1)));
      });
    }
    sequence.Commit(n_pages * kPageTokens);
  }
  template <typename Fn>
  static void ForEachTable(Fn fn) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t head = 0; head < 3; ++head) fn(layer, head);
    }
  }
  static void Use(const KvSequence& sequence, int64_t begin, int64_t end) {
    for (int64_t page = begin; page < end; ++page) {
      ForEachTable([&](int64_t layer, int64_t head) { sequence.Stored(layer, head, page); });
    }
  }
  // The newest first, as they were read; the ends stay whoever reads them.
  static void Keep(const KvSequence& sequence, int64_t layer, int64_t head) {
    sequence.KeepForToken(layer, head, std::vector<int64_t>{kShort - 1, 0, 4, kShort - 2, 3, 2});
  }
  void KeepAll() {
    ForEachTable([&](int64_t layer, int64_t head) { Keep(short_, layer, head); });
  }
  // Pages of the short text, but its ends, that are there after the long one was gone through.
  std::vector<int64_t> Near(int64_t layer, int64_t head) {
    Use(short_, 1, std::min(kShort, short_.size() / kPageTokens) - 2);
    Use(long_, 10, kPages - 10);
    std::vector<int64_t> pages;
    for (int64_t page = 1; page < short_.size() / kPageTokens - 2; ++page) {
      if (short_.IsNear(layer, head, page)) pages.push_back(page);
    }
    return pages;
  }
  static void Generate(const KvSequence& sequence, int64_t layer, int64_t head) {
    sequence.WillRead(layer, head, std::vector<int64_t>{1}, KvSequence::For::kToken);
  }

  std::shared_ptr<KvPool> pool_ = KvPool::Create(kGeometry);
  KvSequence long_{pool_};
  KvSequence short_{pool_};
  const std::vector<int64_t> kept_ = {3, 4};
  const std::vector<int64_t> none_ = {};
};

TEST_F(KeepForToken, TheFirstPagesNamedStayUntilATokenReadsThere) {
  EXPECT_EQ(Near(1, 0), none_);
  KeepAll();
  EXPECT_EQ(Near(1, 0), kept_);
  EXPECT_EQ(Near(0, 2), kept_);
  KeepAll();  // the prompt's next block
  EXPECT_EQ(Near(1, 2), kept_);
  short_.KeepForToken(1, 2, std::vector<int64_t>{2, 1});  // and one that read others
  EXPECT_EQ(Near(1, 2), (std::vector<int64_t>{1, 2}));
  short_.WillRead(1, 0, std::vector<int64_t>{3}, KvSequence::For::kPrompt);
  EXPECT_EQ(Near(1, 0), kept_);
  short_.WillRead(1, 0, std::vector<int64_t>{3}, KvSequence::For::kToken);
  for (int round = 0; round < 5; ++round) Use(long_, 10, kPages - 10);  // what tokens named stays a while
  EXPECT_EQ(Near(1, 0), none_);
  EXPECT_EQ(Near(1, 1), kept_);
}

TEST_F(KeepForToken, AForksTokenFindsThem) {
  KeepAll();
  {
    const KvSequence fork = short_.Fork();
    EXPECT_EQ(Near(0, 1), kept_);
    Generate(fork, 0, 0);
  }
  EXPECT_EQ(Near(0, 0), none_);
  EXPECT_EQ(Near(0, 1), kept_);
  const KvSequence moved = std::move(short_);
  Use(long_, 10, kPages - 10);
  EXPECT_TRUE(moved.IsNear(0, 1, 4));
}

TEST_F(KeepForToken, ATextWithoutATokenIsInNobodysWay) {
  KeepAll();
  Generate(long_, 1, 0);  // another text's token
  EXPECT_EQ(Near(1, 0), none_);
  EXPECT_EQ(Near(1, 1), kept_);
  long_.KeepForToken(1, 1, std::vector<int64_t>{20});  // another text's prompt, and no room beside it
  EXPECT_EQ(Near(1, 1), none_);
  EXPECT_FALSE(long_.IsNear(1, 1, 20));
  EXPECT_EQ(Near(1, 2), kept_);
}

TEST_F(KeepForToken, WhatIsCutIsKeptNoLonger) {
  KeepAll();
  short_.Truncate(4 * kPageTokens - 10);
  EXPECT_EQ(pool_->n_pages(), kTables * (kPages + 4));
  KeepAll();  // pages 2 and 3 are the newest now, and there are no others
  Generate(short_, 0, 0);
  short_ = KvSequence(pool_);
  Use(long_, 10, kPages - 10);
  EXPECT_EQ(pool_->n_pages(), kTables * kPages);
  // All room is free again.
  Fill(short_, kShort);
  KeepAll();
  EXPECT_EQ(Near(1, 2), kept_);
}

TEST_F(KeepForToken, WithTheEndsTheyAreThreeQuartersOfMemoryAtMost) {
  std::vector<KvPage*> wanted;
  for (std::size_t table = 0; table < kTables; ++table) {
    std::vector<KvPage*> here;
    for (int64_t page = 5; page < 30; ++page) {
      here.push_back(long_.PageAt(static_cast<int64_t>(table) / 3, static_cast<int64_t>(table) % 3, page));
    }
    pool_->KeepForToken(table, here, /*n_coming=*/0);
    wanted.insert(wanted.end(), here.begin(), here.end());
  }
  Use(long_, 5, 30);
  Use(long_, 30, 55);
  const auto n_near = std::ranges::count_if(wanted, [&](KvPage* one) { return pool_->IsNear(*one); });
  EXPECT_EQ(n_near, kFrames * 3 / 4 - 36);  // the ends of both texts
}

TEST_F(KeepForToken, WhereMemoryFailsNothingIsKeptByHalves) {
  bool failed = true;
  for (int64_t k = 1; failed; ++k) {
    KvSequence own(pool_);
    Fill(own, kShort);
    FailAllocation(k);
    try {
      Keep(own, 1, 0);
    } catch (const std::bad_alloc&) {
    }
    failed = AllocationFailed();
    FailAllocation(0);
    EXPECT_TRUE(failed || k > 1);
  }
  EXPECT_EQ(Near(1, 0), none_);
  KeepAll();
  EXPECT_EQ(Near(1, 0), kept_);
}

TEST_F(KeepForToken, TokensAreAddedToTheNewestPageAsEver) {
  const std::vector<float> row(static_cast<std::size_t>(kGeometry.head_dim));
  const auto append = [&] {
    const int64_t at = short_.size();
    short_.Reserve(at + 1);
    ForEachTable([&](int64_t layer, int64_t head) {
      short_.Write(layer, head, at, 1, row.data(), kGeometry.head_dim, row.data(), kGeometry.head_dim);
    });
    short_.Commit(at + 1);
  };
  append();
  KvPage* const open = short_.PageAt(1, 0, kShort);
  ForEachTable([&](int64_t layer, int64_t head) {
    short_.KeepForToken(layer, head, std::vector<int64_t>{kShort, kShort - 1, 4});
  });
  append();
  EXPECT_EQ(short_.PageAt(1, 0, kShort), open);
}

}  // namespace
}  // namespace longheads
