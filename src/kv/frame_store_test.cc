#include "kv/frame_store.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "base/memory.h"
#include "kv/page.h"

namespace longheads {
namespace {

// As many to a slab.
constexpr std::size_t kToSlab = 128;

std::vector<KvPage*> HoldersBehind(const FrameStore& store, const PageFrame& frame) {
  std::vector<KvPage*> holders;
  store.ForHoldersBehind(frame, [&](KvPage& holder) {
    holders.push_back(&holder);
    return false;
  });
  return holders;
}

std::vector<PageFrame> NewFrames(FrameStore& store, std::size_t n) {
  std::vector<PageFrame> frames;
  for (std::size_t i = 0; i < n; ++i) frames.push_back(store.New());
  return frames;
}

TEST(FrameStore, NamesThoseWhoHoldFramesFurtherBehind) {
  FrameStore store({.data_bytes = 4096});  // of a slab less than a huge page
  std::array<KvPage, 3> holders;
  std::vector<PageFrame> frames = NewFrames(store, 3 * kToSlab);
  for (std::size_t i = 0; i < holders.size(); ++i) store.SetHolder(frames[i * kToSlab + 5], &holders[i]);
  EXPECT_EQ(HoldersBehind(store, frames[0]), (std::vector<KvPage*>{&holders[2], &holders[1]}));
  EXPECT_EQ(HoldersBehind(store, frames[kToSlab]), (std::vector<KvPage*>{&holders[2]}));
  EXPECT_TRUE(HoldersBehind(store, frames[2 * kToSlab]).empty());

  std::vector<KvPage*> asked;  // until one has moved
  store.ForHoldersBehind(frames[0], [&](KvPage& holder) {
    asked.push_back(&holder);
    return true;
  });
  EXPECT_EQ(asked, (std::vector<KvPage*>{&holders[2]}));

  store.GiveBack(std::move(frames[2 * kToSlab + 5]));
  EXPECT_EQ(HoldersBehind(store, frames[0]), (std::vector<KvPage*>{&holders[1]}));
  store.Discard(std::move(frames[kToSlab + 5]));
  EXPECT_TRUE(HoldersBehind(store, frames[0]).empty());
}

TEST(FrameStore, NamesThoseInLaterHugePagesOfTheSameSlab) {
  FrameStore store({.data_bytes = int64_t{48} << 10});  // in 128 slices: 42 2/3 to a huge page
  std::vector<PageFrame> frames = NewFrames(store, 90);
  std::array<KvPage, 90> holders;
  for (std::size_t i = 0; i < frames.size(); ++i) store.SetHolder(frames[i], &holders[i]);
  const std::vector<KvPage*> behind_first = HoldersBehind(store, frames[41]);
  ASSERT_EQ(behind_first.size(), 90U - 43U);  // without the one that reaches into both
  EXPECT_EQ(behind_first.front(), &holders[89]);
  EXPECT_EQ(behind_first.back(), &holders[43]);
  EXPECT_EQ(HoldersBehind(store, frames[42]).size(), 90U - 86U);
  EXPECT_TRUE(HoldersBehind(store, frames[86]).empty());
}

TEST(FrameStore, WhatWasDiscardedComesBeforeWhatWasNeverUsed) {
  FrameStore store({.data_bytes = 4096});
  std::vector<PageFrame> frames = NewFrames(store, kToSlab + 3);
  std::byte* const data = frames[7].data();
  const uint64_t bytes = store.bytes();
  store.Discard(std::move(frames[7]));
  EXPECT_EQ(store.bytes(), bytes - 4096);
  EXPECT_EQ(store.New().data(), data);
}

// In huge pages of the system the first that is used takes memory for its neighbours.
TEST(FrameStore, FramesAreUsedFromTheBeginningOn) {
  FrameStore store({.data_bytes = 4096});
  std::vector<PageFrame> frames = NewFrames(store, 2 * kToSlab);
  std::vector<std::byte*> places;
  for (const PageFrame& frame : frames) places.push_back(frame.data());
  for (std::size_t i = 0; i < kToSlab; ++i) {
    store.Discard(std::move(frames[kToSlab + i * 37 % kToSlab]));
    if (i % 32 == 0) store.Discard(std::move(frames[i]));
  }
  EXPECT_EQ(store.bytes(), (kToSlab - 4) * 4096);
  for (const std::size_t i : {0, 32, 64, 96}) EXPECT_EQ(store.New().data(), places[i]);
  for (std::size_t i = kToSlab; i < 2 * kToSlab; ++i) EXPECT_EQ(store.New().data(), places[i]);
}

TEST(FrameStore, OfFreeFramesTheFirstIsTakenAndTheLastGoes) {
  FrameStore store({.data_bytes = 4096});
  std::array<KvPage, 4> holders;
  std::vector<PageFrame> frames = NewFrames(store, 4);
  std::vector<std::byte*> places;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    places.push_back(frames[i].data());
    store.SetHolder(frames[i], &holders[i]);
  }
  store.GiveBack(std::move(frames[3]));
  store.GiveBack(std::move(frames[1]));
  store.ExchangeForLast(frames[0]);
  EXPECT_EQ(frames[0].data(), places[3]);
  store.ExchangeForLast(frames[0]);  // there is none behind it
  EXPECT_EQ(frames[0].data(), places[3]);
  EXPECT_EQ(store.n_free(), 2);
  EXPECT_EQ(store.TakeFree().data(), places[0]);
  EXPECT_EQ(store.TakeFree().data(), places[1]);
}

// ---- In huge pages

constexpr std::byte kWritten{1};

// Frames that were written to, and which of them hold it still.
struct HugeStore {
  FrameStore store;
  std::vector<PageFrame> frames;
  std::vector<std::byte*> places;

