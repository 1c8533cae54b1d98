// Tokens that read more, layer by layer, than memory holds: each reads again what the last one did.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "kv/sequence.h"

namespace longheads {
namespace {

constexpr KvGeometry kGeometry{.n_layers = 8, .n_kv_heads = 2, .head_dim = 8, .type = KvType::kF32};
constexpr int64_t kTables = 16;
constexpr int64_t kPages = 20;  // of each table: of a layer and head
constexpr int64_t kEnds = 3;    // of them, those that stay whoever reads them: the first, and two newest
constexpr int64_t kRead = 8;    // of them, in the middle, those that a token reads: 128 of all tables
constexpr uint64_t kRoom = 80;  // beside the ends, for pages that come and go
constexpr uint64_t kMostAtOnce = 2 * kRead * 2;  // of a layer and the next

std::shared_ptr<KvPool> PoolWith(uint64_t n_frames) {
  const auto stride = static_cast<uint64_t>(kGeometry.PageStride());
  const auto file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0);
  auto pool = KvPool::Create(kGeometry);
  const Status status = pool->UseDisk({.ram_bytes = n_frames * stride, .file = file, .io = "threads"});
  EXPECT_TRUE(status) << status.error().message;
  return pool;
}

// With whole pages, all on disk.
void Fill(KvSequence& sequence) {
  const std::vector<float> zeros(static_cast<std::size_t>(kPageTokens * kGeometry.head_dim));
  sequence.Reserve(kPages * kPageTokens);
  for (int64_t page = 0; page < kPages; ++page) {
    for (int64_t table = 0; table < kTables; ++table) {
      sequence.Write(table / 2, table % 2, page * kPageTokens, kPageTokens, zeros.data(), kGeometry.head_dim,
                     zeros.data(), kGeometry.head_dim);
      KvPage* const one = sequence.PageAt(table / 2, table % 2, page);
      ASSERT_TRUE(sequence.pool()->Flush(std::span(&one, 1)));
    }
  }
  sequence.Commit(kPages * kPageTokens);
}

// A token of each sequence, which go through the layers together. `foresees`: the next layer's pages are sent
// for, before it has chosen them, as the last token chose.
void Generate(std::span<KvSequence> sequences, int64_t first_page, bool foresees) {
  std::vector<int64_t> pages(kRead);
  std::iota(pages.begin(), pages.end(), first_page);
  for (int64_t layer = 0; layer < kGeometry.n_layers; ++layer) {
    for (const KvSequence& sequence : sequences) {
      for (int64_t head = 0; head < 2; ++head) {
        sequence.WillRead(layer, head, pages, KvSequence::For::kToken);
        sequence.Remember(layer, head, pages, {});
      }
      if (foresees) sequence.Expect((layer + 1) % kGeometry.n_layers);
      for (int64_t head = 0; head < 2; ++head) {
        for (const int64_t page : pages) sequence.Stored(layer, head, page);
      }
    }
  }
}

// Pages that came from disk, for a token of each sequence on average, behind the first ones.
uint64_t Brought(std::span<KvSequence> sequences, int64_t first_page, bool foresees) {
  KvPool& pool = *sequences[0].pool();
  for (int i = 0; i < 3; ++i) Generate(sequences, first_page, foresees);
  const KvTraffic before = pool.traffic();
  constexpr int kTokens = 5;
  for (int i = 0; i < kTokens; ++i) Generate(sequences, first_page, foresees);
  return (pool.traffic() - before).bytes_read / static_cast<uint64_t>(kGeometry.PageStride()) / kTokens;
}

TEST(KvRound, MemoryHoldsWhatItHasRoomForOfWhatEachTokenReads) {
  for (const std::size_t n : {1, 2}) {
    for (const bool foresees : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << " sequences, foreseen " << foresees);
      const auto pool = PoolWith(n * (kRoom + kEnds * kTables));
      std::vector<KvSequence> sequences;
      for (std::size_t i = 0; i < n; ++i) sequences.emplace_back(pool);
      for (KvSequence& sequence : sequences) Fill(sequence);
      const uint64_t least = n * (kTables * kRead - kRoom);
      EXPECT_LE(Brought(sequences, 2, foresees), least + n * kMostAtOnce);
      // Tokens that read others have no less room.
      EXPECT_LE(Brought(sequences, 10, foresees), least + n * kMostAtOnce);
    }
  }
}

// What a prompt has just read it reads again, whatever the last answer's tokens read.
TEST(KvRound, APromptsOwnPagesStay) {
  const auto pool = PoolWith(kRoom + kEnds * kTables);
  std::vector<KvSequence> sequences;
  sequences.emplace_back(pool);
  Fill(sequences[0]);
  for (int i = 0; i < 3; ++i) Generate(sequences, 2, /*foresees=*/true);
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

TEST(KvRound, WhatCameInVainLeavesFirst) {
  const auto pool = PoolWith(kRoom + kEnds * kTables);
  KvSequence sequence(pool);
  Fill(sequence);
  const auto near = [&](int64_t page) { return sequence.IsNear(0, 0, page); };
  const auto read = [&](int64_t layer, std::vector<int64_t> pages) {
    sequence.WillRead(layer, 0, pages, KvSequence::For::kToken);
    for (const int64_t page : pages) sequence.Stored(layer, 0, page);
    sequence.Remember(layer, 0, pages, {});
  };
  read(0, {2, 3});
  // Drives them out.
  for (int64_t layer = 1; layer < kGeometry.n_layers; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int i = 0; i < 4; ++i) {
        for (int64_t page = 2; page < 14; ++page) sequence.Stored(layer, head, page);
      }
    }
  }
  ASSERT_FALSE(near(2) || near(3));
  sequence.Expect(0);
  pool->traffic();  // they are there now
  ASSERT_TRUE(near(2) && near(3));
  const auto others = [&] {
    std::vector<int64_t> pages;
    for (int64_t table = 1; table < kTables; ++table) {
      for (int64_t page = 0; page < kPages; ++page) {
        if (sequence.IsNear(table / 2, table % 2, page)) pages.push_back(table * kPages + page);
      }
    }
    return pages;
  };
  const std::vector<int64_t> before = others();
  read(0, {3, 4});
  EXPECT_FALSE(near(2));
  EXPECT_TRUE(near(3) && near(4));
  EXPECT_EQ(others(), before);
}

}  // namespace
}  // namespace longheads
