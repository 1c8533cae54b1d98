#include "kv/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "tests/support/allocations.h"

namespace longheads {
namespace {

constexpr int64_t kDim = 8;

float KeyOf(int64_t layer, int64_t head, int64_t token, int64_t m, int64_t salt) {
  return static_cast<float>(salt * 1000 + layer * 100 + head * 10 + m) + static_cast<float>(token % 64) / 64;
}

void Append(KvSequence& sequence, int64_t n, int64_t salt = 0) {
  const int64_t from = sequence.size();
  sequence.Reserve(from + n);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 3; ++head) {
      std::vector<float> k(n * kDim), v(n * kDim);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t m = 0; m < kDim; ++m) {
          k[i * kDim + m] = KeyOf(layer, head, from + i, m, salt);
          v[i * kDim + m] = -k[i * kDim + m];
        }
      }
      sequence.Write(layer, head, from, n, k.data(), kDim, v.data(), kDim);
    }
  }
  sequence.Commit(from + n);
}

// Half of the last bit that the type keeps; of a row whose largest number is near 5000 for q8.
float Tolerance(KvType type, float expected) {
  switch (type) {
    case KvType::kF32:
      return 0;
    case KvType::kBF16:
      return std::abs(expected) / 256;
    case KvType::kQ8:
      return (std::abs(expected) + 8) / 254 * 1.001f;
  }
  return 0;
}

void Expect(const KvSequence& sequence, int64_t token, int64_t salt = 0) {
  std::vector<float> scratch(2 * kPageTokens * kDim);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 3; ++head) {
      const auto [k, v] = sequence.Read(layer, head, token / kPageTokens, scratch.data());
      for (int64_t m = 0; m < kDim; ++m) {
        const float expected = KeyOf(layer, head, token, m, salt);
        const float tolerance = Tolerance(sequence.geometry().type, expected);
        ASSERT_NEAR(k[token % kPageTokens * kDim + m], expected, tolerance);
        ASSERT_NEAR(v[m * kPageTokens + token % kPageTokens], -expected, tolerance);
      }
      std::vector<float> keys_scratch(kPageTokens * kDim);
      const float* const keys = sequence.ReadKeys(layer, head, token / kPageTokens, keys_scratch.data());
      std::vector<float> copied(kDim);
      sequence.CopyKeys(layer, head, token, 1, copied.data(), kDim);
      for (int64_t m = 0; m < kDim; ++m) {
        ASSERT_EQ(keys[token % kPageTokens * kDim + m], k[token % kPageTokens * kDim + m]);
        ASSERT_EQ(copied[m], k[token % kPageTokens * kDim + m]);
      }
    }
  }
}

class KvSequenceTest : public testing::TestWithParam<KvType> {
 protected:
  std::shared_ptr<KvPool> pool_ =
      KvPool::Create({.n_layers = 2, .n_kv_heads = 3, .head_dim = kDim, .type = GetParam()});
};

TEST_P(KvSequenceTest, HoldsWhatWasWrittenInUnevenBlocks) {
  KvSequence sequence(pool_);
  for (const int64_t n : {1, 200, 55, 1, 300}) Append(sequence, n);
  EXPECT_EQ(sequence.size(), 557);
  for (int64_t token = 0; token < 557; ++token) Expect(sequence, token);
}

// A prompt's tokens and single ones go into a page by different ways.
TEST_P(KvSequenceTest, HoldsTheSameBitsHoweverTheTokensCame) {
  KvSequence together(pool_);
  Append(together, 300);
  KvSequence one_by_one(pool_);
  for (int i = 0; i < 300; ++i) Append(one_by_one, 1);
  std::vector<float> scratch(2 * kPageTokens * kDim), other_scratch(scratch);
  for (int64_t page = 0; page < 2; ++page) {
    const auto [k, v] = together.Read(1, 2, page, scratch.data());
    const auto [other_k, other_v] = one_by_one.Read(1, 2, page, other_scratch.data());
    EXPECT_TRUE(std::equal(k, k + kPageTokens * kDim, other_k)) << page;
    EXPECT_TRUE(std::equal(v, v + kPageTokens * kDim, other_v)) << page;
  }
}

TEST_P(KvSequenceTest, CopiesKeysAcrossPagesWithAStride) {
  KvSequence sequence(pool_);
  Append(sequence, 300);
  constexpr int64_t kStride = kDim + 3, kFirst = 250, kCopied = 20;
  std::vector<float> copied(kCopied * kStride, -1);
  sequence.CopyKeys(1, 2, kFirst, kCopied, copied.data(), kStride);
  for (int64_t i = 0; i < kCopied; ++i) {
    std::vector<float> scratch(kPageTokens * kDim);
    const float* const page = sequence.ReadKeys(1, 2, (kFirst + i) / kPageTokens, scratch.data());
    for (int64_t m = 0; m < kStride; ++m) {
      EXPECT_EQ(copied[i * kStride + m], m < kDim ? page[(kFirst + i) % kPageTokens * kDim + m] : -1);
    }
  }
}