  HugeStore(const FrameStore::Options& options, std::size_t n) : store(options), frames(NewFrames(store, n)) {
    for (const PageFrame& frame : frames) {
      places.push_back(frame.data());
      *frame.data() = kWritten;
      for (int64_t i = 0; i < store.side_bytes(); ++i) frame.side()[i] = kWritten;
    }
  }
  void Discard(std::size_t i) { store.Discard(std::move(frames[i])); }
  bool IsThere(std::size_t i) const { return *places[i] == kWritten; }
};

constexpr int64_t kFrame = int64_t{64} << 10;
constexpr std::size_t kToHuge = kHugePage / kFrame;

TEST(FrameStore, WhatIsDiscardedGoesWithAllOfItsHugePage) {
  HugeStore huge({.data_bytes = kFrame, .most_idle_bytes = kToHuge * kFrame}, kToSlab);
  for (std::size_t i = kToHuge; i < 2 * kToHuge - 1; ++i) huge.Discard(i);
  EXPECT_EQ(huge.store.n_idle(), kToHuge - 1);
  EXPECT_EQ(huge.store.bytes(), (kToSlab - kToHuge + 1) * kFrame);
  EXPECT_TRUE(huge.IsThere(kToHuge));
  huge.Discard(2 * kToHuge - 1);
  EXPECT_EQ(huge.store.n_idle(), 0);
  for (std::size_t i = 0; i < kToSlab; ++i) EXPECT_EQ(huge.IsThere(i), i / kToHuge != 1) << i;
}

TEST(FrameStore, IdleFramesComeFirst) {
  HugeStore huge({.data_bytes = kFrame, .most_idle_bytes = kToHuge * kFrame}, 2 * kToSlab);
  for (std::size_t i = 0; i < kToHuge; ++i) huge.Discard(i);
  huge.Discard(kToSlab + 5);
  EXPECT_EQ(huge.store.n_idle(), 1);
  EXPECT_EQ(huge.store.New().data(), huge.places[kToSlab + 5]);
  EXPECT_EQ(huge.store.n_idle(), 0);
  EXPECT_EQ(huge.store.New().data(), huge.places[0]);
}

TEST(FrameStore, AFrameBetweenTwoHugePagesWaitsForBoth) {
  HugeStore huge({.data_bytes = int64_t{48} << 10, .most_idle_bytes = int64_t{4} << 20}, kToSlab);
  for (std::size_t i = 0; i < 42; ++i) huge.Discard(i);
  EXPECT_EQ(huge.store.n_idle(), 42);
  EXPECT_TRUE(huge.IsThere(0));
  huge.Discard(42);
  EXPECT_EQ(huge.store.n_idle(), 1);
  EXPECT_FALSE(huge.IsThere(0));
  for (std::size_t i = 43; i < 85; ++i) huge.Discard(i);
  EXPECT_TRUE(huge.IsThere(43));
  huge.Discard(85);
  EXPECT_EQ(huge.store.n_idle(), 1);
  EXPECT_FALSE(huge.IsThere(43));
  EXPECT_TRUE(huge.IsThere(86));
}

TEST(FrameStore, NoMoreIsIdleThanMay) {
  HugeStore huge({.data_bytes = kFrame, .most_idle_bytes = 2 * kFrame}, 2 * kToSlab);
  huge.Discard(0);
  huge.Discard(kToHuge);
  huge.Discard(2 * kToHuge);
  EXPECT_EQ(huge.store.n_idle(), 0);  // in small pages nothing needs to wait
  for (std::size_t i = 0; i < kToSlab; ++i) {
    EXPECT_EQ(huge.IsThere(i), i % kToHuge != 0 || i == 3 * kToHuge) << i;
  }
  huge.Discard(3);
  EXPECT_EQ(huge.store.n_idle(), 0);
  EXPECT_FALSE(huge.IsThere(3));
  // In another slab it may.
  huge.Discard(kToSlab);
  EXPECT_EQ(huge.store.n_idle(), 1);
  EXPECT_TRUE(huge.IsThere(kToSlab));
}

// Behind frames that end in the middle of a huge page lie their sides.
TEST(FrameStore, SidesStayWhereAHugePageGoes) {
  HugeStore huge({.data_bytes = int64_t{96} << 10, .side_bytes = 64, .most_idle_bytes = int64_t{4} << 20},
                 86);
  std::vector<std::byte*> sides;
  for (const PageFrame& frame : huge.frames) sides.push_back(frame.side());
  for (std::size_t i = 60; i < 86; ++i) huge.Discard(i);
  EXPECT_FALSE(huge.IsThere(85));
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_TRUE(huge.IsThere(i)) << i;
    for (std::size_t k = 0; k < 64; ++k) ASSERT_EQ(sides[i][k], kWritten) << i;
  }
}

}  // namespace
}  // namespace longheads
