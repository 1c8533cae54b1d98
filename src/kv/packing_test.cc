// Pages that lie packed in memory while tokens are generated, and on disk.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "kv/pool.h"
#include "kv/reservation.h"
#include "tests/support/allocations.h"
#include "tests/support/sanitized.h"
#include "tests/support/small_pages.h"

namespace longheads {
namespace {

using Asked = KvPool::Asked;

constexpr KvGeometry kGeometry{.n_layers = 2, .n_kv_heads = 2, .head_dim = 64, .type = KvType::kBF16};
constexpr int64_t kNumbers = 2 * kPageTokens * kGeometry.head_dim;
constexpr int kFrames = 2 * KvPool::kLeastPages;
const auto kStride = static_cast<uint64_t>(kGeometry.PageStride());

using Numbers = std::vector<uint16_t>;

// What page i holds: numbers of one size, which can be packed, or any bits, which cannot.
Numbers Contents(int i, bool packs = true) {
  static const Numbers normal = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> numbers;
    Numbers bits(kNumbers);
    for (uint16_t& number : bits)
      number = static_cast<uint16_t>(std::bit_cast<uint32_t>(numbers(random)) >> 16);
    return bits;
  }();
  Numbers bits(kNumbers);
  if (packs) {
    std::ranges::rotate_copy(normal, normal.begin() + i, bits.begin());  // other pages, other numbers
  } else {
    std::mt19937 random(static_cast<unsigned>(i));
    for (uint16_t& number : bits) number = static_cast<uint16_t>(random());
  }
  return bits;
}

std::vector<Numbers> ContentsOf(int n_pages, bool packs = true) {
  std::vector<Numbers> contents;
  for (int i = 0; i < n_pages; ++i) contents.push_back(Contents(i, packs));
  return contents;
}

struct Store {
  std::shared_ptr<KvPool> pool = KvPool::Create(kGeometry);
  std::vector<std::shared_ptr<KvPage>> pages;
  std::vector<Numbers> contents;

  // Some of which are on disk, all as they are there.
  explicit Store(int n_pages, const std::string& io = "threads", bool packs = true, int n_frames = kFrames)
      : Store(ContentsOf(n_pages, packs), io, n_frames) {
    for (int i = 0; i < n_pages; ++i) Write(i);
    Flush();
  }
  // Of pages that are not written yet.
  Store(std::vector<Numbers> of_pages, const std::string& io, int n_frames = kFrames)
      : contents(std::move(of_pages)) {
    const Status status =
        pool->UseDisk({.ram_bytes = static_cast<uint64_t>(n_frames) * kStride,
                       .file = *TemporaryPageFile::Create(testing::TempDir(), kStride, /*most_bytes=*/0),
                       .io = io});
    EXPECT_TRUE(status) << status.error().message;
    while (pages.size() < contents.size()) pages.push_back(pool->Acquire());
  }

  KvPage& page(int i) const { return *pages[static_cast<std::size_t>(i)]; }
  void Write(int i, bool fills = true) const {
    std::memcpy(pool->Write(page(i), fills).data(), contents[static_cast<std::size_t>(i)].data(), kStride);
  }
  void Flush() const {
    std::vector<KvPage*> all;
    for (const auto& one : pages) all.push_back(one.get());
    const Status flushed = pool->Flush(all);
    EXPECT_TRUE(flushed) << flushed.error().message;
  }
  bool IsAsWritten(int i, const PinnedPage& pinned) const {
    return std::memcmp(pinned.data(), contents[static_cast<std::size_t>(i)].data(), kStride) == 0;
  }
  // As a generated token reads pages: planned first, and where they lie.
  bool Generate(const std::vector<int>& named) const {
    std::vector<KvPage*> plan;
    for (const int i : named) plan.push_back(&page(i));
    pool->ReadAhead(plan, Asked::kAgain);
    alignas(64) std::byte scratch[2 * kNumbers];
    return std::ranges::all_of(named, [&](int i) { return IsAsWritten(i, pool->Read(page(i), scratch)); });
  }
};

// By every way to the disk that this system has.
class PackingTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto io = MakePageIo(GetParam(), [](const PageTransfer&, const Status&) {});
    if (!io) GTEST_SKIP() << io.error().message;
  }
};

