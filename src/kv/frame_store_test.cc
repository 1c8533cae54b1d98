#include "kv/frame_store.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

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

TEST(FrameStore, NamesThoseWhoHoldFramesFurtherBehind) {
  FrameStore store(4096);
  std::array<KvPage, 3> holders;
  std::vector<PageFrame> frames;
  for (std::size_t i = 0; i < 3 * kToSlab; ++i) {
    frames.push_back(store.New());
    if (i % kToSlab == 5) store.SetHolder(frames[i], &holders[i / kToSlab]);
  }
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

TEST(FrameStore, WhatWasDiscardedComesBeforeWhatWasNeverUsed) {
  FrameStore store(4096);
  std::vector<PageFrame> frames;
  for (std::size_t i = 0; i < kToSlab + 3; ++i) frames.push_back(store.New());
  std::byte* const data = frames[7].data();
  const uint64_t bytes = store.bytes();
  store.Discard(std::move(frames[7]));
  EXPECT_EQ(store.bytes(), bytes - 4096);
  EXPECT_EQ(store.New().data(), data);
}

// In huge pages of the system the first that is used takes memory for its neighbours.
TEST(FrameStore, ASlabThatHasNoneLeftIsUsedAgainFromItsBeginning) {
  FrameStore store(4096);
  std::vector<PageFrame> frames;
  std::vector<std::byte*> places;
  for (std::size_t i = 0; i < 2 * kToSlab; ++i) {
    frames.push_back(store.New());
    places.push_back(frames.back().data());
  }
  for (std::size_t i = 0; i < kToSlab; ++i) {
    if (i % 32 == 0) store.Discard(std::move(frames[i]));
    store.Discard(std::move(frames[kToSlab + i * 37 % kToSlab]));
  }
  EXPECT_EQ(store.bytes(), (kToSlab - 4) * 4096);
  for (const std::size_t i : {96, 64, 32, 0}) EXPECT_EQ(store.New().data(), places[i]);
  for (std::size_t i = kToSlab; i < 2 * kToSlab; ++i) EXPECT_EQ(store.New().data(), places[i]);
}

}  // namespace
}  // namespace longheads
