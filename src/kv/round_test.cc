// Tokens that read more, layer by layer, than memory holds: each reads again what the last one did.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "kv/sequence.h"

namespace longheads {
namespace {

constexpr KvGeometry kPlain{.n_layers = 8, .n_kv_heads = 2, .head_dim = 8, .type = KvType::kF32};
constexpr KvGeometry kPackable{.n_layers = 8, .n_kv_heads = 2, .head_dim = 64, .type = KvType::kBF16};
constexpr int64_t kTables = 16;
constexpr int64_t kPages = 20;    // of each table: of a layer and head
constexpr int64_t kEnds = 3;      // of them, those that stay whoever reads them: the first, and two newest
constexpr int64_t kRead = 8;      // of them, in the middle, those that a token reads: 128 of all tables
constexpr uint64_t kRoom = 80;    // beside the ends, for pages that come and go
constexpr uint64_t kAtOnce = 32;  // of a layer and the next

std::shared_ptr<KvPool> PoolWith(uint64_t n_frames, const KvGeometry& geometry = kPlain) {
  const auto stride = static_cast<uint64_t>(geometry.PageStride());
  const auto file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0);
  auto pool = KvPool::Create(geometry);
  const Status status = pool->UseDisk({.ram_bytes = n_frames * stride, .file = file, .io = "threads"});
  EXPECT_TRUE(status) << status.error().message;
  return pool;
}

// With whole pages, all on disk; the ends in memory.
void Fill(KvSequence& sequence) {
  const int64_t d = sequence.geometry().head_dim;
  const std::vector<float> zeros(static_cast<std::size_t>(kPageTokens * d));
  const auto for_each_table = [&](auto fn) {
    for (int64_t table = 0; table < kTables; ++table) fn(table / 2, table % 2);
  };
  sequence.Reserve(kPages * kPageTokens);
  for (int64_t page = 0; page < kPages; ++page) {
    for_each_table([&](int64_t layer, int64_t head) {
      sequence.Write(layer, head, page * kPageTokens, kPageTokens, zeros.data(), d, zeros.data(), d);
      KvPage* const one = sequence.PageAt(layer, head, page);
      ASSERT_TRUE(sequence.pool()->Flush(std::span(&one, 1)));
    });
  }
  sequence.Commit(kPages * kPageTokens);
  for_each_table([&](int64_t layer, int64_t head) {
    for (const int64_t page : {int64_t{0}, kPages - 2, kPages - 1}) sequence.Stored(layer, head, page);
  });
}

// A token of each sequence, which go through the layers together. `foresees`: the next layer's pages are sent
// for, before it has chosen them, as the last token chose.
void Generate(std::span<KvSequence> sequences, const std::vector<int64_t>& pages, bool foresees) {
  KvPool& pool = *sequences[0].pool();
  const int64_t n_layers = pool.geometry().n_layers;
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      for (const KvSequence& sequence : sequences) {
        sequence.WillRead(layer, head, pages, KvSequence::For::kToken,
                          static_cast<int64_t>(sequences.size()));
        sequence.Remember(layer, head, pages, {});
      }
    }
    for (const KvSequence& sequence : sequences) {
      if (foresees) sequence.Expect((layer + 1) % n_layers);
    }
    for (const KvSequence& sequence : sequences) {
      for (int64_t head = 0; head < 2; ++head) {
        for (const int64_t page : pages) sequence.AsItLies(layer, head, page);
      }
    }
  }
}

// kRead pages side by side, one of them named twice, as where several heads name it.
std::vector<int64_t> From(int64_t first_page) {
  std::vector<int64_t> pages(kRead);
  std::iota(pages.begin(), pages.end(), first_page);
  pages.push_back(first_page);
  return pages;
}

// Pages that came from disk, for a token of each sequence on average, behind the first ones.
uint64_t Brought(std::span<KvSequence> sequences, bool foresees,
                 const std::function<std::vector<int64_t>(int64_t token)>& pages) {
  KvPool& pool = *sequences[0].pool();
  constexpr int kFirst = 8;
  for (int i = 0; i < kFirst; ++i) Generate(sequences, pages(i), foresees);
  const KvTraffic before = pool.traffic();
  constexpr int kTokens = 10;
  for (int i = 0; i < kTokens; ++i) Generate(sequences, pages(kFirst + i), foresees);
  return (pool.traffic() - before).bytes_read / static_cast<uint64_t>(pool.geometry().PageStride()) / kTokens;
}

TEST(KvRound, MemoryHoldsWhatItHasRoomForOfWhatEachTokenReads) {
  for (const std::size_t n : {1, 2}) {
    for (const bool foresees : {false, true}) {
      for (const KvGeometry& geometry : {kPlain, kPackable}) {
        SCOPED_TRACE(testing::Message()
                     << n << " texts, foreseen " << foresees << ", of " << geometry.head_dim);
        const auto pool = PoolWith(n * (kRoom + kEnds * kTables), geometry);
        std::vector<KvSequence> sequences;
        for (std::size_t i = 0; i < n; ++i) sequences.emplace_back(pool);
        for (KvSequence& sequence : sequences) Fill(sequence);
        const uint64_t least = n * (kTables * kRead - kRoom);
        // Tokens that then read others have no less room.
        for (const int64_t first_page : {2, 10}) {
          const uint64_t brought = Brought(sequences, foresees, [&](int64_t) { return From(first_page); });
          EXPECT_LE(brought, least + n * kAtOnce);
          if (pool->packs()) continue;  // more of them have room
          EXPECT_GE(brought, least);
        }
      }
    }
  }
}