INSTANTIATE_TEST_SUITE_P(Every, PackingTest, testing::Values("threads", "io_uring"));

// A plan of some pages, each among them with the same chance.
std::vector<int> Plan(std::mt19937& random, int n_pages) {
  std::vector<int> plan(12);
  for (int& i : plan) i = static_cast<int>(random() % static_cast<unsigned>(n_pages));
  std::sort(plan.begin(), plan.end());
  plan.erase(std::unique(plan.begin(), plan.end()), plan.end());
  return plan;
}

TEST_P(PackingTest, MorePagesHaveRoomWhileTokensAreGenerated) {
  constexpr int kPages = kFrames * 5 / 4;  // more than there is room for, and less than packed
  const Store store(kPages, GetParam());
  EXPECT_EQ(store.pool->n_packed(), 0);
  std::mt19937 random(1);
  for (int token = 0; token < 200; ++token) {
    ASSERT_TRUE(store.Generate(Plan(random, kPages)));
    EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
  }
  EXPECT_GT(store.pool->n_near(), kFrames);
  EXPECT_GT(store.pool->n_packed(), kFrames / 2);
  // By now all are there, but for frames that readings land in.
  const KvTraffic before = store.pool->traffic();
  for (int token = 0; token < 100; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  EXPECT_GT((store.pool->traffic() - before).in_memory_when_planned(), 0.97);
}

TEST_P(PackingTest, PagesAreTakenAsSoonAsTheyAreThere) {
  constexpr int kPages = 4 * kFrames;
  Store store(kPages, GetParam());
  std::mt19937 random(1);
  for (int token = 0; token < 300; ++token) {
    const std::vector<int> plan = Plan(random, kPages);
    ASSERT_TRUE(store.Generate(plan));
    // Some are gone before the system tells that they were read.
    for (const int i : plan) {
      if (i % 4 != 0) continue;
      store.pages[static_cast<std::size_t>(i)] = store.pool->Acquire();
      store.Write(i);
    }
    EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
  }
  const KvTraffic traffic = store.pool->traffic();
  EXPECT_EQ(traffic.landed > 0, GetParam() == std::string("io_uring"));
  EXPECT_LE(traffic.landed, traffic.read_ahead);
}

// Reads one page again and again, until `there` is true.
template <typename There>
bool ReadsUntil(KvPool& pool, KvPage& page, const There& there) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!there() && std::chrono::steady_clock::now() < until) pool.Read(page);
  return there();
}

TEST_P(PackingTest, WhatTokensFillGoesToDiskAndLiesPackedAndTheRestStays) {
  constexpr int kPages = 2 * kFrames, kOpen = 12, kFilled = 40;
  Store store(kPages, GetParam());
  std::mt19937 random(1);
  for (int token = 0; token < 20; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  const auto written = [&] { return store.pool->traffic().bytes_written; };
  const uint64_t first = written();
  std::vector<int> newest;
  for (int i = 0; i < kOpen + kFilled; ++i) {
    store.contents[static_cast<std::size_t>(i)] = Contents(kPages + i);
    store.Write(i, /*fills=*/i >= kOpen);
    newest.push_back(i);
  }
  const auto generate = [&] {
    ASSERT_TRUE(store.Generate(newest));
    ASSERT_TRUE(store.Generate(Plan(random, kPages)));
    for (int i = 0; i < kOpen; ++i) store.Write(i, /*fills=*/false);
  };
  EXPECT_TRUE(ReadsUntil(*store.pool, store.page(kPages - 1),
                         [&] { return written() - first >= (kFilled - kFrames / 16) * kStride; }));
  for (int token = 0; token < 50; ++token) generate();
  EXPECT_LE(written() - first, kFilled * kStride);
  int n_packed = 0;
  for (const int i : newest) n_packed += store.pool->ReadAsItLies(store.page(i)).data() == nullptr ? 1 : 0;
  EXPECT_GT(n_packed, kFilled / 2);
  EXPECT_LE(n_packed, kFilled);

  store.Flush();
  const uint64_t flushed = written();
  for (int token = 0; token < 50; ++token) generate();
  EXPECT_EQ(written(), flushed);
  // Where nothing else can leave, they do, and come back as they are.
  std::vector<PinnedPage> others;
  for (int i = kOpen + kFilled; static_cast<int>(others.size()) < kFrames - kOpen; ++i) {
    others.push_back(store.pool->Read(store.page(i)));
  }
  EXPECT_GT(written(), flushed);
  EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
  others.clear();
  for (int i = 0; i < kPages; ++i) EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i))));
}