TEST_P(KvSequenceTest, ForksGoOnWithoutSeeingEachOther) {
  KvSequence first(pool_);
  Append(first, 300);
  const int64_t before = pool_->n_pages();
  KvSequence second = first.Fork();
  EXPECT_EQ(pool_->n_pages(), before);  // nothing copied yet
  Append(second, 10, 5);
  Append(first, 10, 7);
  for (const int64_t token : {0, 255, 256, 299}) {
    Expect(first, token);
    Expect(second, token);
  }
  Expect(second, 300, 5);
  Expect(first, 309, 7);
  EXPECT_EQ(pool_->n_pages(), before + 6);  // the open pages alone
}

TEST_P(KvSequenceTest, ForksDoNotShareRoomThatHoldsNoTokensYet) {
  KvSequence first(pool_);
  Append(first, 256);
  first.Reserve(400);  // and then the request is cancelled
  KvSequence second = first.Fork();
  Append(second, 10, 5);
  Append(first, 10, 7);
  Expect(second, 260, 5);
  Expect(first, 260, 7);
}

TEST_P(KvSequenceTest, TruncateForgetsAndGivesPagesBack) {
  KvSequence sequence(pool_);
  Append(sequence, 700);
  KvSequence fork = sequence.Fork();
  sequence.Truncate(257);
  Append(sequence, 100, 3);
  Expect(sequence, 256);
  Expect(sequence, 257, 3);
  Expect(fork, 257);
  { KvSequence gone = std::move(fork); }
  EXPECT_EQ(pool_->n_pages(), 2 * 6);
  sequence.Truncate(0);
  EXPECT_EQ(pool_->n_pages(), 0);
}

TEST_P(KvSequenceTest, GathersAnyTokensSideBySide) {
  KvSequence sequence(pool_);
  Append(sequence, 600);
  // Runs, some longer than a vector, some over a page's end; singles; backwards; one twice.
  std::vector<int32_t> tokens;
  for (int32_t token = 240; token < 275; ++token) tokens.push_back(token);
  for (const int32_t token : {3, 511, 512, 10, 9, 8, 8, 599, 0}) tokens.push_back(token);
  for (int32_t token = 17; token < 34; ++token) tokens.push_back(token);
  std::vector<float> k(kPageTokens * kDim), v(kPageTokens * kDim), scratch(2 * kPageTokens * kDim);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 3; ++head) {
      sequence.Gather(layer, head, tokens, k.data(), v.data());
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto page = sequence.Read(layer, head, tokens[i] / kPageTokens, scratch.data());
        for (int64_t m = 0; m < kDim; ++m) {
          const int64_t at = tokens[i] % kPageTokens;
          ASSERT_EQ(k[static_cast<int64_t>(i) * kDim + m], page.k[at * kDim + m]) << i;
          ASSERT_EQ(v[m * kPageTokens + static_cast<int64_t>(i)], page.v[m * kPageTokens + at]) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, KvSequenceTest, testing::Values(KvType::kF32, KvType::kBF16, KvType::kQ8));

// Of a text that is many times what memory holds.
class KvSequenceOnDisk : public testing::Test {
 protected:
  static constexpr int64_t kPages = 60;  // of each of the 6 layers and heads; there is room for 64 in all

  void SetUp() override {
    const auto stride = static_cast<uint64_t>(pool_->geometry().PageStride());
    const auto file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0);
    const Status status = pool_->UseDisk(
        {.ram_bytes = static_cast<uint64_t>(KvPool::kLeastPages) * stride, .file = file, .io = "threads"});
    ASSERT_TRUE(status) << status.error().message;
  }
  // What is not on disk yet stays longer.
  void Flush(const KvSequence& sequence) {
    for (int64_t page = 0; page < kPages; ++page) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        for (int64_t head = 0; head < 3; ++head) {
          KvPage* const one = sequence.PageAt(layer, head, page);
          ASSERT_TRUE(pool_->Flush(std::span(&one, 1)));
        }
      }
    }
  }
  static void Use(const KvSequence& sequence, int64_t begin, int64_t end) {
    for (int64_t page = begin; page < end; ++page) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        for (int64_t head = 0; head < 3; ++head) sequence.Stored(layer, head, page);
      }
    }
  }
  // Of the page's 6, after the middle of the text was gone through.
  int64_t Misses(const KvSequence& sequence, int64_t page) const {
    Use(sequence, 10, kPages - 10);
    const uint64_t before = pool_->traffic().misses;
    Use(sequence, page, page + 1);
    return static_cast<int64_t>(pool_->traffic().misses - before);
  }

  std::shared_ptr<KvPool> pool_ =
      KvPool::Create({.n_layers = 2, .n_kv_heads = 3, .head_dim = kDim, .type = KvType::kF32});
};