// Memory holds what every token reads, and hardly more: that is left to what tokens read by turns.
TEST(KvRound, WhatMostTokensReadStays) {
  constexpr int64_t kByAll = 5;
  constexpr int64_t kByTurns = 3;
  constexpr int64_t kBeside = 8;
  const auto pool = PoolWith(kByAll * kTables + kBeside + kEnds * kTables);
  std::vector<KvSequence> sequences;
  sequences.emplace_back(pool);
  Fill(sequences[0]);
  const uint64_t brought = Brought(sequences, /*foresees=*/false, [](int64_t token) {
    std::vector<int64_t> pages;
    for (int64_t i = 0; i < kByTurns; ++i) pages.push_back(2 + (kByTurns * token + i) % 10);
    for (int64_t i = 0; i < kByAll; ++i) pages.push_back(12 + i);
    return pages;
  });
  EXPECT_LE(brought, kByTurns * kTables);
}

// What a prompt has just read it reads again, whatever the last answer's tokens read.
TEST(KvRound, APromptsOwnPagesStay) {
  const auto pool = PoolWith(kRoom + kEnds * kTables);
  std::vector<KvSequence> sequences;
  sequences.emplace_back(pool);
  Fill(sequences[0]);
  for (int i = 0; i < 8; ++i) Generate(sequences, From(2), /*foresees=*/true);
  const std::vector<int64_t> pages = {12, 13, 14, 15};
  const auto read = [&] {
    for (int64_t table = 0; table < kTables / 2; ++table) {
      sequences[0].WillRead(table / 2, table % 2, pages, KvSequence::For::kPrompt);
      for (const int64_t page : pages) sequences[0].Stored(table / 2, table % 2, page);
    }
  };
  read();
  const KvTraffic before = pool->traffic();
  for (int i = 0; i < 3; ++i) read();
  EXPECT_EQ((pool->traffic() - before).bytes_read, 0);
}

// Tokens read pages 2 to 5 of the first table, the last one all of them; then they left.
class Foreseen : public testing::Test {
 protected:
  void SetUp() override {
    Fill(sequence_);
    const std::vector<std::vector<int64_t>> tokens = {
        {2, 5}, {2, 3, 5}, {2, 3, 5}, {2, 3, 5}, {2, 3, 4, 5}, {2, 3, 4}, {2, 4}, {2, 4}, {2, 3, 4, 5}};
    for (const std::vector<int64_t>& pages : tokens) Round(pages);
    for (int i = 0; i < 4; ++i) {
      ForEachOther(2, 14,
                   [&](int64_t layer, int64_t head, int64_t page) { sequence_.Stored(layer, head, page); });
    }
    Plan(1, {2});  // the next token's, of another layer or head
    ASSERT_FALSE(Near(2) || Near(3) || Near(4) || Near(5));
  }
  // The newest token read these.
  void Expect(const std::vector<int64_t>& pages) {
    sequence_.Remember(0, 0, pages, {});
    sequence_.Expect(0);
    pool_->traffic();  // what is on its way is there now
  }
  template <typename Fn>
  static void ForEachOther(int64_t begin, int64_t end, Fn fn) {
    for (int64_t table = 1; table < kTables; ++table) {
      for (int64_t page = begin; page < end; ++page) fn(table / 2, table % 2, page);
    }
  }
  // Of tokens' plans for all tables: these pages of the first.
  void Round(const std::vector<int64_t>& pages) {
    Plan(0, pages);
    for (int64_t table = 1; table < kTables; ++table) Plan(table, {2});
  }
  void Plan(int64_t table, const std::vector<int64_t>& pages) {
    sequence_.WillRead(table / 2, table % 2, pages, KvSequence::For::kToken);
  }
  bool Near(int64_t page) const { return sequence_.IsNear(0, 0, page); }
  std::vector<KvPage*> NearOfOthers() const {
    std::vector<KvPage*> pages;
    ForEachOther(0, kPages, [&](int64_t layer, int64_t head, int64_t page) {
      if (sequence_.IsNear(layer, head, page)) pages.push_back(sequence_.PageAt(layer, head, page));
    });
    return pages;
  }

  std::shared_ptr<KvPool> pool_ = PoolWith(kRoom + kEnds * kTables);
  KvSequence sequence_{pool_};
};

TEST_F(Foreseen, AreThosePagesThatMostOfTheLastEightTokensRead) {
  Expect({5, 4, 3, 2});
  EXPECT_TRUE(Near(2) && Near(3));   // eight, and six
  EXPECT_FALSE(Near(4) || Near(5));  // five each
}

TEST_F(Foreseen, AreAllWhereMemoryIsFree) {
  sequence_.Truncate(14 * kPageTokens);
  Expect({2, 3, 4, 5});
  EXPECT_TRUE(Near(2) && Near(3) && Near(4) && Near(5));
}

TEST_F(Foreseen, InVainLeavesFirst) {
  Expect({2, 3});
  ASSERT_TRUE(Near(2) && Near(3));
  const std::vector<KvPage*> before = NearOfOthers();
  Plan(0, {3, 6});
  sequence_.Stored(0, 0, 6);
  EXPECT_FALSE(Near(2));
  EXPECT_TRUE(Near(3) && Near(6));
  EXPECT_EQ(NearOfOthers(), before);
}

}  // namespace
}  // namespace longheads