TEST_P(PackingTest, OpenPagesAreWrittenOnceMoreThanAQuarterAreNotOnDisk) {
  constexpr int kOpen = kFrames / 4;
  const Store store(kFrames, GetParam());
  const auto written = [&] { return store.pool->traffic().bytes_written; };
  const uint64_t before = written();
  for (int i = 0; i < kOpen; ++i) store.Write(i, /*fills=*/false);
  for (int i = 0; i < 100; ++i) store.pool->Read(store.page(kFrames - 1));
  EXPECT_EQ(written(), before);
  store.Write(kOpen, /*fills=*/false);
  EXPECT_TRUE(ReadsUntil(*store.pool, store.page(kFrames - 1), [&] { return written() > before; }));
}

TEST_P(PackingTest, MoreIsWrittenOnceTokensAreGenerated) {
  constexpr KvGeometry kSmall{.n_layers = 1, .n_kv_heads = 1, .head_dim = 16, .type = KvType::kBF16};
  constexpr int kRoom = 1024, kUnwritten = 48;  // less than a sixteenth, more than go together
  const auto stride = static_cast<uint64_t>(kSmall.PageStride());
  const auto pool = KvPool::Create(kSmall);
  ASSERT_TRUE(pool->UseDisk({.ram_bytes = kRoom * stride,
                             .file = *TemporaryPageFile::Create(testing::TempDir(), stride, /*most_bytes=*/0),
                             .io = GetParam()}));
  const auto written = [&] { return static_cast<int>(pool->traffic().bytes_written / stride); };
  std::vector<std::shared_ptr<KvPage>> pages;
  std::vector<KvPage*> flushed;
  for (int i = 0; i < kRoom; ++i) {
    pages.push_back(pool->Acquire());
    std::memset(pool->Write(*pages.back(), /*fills=*/true).data(), 0, stride);
    if (i >= kUnwritten) flushed.push_back(pages.back().get());
    if (i % 8 == 7) {
      ASSERT_TRUE(pool->Flush(flushed));
    }
  }
  const int before = written();
  for (int i = 0; i < 100; ++i) pool->Read(*pages.back());
  EXPECT_EQ(written(), before);
  pool->ReadAhead(std::span(flushed).last(1), Asked::kAgain);
  EXPECT_TRUE(ReadsUntil(*pool, *pages.back(), [&] { return written() - before >= kUnwritten - 32; }));
}

TEST_P(PackingTest, WhatCannotBePackedStaysAsItIs) {
  constexpr int kPages = 2 * kFrames;
  const Store store(kPages, GetParam(), /*packs=*/false);
  std::mt19937 random(1);
  for (int token = 0; token < 200; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  EXPECT_EQ(store.pool->n_packed(), 0);
  EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
}

// Goes through pages as a prompt does, and gives what one that came took from disk.
uint64_t BytesOfAPage(const Store& store) {
  const KvTraffic before = store.pool->traffic();
  for (int i = 0; i < static_cast<int>(store.pages.size()); ++i) {
    EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i))));
  }
  const KvTraffic since = store.pool->traffic() - before;
  EXPECT_GT(since.misses, store.pages.size() / 2);
  EXPECT_EQ(since.bytes_read % since.misses, 0u);
  return since.bytes_read / since.misses;
}