TEST_F(KvSequenceOnDisk, TheFirstAndTheNewestPagesStayInMemory) {
  KvSequence sequence(pool_);
  Append(sequence, kPages * kPageTokens - 10);
  Flush(sequence);
  Use(sequence, 0, kPages);
  EXPECT_EQ(Misses(sequence, 0), 0);
  EXPECT_EQ(Misses(sequence, 1), 6);
  EXPECT_EQ(Misses(sequence, kPages - 3), 6);
  EXPECT_EQ(Misses(sequence, kPages - 2), 0);
  EXPECT_EQ(Misses(sequence, kPages - 1), 0);
  // As the text grows others are the newest.
  Append(sequence, 20);
  EXPECT_EQ(Misses(sequence, kPages - 2), 6);
  EXPECT_EQ(Misses(sequence, kPages - 1), 0);
  EXPECT_EQ(Misses(sequence, kPages), 0);
  EXPECT_EQ(Misses(sequence, 0), 0);
  // And as it is cut.
  sequence.Truncate((kPages - 3) * kPageTokens + 5);
  Use(sequence, kPages - 4, kPages - 2);
  EXPECT_EQ(Misses(sequence, kPages - 4), 0);
  EXPECT_EQ(Misses(sequence, kPages - 3), 0);
  // A fork's own copy of the open page too; and however forks grow, are cut and go, those of the others stay.
  {
    KvSequence fork = sequence.Fork();
    Append(fork, 1, 5);
    EXPECT_EQ(Misses(fork, kPages - 3), 0);
    fork.Truncate(20 * kPageTokens);
    Use(sequence, 18, 20);
    EXPECT_EQ(Misses(sequence, 19), 0);
    fork = sequence.Fork();
    EXPECT_EQ(Misses(sequence, 19), 6);
    Append(fork, 3 * kPageTokens, 5);
  }
  Use(sequence, kPages - 4, kPages - 2);
  EXPECT_EQ(Misses(sequence, kPages - 4), 0);
  EXPECT_EQ(Misses(sequence, kPages - 3), 0);
  EXPECT_EQ(Misses(sequence, 0), 0);
  sequence.Truncate(0);
  EXPECT_EQ(pool_->n_pages(), 0);
}

TEST_F(KvSequenceOnDisk, WhatTheLastTokenReadIsSentForAgain) {
  KvSequence sequence(pool_);
  Append(sequence, kPages * kPageTokens - 10);
  Flush(sequence);
  const std::vector<int64_t> read = {20, 21}, nearly = {30};
  const std::vector<int64_t> otherwise = {0};
  for (int token = 0; token < 6; ++token) {
    for (int64_t table = 0; table < 6; ++table) {
      sequence.WillRead(table / 3, table % 3, table < 3 ? otherwise : read, KvSequence::For::kToken);
    }
  }
  for (int64_t head = 0; head < 3; ++head) sequence.Remember(1, head, read, nearly);
  const auto come = [&](int64_t page) {
    for (int64_t head = 0; head < 3; ++head) {
      for (int i = 0; i < 10'000 && !sequence.IsNear(1, head, page); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (!sequence.IsNear(1, head, page)) return false;
    }
    return true;
  };
  for (int i = 0; i < 4; ++i) Use(sequence, 35, 50);
  ASSERT_FALSE(sequence.IsNear(1, 0, 20));
  const KvTraffic before = pool_->traffic();
  sequence.Expect(1);
  EXPECT_TRUE(come(20));
  EXPECT_TRUE(come(21));
  EXPECT_FALSE(sequence.IsNear(0, 0, 20));  // another layer's
  EXPECT_FALSE(sequence.IsNear(1, 0, 30));  // others would have had to go
  for (int64_t head = 0; head < 3; ++head) sequence.Stored(1, head, 20);
  const KvTraffic since = pool_->traffic() - before;
  EXPECT_EQ(since.misses, 0u);
  EXPECT_EQ(since.read_ahead, 6u);
  EXPECT_EQ(since.foreseen, 6u);
  EXPECT_EQ(since.foreseen_used, 3u);
  // There is room, and what was only nearly read comes too; what was cut does not.
  sequence.Truncate(31 * kPageTokens);
  sequence.Expect(1);
  EXPECT_TRUE(come(30));
  sequence.Truncate(20 * kPageTokens);
  sequence.Expect(1);
  EXPECT_EQ((pool_->traffic() - before).foreseen, 9u);
}

TEST(KvGeometry, TheLongestTextOfTheLargestModelCanBeCounted) {
  const KvGeometry geometry{.n_layers = 256, .n_kv_heads = 256, .head_dim = 256, .type = KvType::kF32};
  EXPECT_EQ(geometry.BytesFor(int64_t{1} << 34), uint64_t{1} << 61);
}

TEST(KvGeometry, CountsWholePages) {
  const KvGeometry geometry{.n_layers = 30, .n_kv_heads = 3, .head_dim = 64, .type = KvType::kBF16};
  EXPECT_EQ(geometry.BytesFor(1), 90u * 65536);
  EXPECT_EQ(geometry.BytesFor(257), 180u * 65536);
  EXPECT_EQ((KvGeometry{.n_layers = 30, .n_kv_heads = 3, .head_dim = 64, .type = KvType::kQ8}.PageBytes()),
            2 * 256 * (64 + 4));
}

}  // namespace
}  // namespace longheads
