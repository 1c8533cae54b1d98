#include "kv/frame_store.h"

#include <gtest/gtest.h>

#include <array>
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

}  // namespace
}  // namespace longheads