TEST_P(PackingTest, FewerBytesComeFromDisk) {
  constexpr int kPages = 3 * kFrames;
  const PackedBf16Places places(kGeometry.head_dim);
  Store store(kPages, GetParam());
  const uint64_t bytes = BytesOfAPage(store);
  EXPECT_LT(bytes, places.words_bytes + places.rest_bytes() + store.pool->file()->file().direct_unit());
  EXPECT_LT(bytes, kStride * 5 / 6);
  EXPECT_EQ(store.pool->n_packed(), 0);  // in memory they are as they were
  std::mt19937 random(1);
  for (int token = 0; token < 50; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  // What cannot be packed takes the place of what could, and the other way round.
  for (const bool packs : {false, true}) {
    for (int i = 0; i < kPages; ++i) {
      store.contents[static_cast<std::size_t>(i)] = Contents(kPages + i, packs);
      store.Write(i);
    }
    store.Flush();
    EXPECT_EQ(BytesOfAPage(store), packs ? bytes : kStride);
  }
}

TEST_P(PackingTest, TellsOfAPackedPageThatIsDamagedOnDisk) {
  const Store store(3 * kFrames, GetParam());
  BytesOfAPage(store);  // the first ones leave
  const KvPool::Place place = store.pool->PlaceOf(store.page(0));
  std::vector<std::byte> block(kDirectAlignment);
  ASSERT_TRUE(place.file->file().PRead(place.offset + kDirectAlignment, block));
  block[0] ^= std::byte{1};
  ASSERT_TRUE(place.file->file().PWrite(place.offset + kDirectAlignment, block));
  EXPECT_THROW(store.pool->Read(store.page(0)), PageError);
  KvPage* const named[] = {&store.page(0)};
  store.pool->ReadAhead(named, Asked::kAgain);
  alignas(64) std::byte scratch[2 * kNumbers];
  EXPECT_THROW(store.pool->Read(store.page(0), scratch), PageError);
  block[0] ^= std::byte{1};
  ASSERT_TRUE(place.file->file().PWrite(place.offset + kDirectAlignment, block));
  EXPECT_TRUE(store.IsAsWritten(0, store.pool->Read(store.page(0))));
}

// As a context file does.
class PlainFile final : public PageFile {
 public:
  const RawFile& file() const override { return pages_->file(); }
  Result<uint64_t> Allot() override { return pages_->Allot(); }
  void Free(uint64_t offset) override { pages_->Free(offset); }
  bool MayOverwrite(uint64_t) const override { return true; }

 private:
  std::shared_ptr<PageFile> pages_ =
      *TemporaryPageFile::Create(testing::TempDir(), kStride, /*most_bytes=*/0);
};

TEST_P(PackingTest, AFileMayWantPagesAsTheyAre) {
  constexpr int kPages = 3 * kFrames;
  Store store(kPages, GetParam());
  const auto file = std::make_shared<PlainFile>();
  store.pool->WriteTo(file);
  for (int i = 0; i < kPages; ++i) store.Write(i);
  store.Flush();
  EXPECT_EQ(BytesOfAPage(store), kStride);
  std::vector<uint16_t> there(kNumbers);
  const KvPool::Place place = store.pool->PlaceOf(store.page(7));
  ASSERT_TRUE(file->file().PRead(place.offset, std::as_writable_bytes(std::span(there))));
  EXPECT_EQ(there, store.contents[7]);
}

TEST_P(PackingTest, PromptsReadAndWriteWhatIsPacked) {
  constexpr int kPages = 2 * kFrames;
  Store store(kPages, GetParam());
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    for (int token = 0; token < 20; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
    EXPECT_GT(store.pool->n_packed(), 0);
    const std::vector<int> plan = Plan(random, kPages);
    std::vector<KvPage*> named;
    for (const int i : plan) named.push_back(&store.page(i));
    store.pool->ReadAhead(named, Asked::kForCertain);
    std::vector<PinnedPage> together;
    for (const int i : plan) {
      together.push_back(store.pool->Read(store.page(i)));
      EXPECT_TRUE(store.IsAsWritten(i, together.back()));
    }
    together.clear();
    for (const int i : plan) {
      store.contents[static_cast<std::size_t>(i)] = Contents(1000 * round + i);
      store.Write(i);
    }
    EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
  }
  store.Flush();
  for (int i = 0; i < kPages; ++i) EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i))));
}

