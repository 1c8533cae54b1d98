#include "base/soon_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

namespace longheads {
namespace {

using Bytes = std::span<const std::byte>;

std::vector<Bytes> TakeAll(SoonRead& soon) {
  std::vector<Bytes> taken;
  for (Bytes some = soon.Take(); !some.empty(); some = soon.Take()) taken.push_back(some);
  return taken;
}

TEST(SoonRead, HasNothingBeforeAnythingIsNamed) {
  SoonRead soon;
  EXPECT_TRUE(soon.Take().empty());
  soon.FetchSome();
}

TEST(SoonRead, GivesEveryByteOnceInOrder) {
  const std::vector<std::byte> memory(5 * SoonRead::kSome);
  const Bytes all(memory);
  const Bytes pieces[] = {all.first(SoonRead::kSome + 1), all.subspan(20000, 0),
                          all.subspan(10000, 2 * SoonRead::kSome), all.first(3)};
  SoonRead soon;
  soon.Name(pieces);
  const std::vector<Bytes> taken = TakeAll(soon);
  std::size_t n = 0;
  for (const Bytes& piece : pieces) {
    for (std::size_t at = 0; at < piece.size(); at += SoonRead::kSome, ++n) {
      ASSERT_LT(n, taken.size());
      EXPECT_EQ(taken[n].data(), piece.data() + at);
      EXPECT_EQ(taken[n].size(), std::min(SoonRead::kSome, piece.size() - at));
    }
  }
  EXPECT_EQ(taken.size(), n);
}

TEST(SoonRead, ForgetsWhatWasNamedBefore) {
  const std::vector<std::byte> memory(3 * SoonRead::kSome);
  const Bytes pieces[] = {Bytes(memory).first(2 * SoonRead::kSome), Bytes(memory)};
  SoonRead soon;
  soon.Name(pieces);
  EXPECT_FALSE(soon.Take().empty());
  soon.Name(std::span(pieces).last(1));
  EXPECT_EQ(TakeAll(soon).size(), 3U);
  soon.Name(std::span(pieces).first(1));
  EXPECT_EQ(TakeAll(soon).size(), 2U);
  soon.Name({});
  EXPECT_TRUE(soon.Take().empty());
}

TEST(SoonRead, ThreadsShareWhatIsNamed) {
  const std::vector<std::byte> memory(1000 * SoonRead::kSome);
  const Bytes pieces[] = {memory};
  SoonRead soon;
  soon.Name(pieces);
  std::mutex mutex;
  std::vector<Bytes> taken;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const std::vector<Bytes> mine = TakeAll(soon);
      const std::lock_guard lock(mutex);
      taken.insert(taken.end(), mine.begin(), mine.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(taken, {}, [](const Bytes& some) { return some.data(); });
  ASSERT_EQ(taken.size(), 1000U);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(taken[i].data(), memory.data() + i * SoonRead::kSome);
  }
}

}  // namespace
}  // namespace longheads