TEST_P(PackingTest, GivesWayToReservations) {
  constexpr int kPages = 2 * kFrames;
  const Store store(kPages, GetParam());
  std::mt19937 random(1);
  const auto generate = [&] {
    for (int token = 0; token < 50; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  };
  generate();
  KvReservation reserved(store.pool);
  reserved.Set(kFrames / 2 * kStride);
  EXPECT_LE(store.pool->MemoryBytes(), kFrames / 2 * kStride);
  generate();
  EXPECT_LE(store.pool->MemoryBytes(), kFrames / 2 * kStride);
  reserved.Set(0);
  generate();
  EXPECT_GT(store.pool->MemoryBytes(), kFrames * 3 / 4 * kStride);
}

// What the system has back lies at the end: the rest stays in huge pages of it.
TEST_P(PackingTest, PackedPagesMoveTogetherWhereMemoryBecomesLess) {
  constexpr int kPages = kFrames * 5 / 4;
  constexpr int64_t kToSlab = 128;
  const Store store(kPages, GetParam());
  std::mt19937 random(1);
  for (int token = 0; token < 200; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  ASSERT_GT(store.pool->n_packed(), kToSlab);  // in two slabs
  const PinnedPage held = store.pool->ReadAsItLies(store.page(0));
  ASSERT_EQ(held.data(), nullptr);
  const std::byte* const words = held.packed().words;

  KvReservation reserved(store.pool);
  for (uint64_t pages = 1; pages <= kFrames / 3; ++pages) reserved.Set(pages * kStride);
  EXPECT_EQ(held.packed().words, words);  // who is read stays where it is
  EXPECT_LT(store.pool->n_packed(), kToSlab);
  std::vector<const std::byte*> places;
  for (int i = 1; i < kPages; ++i) {
    if (!store.pool->IsNear(store.page(i))) continue;
    const PinnedPage pinned = store.pool->ReadAsItLies(store.page(i));
    if (pinned.data() == nullptr) places.push_back(pinned.packed().words);
  }
  ASSERT_GT(places.size(), kToSlab / 2);
  const auto [first, last] = std::ranges::minmax(places);
  EXPECT_LT(last - first, kToSlab * PackedBf16Places(kGeometry.head_dim).words_bytes);
  alignas(64) std::byte scratch[2 * kNumbers];
  for (int i = 0; i < kPages; ++i) {
    EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i), scratch))) << i;
  }
}

// Where memory goes to and fro between pages as they are and packed ones, and becomes less and more, nearly
// all of it stays in huge pages of the system.
TEST_P(PackingTest, PagesStayInHugePagesWhileMemoryComesAndGoes) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "no huge pages here";
  constexpr int kManyFrames = 1100, kPages = kManyFrames * 5 / 4;  // as many as may lie in huge ones
  const Store store(kPages, GetParam(), /*packs=*/true, kManyFrames);
  ASSERT_GT(store.pool->IdleBytes(), 0);
  const int64_t before = InSmallPages();
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    for (int token = 0; token < 200; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
    // As a prompt does that comes then.
    for (int i = 0; i < kManyFrames; ++i) {
      store.Write(static_cast<int>(random() % static_cast<unsigned>(kPages)));
      ASSERT_LE(store.pool->MemoryBytes(), kManyFrames * kStride);
    }
    store.Flush();  // what is being written cannot move
    KvReservation reserved(store.pool);
    for (uint64_t pages = 1; pages <= kManyFrames / 4; ++pages) reserved.Set(pages * kStride);
  }
  EXPECT_GT(store.pool->n_packed(), kManyFrames / 4);
  EXPECT_LT(InSmallPages() - before, 5 * int64_t{kHugePage});  // of one slab, where a page could not move
  for (int i = 0; i < kPages; ++i) EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i)))) << i;
}

TEST(Packing, TellsOfAPageThatIsDamagedOnDisk) {
  const auto file = *TemporaryPageFile::Create(testing::TempDir(), kStride, /*most_bytes=*/0);
  const auto pool = KvPool::Create(kGeometry);
  ASSERT_TRUE(pool->UseDisk({.ram_bytes = kFrames * kStride, .file = file, .io = "threads"}));
  std::vector<std::byte> zeros(kStride);
  const uint64_t offset = *file->Allot();
  ASSERT_TRUE(file->file().PWrite(offset, zeros));
  const auto page = pool->Adopt(file, offset, /*checksum=*/1);
  KvPage* const named[] = {page.get()};
  std::vector<std::byte> scratch(kStride);
  for (int again = 0; again < 2; ++again) {
    pool->ReadAhead(named, Asked::kAgain);
    EXPECT_THROW(pool->Read(*page, scratch.data()), PageError);
    EXPECT_EQ(pool->n_packed(), 0);
  }
}

TEST_P(PackingTest, NothingIsLostWhereMemoryFails) {
  constexpr int kPages = 2 * kFrames;
  const std::vector<Numbers> contents = ContentsOf(kPages);
  int64_t n_failed = 0;
  for (int64_t k = 1;; k += kSanitized ? 3 : 1) {
    Store store(contents, GetParam());
    for (int i = 0; i < kPages; ++i) store.Write(i);
    store.Flush();
    std::vector<KvPage*> plan;
    for (int i = 0; i < kPages; i += 4) plan.push_back(&store.page(i));
    alignas(64) std::byte scratch[2 * kNumbers];
    FailAllocation(k);
    try {
      store.pool->ReadAhead(plan, Asked::kAgain);
      for (int i = 0; i < kPages; i += 4) {
        EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i), scratch)));
      }
    } catch (const std::bad_alloc&) {
    } catch (const PageError&) {
    }
    const bool failed = AllocationFailed();
    FailAllocation(0);
    for (int i = 0; i < kPages; ++i) EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i))));
    EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
    store.pages.clear();
    EXPECT_EQ(store.pool->n_near(), 0) << k;  // no frame was lost
    if (!failed) break;
    ++n_failed;
  }
  EXPECT_GT(n_failed, 3);
}

TEST_P(PackingTest, WhatIsWrittenIsThereWhereMemoryFails) {
  constexpr int kPages = 2 * kFrames;
  const std::vector<Numbers> contents = ContentsOf(kPages);
  int64_t n_failed = 0;
  for (int64_t k = 1;; k += kSanitized ? k / 3 + 1 : k < 32 ? 1 : k / 8) {
    Store store(contents, GetParam());
    std::vector<KvPage*> all;
    for (const auto& page : store.pages) all.push_back(page.get());
    FailAllocation(k);
    bool written = false;
    try {
      for (int i = 0; i < kPages; ++i) store.Write(i);
      written = store.pool->Flush(all).has_value();
    } catch (const std::bad_alloc&) {
    } catch (const PageError&) {
    }
    const bool failed = AllocationFailed();
    FailAllocation(0);
    if (!written) {
      for (int i = 0; i < kPages; ++i) store.Write(i);
      store.Flush();
    }
    for (int i = 0; i < kPages; ++i) EXPECT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i))));
    EXPECT_EQ(store.pool->n_images(), 0) << k;
    store.pages.clear();
    EXPECT_EQ(store.pool->n_near(), 0) << k;
    if (!failed) break;
    ++n_failed;
  }
  EXPECT_GT(n_failed, 3);
}

TEST_P(PackingTest, ThePlannedComeAtOnceAndNoFrameIsKeptForThem) {
  constexpr int kPages = 6 * kFrames;
  Store store(kPages, GetParam());
  KvReservation reserved(store.pool);
  for (int round = 0; round < 3; ++round) {
    std::vector<KvPage*> plan;
    for (int i = round; i < kPages; i += 3) plan.push_back(&store.page(i));
    store.pool->ReadAhead(plan, Asked::kAgain);
    static_cast<void>(store.pool->traffic());  // waits for what is being read
    EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
    reserved.Set(kFrames * kStride);  // but for the least
    EXPECT_LE(store.pool->MemoryBytes(), KvPool::kLeastPages * kStride);
    store.pool->Read(store.page(0));
    const uint64_t misses = store.pool->traffic().misses;
    store.pool->Read(store.page(0));
    EXPECT_EQ(store.pool->traffic().misses, misses);
    reserved.Set(0);
  }
}

// A prompt behind generated tokens, where pages lie packed.
TEST_P(PackingTest, MoreIsKeptForTheNextToken) {
  constexpr int kPages = 3 * kFrames, kTables = kGeometry.n_layers * kGeometry.n_kv_heads;
  const Store store(kPages, GetParam());
  std::mt19937 random(1);
  for (int token = 0; token < 100; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  ASSERT_GT(store.pool->n_packed(), kFrames);
  std::vector<KvPage*> named;
  for (int i = 0; i < kFrames; ++i) named.push_back(&store.page(i));
  store.pool->KeepForToken(/*table=*/0, named, /*n_coming=*/0);
  alignas(64) std::byte scratch[2 * kNumbers];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kPages; ++i)
      ASSERT_TRUE(store.IsAsWritten(i, store.pool->Read(store.page(i), scratch)));
  }
  const auto n_kept = std::ranges::count_if(named, [&](KvPage* one) { return store.pool->IsNear(*one); });
  constexpr int kOfFrames = kFrames * 3 / 4 / kTables;
  EXPECT_GT(n_kept, kOfFrames * 9 / 8);
  EXPECT_LE(n_kept, kOfFrames * 5 / 4);
  EXPECT_LE(store.pool->MemoryBytes(), kFrames * kStride);
}

TEST_P(PackingTest, WhatIsWrittenAnewIsPackedThough) {
  constexpr int kPages = 2 * kFrames;
  Store store(kPages, GetParam(), /*packs=*/false);
  std::mt19937 random(1);
  const auto generate = [&] {
    for (int token = 0; token < 100; ++token) ASSERT_TRUE(store.Generate(Plan(random, kPages)));
  };
  generate();
  EXPECT_EQ(store.pool->n_packed(), 0);
  for (int i = 0; i < kPages; ++i) {
    store.contents[static_cast<std::size_t>(i)] = Contents(i);
    store.Write(i);
  }
  store.Flush();
  generate();
  EXPECT_GT(store.pool->n_packed(), 0);
}

TEST_P(PackingTest, ThreadsReadInEveryWayTogether) {
  constexpr int kPages = 2 * kFrames, kThreads = 4;
  Store store(kPages, GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 400; ++i) {
        // A fifth of the pages is written, each by one thread, and read by nobody else.
        std::vector<int> plan = Plan(random, kPages);
        std::erase_if(plan, [](int at) { return at % 5 == 4; });
        if (!store.Generate(plan)) ++wrong;
        const int at = static_cast<int>(random() % kPages);
        if (at % 5 == 4 && at / 5 % kThreads == t) {
          if (!store.Generate({at})) ++wrong;
          store.Write(at);
        } else if (at % 5 != 4) {
          if (i % 4 == 0 && !store.IsAsWritten(at, store.pool->Read(store.page(at)))) ++wrong;
          static_cast<void>(store.pool->Peek(store.page(at), 0));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(store.pool->n_packed(), 0);
  store.pages.clear();
  EXPECT_EQ(store.pool->n_near(), 0);
  EXPECT_EQ(store.pool->n_images(), 0);
}

}  // namespace
}  // namespace longheads
