#include "kv/pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kv/reservation.h"
#include "kv/sequence.h"
#include "tests/support/all_are.h"
#include "tests/support/allocations.h"
#include "tests/support/small_pages.h"

namespace longheads {
namespace {

constexpr KvGeometry kGeometry{.n_layers = 2, .n_kv_heads = 3, .head_dim = 8, .type = KvType::kF32};
constexpr int64_t kLeast = KvPool::kLeastPages;

// Fails or spoils what goes to and from pages' files, when it is told to.
class Faults final : public FileFaults {
 public:
  Faults() { InstallFileFaults(this); }
  ~Faults() override { InstallFileFaults(nullptr); }
  Verdict Before(const FileOperation& operation) override {
    std::lock_guard lock(mutex_);
    if (operation.call == FileCall::kRead && (fail_reads || std::exchange(fail_one_read, false))) {
      return {.error = EIO};
    }
    if (operation.call == FileCall::kWrite && fail_writes) return {.error = ENOSPC};
    return {};
  }
  void FailOneRead() {
    std::lock_guard lock(mutex_);
    fail_one_read = true;
  }
  void Set(bool reads, bool writes) {
    std::lock_guard lock(mutex_);
    fail_reads = reads;
    fail_writes = writes;
  }

 private:
  std::mutex mutex_;
  bool fail_reads = false;
  bool fail_one_read = false;
  bool fail_writes = false;
};

std::vector<KvPage*> AllOf(std::span<const std::shared_ptr<KvPage>> pages) {
  std::vector<KvPage*> all;
  for (const auto& page : pages) all.push_back(page.get());
  return all;
}

struct Store {
  std::shared_ptr<TemporaryPageFile> file;
  std::shared_ptr<KvPool> pool;

  explicit Store(int64_t pages = kLeast, uint64_t most_disk = 0, const std::string& io = "threads") {
    const auto stride = static_cast<uint64_t>(kGeometry.PageStride());
    file = *TemporaryPageFile::Create(testing::TempDir(), stride, most_disk);
    pool = KvPool::Create(kGeometry);
    const Status status =
        pool->UseDisk({.ram_bytes = static_cast<uint64_t>(pages) * stride, .file = file, .io = io});
    EXPECT_TRUE(status) << status.error().message;
  }

  void Fill(KvPage& page, int value) const {
    const PinnedPage pinned = pool->Write(page, /*fills=*/true);
    std::memset(pinned.data(), value, static_cast<std::size_t>(kGeometry.PageBytes()));
  }
  bool Holds(KvPage& page, int value) const {
    const PinnedPage pinned = pool->Read(page);
    return AllAre({pinned.data(), static_cast<std::size_t>(kGeometry.PageBytes())},
                  static_cast<std::byte>(value));
  }
  std::vector<std::shared_ptr<KvPage>> Filled(int n) const {
    std::vector<std::shared_ptr<KvPage>> pages;
    for (int i = 0; i < n; ++i) {
      pages.push_back(pool->Acquire());
      Fill(*pages.back(), i % 251 + 1);
    }
    return pages;
  }
  // On disk, and in memory the last of them alone: a page whose writing takes long stays when its turn is.
  // `n` is three times what memory holds, at least, for that to be sure.
  std::vector<std::shared_ptr<KvPage>> Settled(int n) const {
    std::vector<std::shared_ptr<KvPage>> pages = Filled(n);
    const Status flushed = pool->Flush(AllOf(pages));
    EXPECT_TRUE(flushed) << flushed.error().message;
    for (int pass = 0; pass < 2; ++pass) {
      for (const auto& page : pages) pool->Read(*page);
    }
    return pages;
  }
  // A write that was under way while the disk refused may end in its failure after the disk takes more.
  void FlushOnceNothingFails(std::span<const std::shared_ptr<KvPage>> pages) const {
    const std::vector<KvPage*> all = AllOf(pages);
    Status flushed = pool->Flush(all);
    for (int under_way = 0; !flushed && under_way < 64; ++under_way) flushed = pool->Flush(all);
    EXPECT_TRUE(flushed) << flushed.error().message;
  }
};

// By every way to the disk that this system has.
class KvPoolIoTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto io = MakePageIo(GetParam(), [](const PageTransfer&, const Status&) {});
    if (!io) GTEST_SKIP() << io.error().message;
    EXPECT_EQ((*io)->name(), GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Every, KvPoolIoTest, testing::Values("threads", "io_uring"));

TEST_P(KvPoolIoTest, KeepsItsBudgetAndLosesNothing) {
  const Store store(kLeast, 0, GetParam());
  const auto pages = store.Filled(1000);
  EXPECT_LE(store.pool->n_near(), kLeast);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < pages.size(); ++i)
      ASSERT_TRUE(store.Holds(*pages[i], static_cast<int>(i) % 251 + 1));
  }
  EXPECT_LE(store.pool->n_near(), kLeast);
  const KvTraffic traffic = store.pool->traffic();
  EXPECT_GE(traffic.misses, 1900u);
  // A page is written once, however often it leaves.
  EXPECT_LE(traffic.bytes_written, 1000u * static_cast<uint64_t>(kGeometry.PageStride()));
}

TEST(KvPool, WhatWasUsedLastStays) {
  const Store store;
  const auto pages = store.Filled(200);
  for (int round = 0; round < 50; ++round) {
    EXPECT_TRUE(store.Holds(*pages[3], 4));
    EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(100 + round)], 101 + round));
  }
  const uint64_t misses = store.pool->traffic().misses;
  EXPECT_TRUE(store.Holds(*pages[3], 4));
  EXPECT_EQ(store.pool->traffic().misses, misses);
}

TEST(KvPool, WhatIsKeptOutlivesWhatWasUsedSince) {
  const Store store;
  const auto pages = store.Settled(3 * kLeast);
  const auto use = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ASSERT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], static_cast<int>(i) % 251 + 1));
    }
  };
  const auto misses_of = [&](int64_t begin, int64_t end) {
    const uint64_t before = store.pool->traffic().misses;
    use(begin, end);
    return static_cast<int64_t>(store.pool->traffic().misses - before);
  };
  const auto keep = [&](int64_t begin, int64_t end, bool whether) {
    for (int64_t i = begin; i < end; ++i) store.pool->Keep(*pages[static_cast<std::size_t>(i)], whether);
  };
  // Without, going through more than memory holds finds nothing of the beginning there.
  constexpr int64_t kMost = kLeast / 8 * 7;
  use(0, 3 * kLeast);
  EXPECT_EQ(misses_of(0, kMost), kMost);
  keep(0, kMost, true);
  for (int round = 0; round < 3; ++round) {
    use(kLeast, 3 * kLeast);
    EXPECT_EQ(misses_of(0, kMost), 0) << round;
  }
  EXPECT_LE(store.pool->n_near(), kLeast);
  // One more: they would crowd out the rest.
  keep(kMost, kMost + 1, true);
  use(kLeast, 3 * kLeast);
  EXPECT_EQ(misses_of(0, kMost), kMost);
  keep(0, kMost + 1, false);
  keep(0, 2, true);
  use(0, 2);
  use(kLeast, 3 * kLeast);
  EXPECT_EQ(misses_of(0, 2), 0);
  keep(0, 2, false);
  use(kLeast, 3 * kLeast);
  EXPECT_EQ(misses_of(0, 2), 2);
}

TEST(KvPool, WhatAPlanNamesIsNotDrivenOutForTheRestOfThePlan) {
  const Store store;
  const auto pages = store.Settled(300);
  const std::vector<KvPage*> all = AllOf(pages);
  // All but the newest are used again, without the order's knowing.
  for (int i = 300 - static_cast<int>(kLeast); i < 299; ++i) {
    EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], i % 251 + 1));
    EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], i % 251 + 1));
  }
  KvPage* const plan[] = {all[299], all[0]};
  store.pool->ReadAhead(plan, KvPool::Asked::kForCertain);
  EXPECT_TRUE(store.pool->IsNear(*all[299]));
  EXPECT_TRUE(store.Holds(*pages[0], 1));
}

TEST(KvPool, WhatManyTokensNameStaysBeforeWhatOneNamedLater) {
  const Store store;
  const auto pages = store.Settled(300);
  const std::vector<KvPage*> all = AllOf(pages);
  const auto read = [&](int first, int n) {
    store.pool->ReadAhead(
        std::span(all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)),
        KvPool::Asked::kAgain);
    for (int i = first; i < first + n; ++i) {
      EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], i % 251 + 1));
    }
  };
  constexpr int kOften = static_cast<int>(kLeast) / 4;
  for (int plan = 0; plan < 4; ++plan) read(0, kOften);
  // Twice as many as there is room for beside them, each once.
  for (int first = 100; first < 100 + 2 * (static_cast<int>(kLeast) - kOften); first += 4) read(first, 4);
  for (int i = 0; i < kOften; ++i) EXPECT_TRUE(store.pool->IsNear(*all[static_cast<std::size_t>(i)])) << i;
}

// Whatever their memory held before, and whoever makes it.
TEST(KvPool, NewPagesHoldZeros) {
  ThreadPool threads(3);
  for (ThreadPool* const by : {static_cast<ThreadPool*>(nullptr), &threads}) {
    const auto pool = KvPool::Create(kGeometry);
    const int64_t n = 3 * (int64_t{kHugePage} / kGeometry.PageBytes()) + 1;
    for (int pass = 0; pass < 2; ++pass) {
      for (const auto& page : pool->Acquire(n, by)) {
        const PinnedPage pinned = pool->Write(*page, /*fills=*/true);
        const auto bytes = std::span(pinned.data(), static_cast<std::size_t>(kGeometry.PageBytes()));
        ASSERT_TRUE(AllAre(bytes, std::byte{0}));
        std::memset(bytes.data(), 0xFF, bytes.size());
      }
    }
  }
}

TEST(KvPool, APageThatIsWrittenAllTheTimeIsNotSentToDiskEachTime) {
  constexpr int64_t kFrames = 16 * kLeast;
  const Store store(kFrames);
  const auto open = store.pool->Acquire();
  std::vector<std::shared_ptr<KvPage>> pages;
  for (int i = 0; i < 4 * kFrames; ++i) {
    pages.push_back(store.pool->Acquire());
    store.Fill(*pages.back(), i % 251 + 1);
    store.Fill(*open, i % 251 + 1);
  }
  // The others once each, and few times the open one.
  const auto once = static_cast<uint64_t>(4 * kFrames * kGeometry.PageStride());
  EXPECT_LE(store.pool->traffic().bytes_written, once + 40 * static_cast<uint64_t>(kGeometry.PageStride()));
}

TEST(KvPool, KeptPagesMakeRoomWhereAllOthersArePinned) {
  const Store store;
  const auto pages = store.Filled(kLeast + 1);
  ASSERT_TRUE(store.pool->Flush(std::vector<KvPage*>{pages[kLeast].get()}));
  store.pool->Keep(*pages[0], true);
  std::vector<PinnedPage> pinned;
  for (int64_t i = 0; i < kLeast; ++i)
    pinned.push_back(store.pool->Read(*pages[static_cast<std::size_t>(i)]));
  pinned.erase(pinned.begin());
  EXPECT_TRUE(store.Holds(*pages[kLeast], static_cast<int>(kLeast) % 251 + 1));
  EXPECT_LE(store.pool->n_near(), kLeast);
}

// Of this process, in bytes.
int64_t Resident() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Bytes of memory that come to lie in small pages where of many pages a few stay: those that came last, side
// by side, or from all over the memory, which may be held.
enum class Stay : uint8_t { kTogether, kAllOver, kHeldAllOver };
constexpr int64_t kMany = 4000, kFew = 500;
const int64_t kLeft = (kMany - kFew) * kGeometry.PageStride();
int64_t SmallPagesOnceMostLeft(Stay stay) {
  const Store store(kMany);
  const auto pages = store.Filled(kMany);
  store.FlushOnceNothingFails(pages);
  std::vector<PinnedPage> held;
  if (stay != Stay::kTogether) {
    std::vector<KvPage*> used;
    for (std::size_t i = 0; i < kMany; i += kMany / kFew) used.push_back(pages[i].get());
    store.pool->ReadAhead(used, KvPool::Asked::kForCertain);
    if (stay == Stay::kHeldAllOver) {
      for (KvPage* const page : used) held.push_back(store.pool->Read(*page));
    }
  }
  const int64_t before = InSmallPages();
  KvReservation reservation(store.pool);
  reservation.Set(static_cast<uint64_t>(kLeft));
  for (std::size_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(!store.pool->IsNear(*pages[i]) || store.Holds(*pages[i], static_cast<int>(i) % 251 + 1));
  }
  return InSmallPages() - before;
}

// Else the system would make huge pages of it again, and fill what went back.
TEST(KvPool, MemoryThatWentBackInPartStaysInSmallPages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "no huge pages here";
  EXPECT_GE(SmallPagesOnceMostLeft(Stay::kHeldAllOver), kLeft);
}

// Else all would be in small pages in the end, as memory comes and goes.
TEST(KvPool, MemoryThatWentBackAsAWholeMayLieInHugePagesAgain) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "no huge pages here";
  EXPECT_LT(SmallPagesOnceMostLeft(Stay::kTogether), kLeft / 4);
  EXPECT_LT(SmallPagesOnceMostLeft(Stay::kAllOver), kLeft / 4);
}

TEST(KvPool, WhatIsReservedIsTakenFromItsPagesAndGoesBackToTheSystem) {
  constexpr int64_t kPages = 4000, kFewer = 500;
  const int64_t stride = kGeometry.PageStride();
  const Store store(kPages);
  const auto pages = store.Filled(kPages);
  store.FlushOnceNothingFails(pages);
  EXPECT_EQ(store.pool->n_near(), kPages);
  const int64_t before = Resident();
  {
    KvReservation reservation(store.pool);
    reservation.Set(static_cast<uint64_t>((kPages - kFewer) * stride));
    EXPECT_EQ(store.pool->n_near(), kFewer);
    EXPECT_LT(Resident(), before - (kPages - kFewer) * stride * 9 / 10);
    for (std::size_t i = 0; i < kPages; ++i) {
      ASSERT_TRUE(store.Holds(*pages[i], static_cast<int>(i) % 251 + 1));
    }
    EXPECT_EQ(store.pool->n_near(), kFewer);
    EXPECT_EQ(store.pool->ram_bytes(), kPages * stride);
    reservation.Set(0);
    reservation.Set(1);  // of a page
    for (const auto& page : pages) store.pool->Read(*page);
    EXPECT_EQ(store.pool->n_near(), kPages - 1);
  }
  for (const auto& page : pages) store.pool->Read(*page);
  EXPECT_EQ(store.pool->n_near(), kPages);
}

TEST(KvPool, ReservationsAddUpAndLeaveTheLeastThereIs) {
  constexpr int64_t kPages = 4 * kLeast;
  const auto stride = static_cast<uint64_t>(kGeometry.PageStride());
  const Store store(kPages);
  const auto pages = store.Filled(kPages);
  store.FlushOnceNothingFails(pages);
  const auto n_near = [&] {
    for (const auto& page : pages) store.pool->Read(*page);
    return store.pool->n_near();
  };
  KvReservation one(store.pool);
  one.Set(kLeast * stride);
  KvReservation two = one.Fresh();
  two.Set(kLeast * stride);
  EXPECT_EQ(n_near(), 2 * kLeast);
  EXPECT_EQ(store.pool->PageBytesBeside(2 * kLeast * stride), 2 * kLeast * stride);
  two = std::move(one);
  EXPECT_EQ(n_near(), 2 * kLeast);
  two.Set(UINT64_MAX / 2);
  EXPECT_EQ(n_near(), kLeast);
  EXPECT_EQ(store.pool->PageBytesBeside(UINT64_MAX), kLeast * stride);
  two = KvReservation(store.pool);
  EXPECT_EQ(n_near(), 3 * kLeast);  // `one` has what `two` was before
}

TEST(KvPool, WhatForksHaveInCommonIsReservedOnce) {
  constexpr int64_t kPages = 16 * kLeast;
  const auto stride = static_cast<uint64_t>(kGeometry.PageStride());
  const Store store(kPages);
  const auto pages = store.Filled(kPages);
  store.FlushOnceNothingFails(pages);
  const auto reserved = [&] {  // in units of kLeast pages
    for (const auto& page : pages) store.pool->Read(*page);
    return 16 - store.pool->n_near() / kLeast;
  };
  const auto unit = static_cast<uint64_t>(kLeast) * stride;
  std::optional<KvSharedReservation> text(store.pool);
  text->Set(3 * unit);
  std::optional<KvSharedReservation> fork = text->Fork();
  EXPECT_EQ(reserved(), 3);
  fork->Set(5 * unit);
  EXPECT_EQ(reserved(), 5);
  text->Set(4 * unit);
  EXPECT_EQ(reserved(), 6);
  fork->Set(6 * unit);
  EXPECT_EQ(reserved(), 7);
  text.reset();
  EXPECT_EQ(reserved(), 6);
  fork.reset();
  EXPECT_EQ(reserved(), 0);
}

TEST(KvPool, WhatAForkHasAgainBehindACutIsReservedForItself) {
  const Store store(16 * kLeast);
  KvSharedReservation text(store.pool);
  text.Set(100);
  std::optional<KvSharedReservation> fork = text.Fork();
  text.Set(10);
  EXPECT_EQ(store.pool->reserved_bytes(), 100);  // the fork has them still
  text.Set(100);
  EXPECT_EQ(store.pool->reserved_bytes(), 190);
  fork->Set(120);
  EXPECT_EQ(store.pool->reserved_bytes(), 210);
  fork->Set(40);
  EXPECT_EQ(store.pool->reserved_bytes(), 190);  // 60 that nobody has, until their part is one object's alone
  fork.reset();
  text.Set(5);
  EXPECT_EQ(store.pool->reserved_bytes(), 5);
  text.Set(0);
  EXPECT_EQ(store.pool->reserved_bytes(), 0);
}

TEST(KvPool, WhatWasReservedBeforeThereIsADiskCountsThen) {
  const Store store;
  const auto pool = KvPool::Create(kGeometry);
  KvReservation reservation(pool);
  const auto unit = static_cast<uint64_t>(kLeast * kGeometry.PageStride());
  reservation.Set(unit);
  ASSERT_TRUE(pool->UseDisk({.ram_bytes = 4 * unit, .file = store.file}));
  std::vector<std::shared_ptr<KvPage>> pages;
  for (int64_t i = 0; i < 4 * kLeast; ++i) {
    pages.push_back(pool->Acquire());
    pool->Write(*pages.back(), /*fills=*/true);
  }
  EXPECT_EQ(pool->n_near(), 3 * kLeast);
}

TEST(KvPool, PagesThatAreNotOnDiskYetLeaveForAReservationOnceTheyAre) {
  constexpr int64_t kPages = 4 * kLeast;
  const Store store(kPages);
  const auto pages = store.Filled(kPages);
  KvReservation reservation(store.pool);
  reservation.Set(static_cast<uint64_t>(2 * kLeast * kGeometry.PageStride()));
  for (std::size_t i = 0; i < kPages; ++i) ASSERT_TRUE(store.Holds(*pages[i], static_cast<int>(i) % 251 + 1));
  const auto more = store.Filled(static_cast<int>(kLeast));
  EXPECT_LE(store.pool->n_near(), 2 * kLeast);
}

TEST(KvPool, NothingIsReservedWherePagesStay) {
  const auto pool = KvPool::Create(kGeometry);
  KvReservation reservation(pool);
  reservation.Set(UINT64_MAX);
  const auto page = pool->Acquire();
  EXPECT_EQ(pool->n_pages(), 1);
}

TEST(KvPool, PinnedPagesStayWhereTheyAre) {
  const Store store;
  auto pages = store.Filled(10);
  const PinnedPage pinned = store.pool->Read(*pages[0]);
  const auto more = store.Filled(500);
  EXPECT_EQ(pinned.data()[5], std::byte{1});
  EXPECT_EQ(store.pool->Read(*pages[0]).data(), pinned.data());
}

TEST(KvPool, GoesOverTheBudgetOnlyWhereAllIsPinned) {
  const Store store;
  const auto pages = store.Filled(static_cast<int>(kLeast) + 20);
  {
    std::vector<PinnedPage> pinned;
    for (const auto& page : pages) pinned.push_back(store.pool->Read(*page));
    EXPECT_EQ(store.pool->n_near(), kLeast + 20);
  }
  const auto more = store.Filled(100);
  EXPECT_LE(store.pool->n_near(), kLeast);
}

TEST_P(KvPoolIoTest, ReadAheadBringsWhatIsAskedForLater) {
  const Store store(kLeast, 0, GetParam());
  const auto pages = store.Settled(300);
  std::vector<KvPage*> wanted = AllOf(pages);
  wanted.resize(20);
  store.pool->ReadAhead(wanted, KvPool::Asked::kForCertain);
  EXPECT_EQ(store.pool->traffic().read_ahead, 20u);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], i + 1));
  EXPECT_EQ(store.pool->traffic().read_ahead_used, 20u);
  for (KvPage* const page : wanted) EXPECT_TRUE(store.pool->IsNear(*page));
}

TEST_P(KvPoolIoTest, WhoLooksForAPageAsksMeanwhileForWhatElseIsReadSoon) {
  const Store store(kLeast, 0, GetParam());
  const auto pages = store.Settled(300);
  const std::vector<std::byte> weights(SoonRead::kSome);
  const std::span<const std::byte> piece(weights);
  store.pool->while_waiting().Name(std::span(&piece, 1));
  const std::vector<KvPage*> all = AllOf(pages);
  constexpr std::size_t kWanted = 20;
  bool has_asked = false;
  // Where this thread gets no time, pages may all have come before it looks.
  for (std::size_t first = 0; first < all.size() && !has_asked; first += kWanted) {
    store.pool->ReadAhead(std::span(all).subspan(first, kWanted), KvPool::Asked::kForCertain);
    // Who reads a page takes one end before: not each time that of this page, in whatever order they come.
    for (std::size_t i = first + kWanted; i-- > first;) {
      EXPECT_TRUE(store.Holds(*pages[i], static_cast<int>(i) % 251 + 1));
    }
    has_asked = store.pool->while_waiting().Take().empty();
    if (!has_asked) store.pool->while_waiting().Name(std::span(&piece, 1));
  }
  const bool sleeps = GetParam() == std::string_view("threads");
  EXPECT_EQ(has_asked, !sleeps);
}

TEST(KvPool, WhatCameAheadIsAHitThoughItWasNotThereWhenThePlanNamedIt) {
  const Store store;
  const auto pages = store.Settled(300);
  const std::vector<KvPage*> all = AllOf(pages);
  const KvTraffic before = store.pool->traffic();
  EXPECT_EQ(before.planned, 0u);
  const std::vector<KvPage*> plan = {all[0], all[1], all[299]};  // the newest alone is in memory
  store.pool->ReadAhead(plan, KvPool::Asked::kForCertain);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (KvPage* const page : plan) {
    while (!store.pool->IsNear(*page) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    store.pool->Read(*page);
  }
  const KvTraffic once = store.pool->traffic() - before;
  EXPECT_EQ(once.planned, 3u);
  EXPECT_EQ(once.planned_in_memory, 1u);
  EXPECT_EQ(once.hits, 3u);
  EXPECT_EQ(once.misses, 0u);
  store.pool->ReadAhead(plan, KvPool::Asked::kAgain);
  for (const auto guessed : {KvPool::Asked::kLikely, KvPool::Asked::kPerhaps}) {
    store.pool->ReadAhead(plan, guessed);
  }
  const KvTraffic twice = store.pool->traffic() - before;
  EXPECT_EQ(twice.planned, 6u);
  EXPECT_EQ(twice.planned_in_memory, 4u);
}

TEST(KvPool, WhatWasReadAheadInVainIsNotCountedAsUsed) {
  const Store store;
  const auto pages = store.Settled(300);
  const std::vector<KvPage*> wanted = AllOf(pages);
  store.pool->ReadAhead(std::span(wanted).first(10), KvPool::Asked::kForCertain);
  EXPECT_EQ(store.pool->traffic().read_ahead, 10u);  // waits for them: what is on its way does not leave
  for (int i = 100; i < 300; ++i) EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], i % 251 + 1));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], i + 1));
  EXPECT_EQ(store.pool->traffic().read_ahead, 10u);
  EXPECT_EQ(store.pool->traffic().read_ahead_used, 0u);
}

TEST(KvPool, ReadAheadDrivesOutNothingWhereOnlyFreeRoomMayBeTaken) {
  const Store store;
  std::vector<std::shared_ptr<KvPage>> adopted;
  {
    const auto pages = store.Filled(static_cast<int>(kLeast));
    const std::vector<KvPage*> all = AllOf(pages);
    ASSERT_TRUE(store.pool->Flush(all));
    for (const auto& page : pages) {
      const KvPool::Place place = store.pool->PlaceOf(*page);
      adopted.push_back(store.pool->Adopt(place.file, place.offset, place.checksum));
    }
    const std::vector<KvPage*> wanted = AllOf(adopted);
    store.pool->ReadAhead(wanted, KvPool::Asked::kPerhaps);
    EXPECT_EQ(store.pool->traffic().read_ahead, 0u);
    for (KvPage* const page : all) EXPECT_TRUE(store.pool->IsNear(*page));
  }
  KvPage* const one[] = {adopted[3].get()};
  store.pool->ReadAhead(one, KvPool::Asked::kPerhaps);
  EXPECT_EQ(store.pool->traffic().read_ahead, 1u);
  EXPECT_TRUE(store.Holds(*adopted[3], 4));
}

TEST(KvPool, WhatMayBeAskedForStaysBeforeOthers) {
  constexpr int kFrames = 4 * static_cast<int>(kLeast);
  const Store store(kFrames);
  const auto pages = store.Settled(3 * kFrames);
  const std::vector<KvPage*> all = AllOf(pages);
  const auto bring = [&](int i) { EXPECT_TRUE(store.Holds(*all[static_cast<std::size_t>(i)], i % 251 + 1)); };
  for (int i = 0; i < kFrames; ++i) bring(i);
  KvPage* const named[] = {all[0], all[2]};
  for (int i = kFrames; i < 3 * kFrames; ++i) {
    store.pool->ReadAhead(named, KvPool::Asked::kPerhaps);
    bring(i);
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(store.pool->IsNear(*all[i]), i % 2 == 0) << i;
}

TEST(KvPool, WritesBeforeSomebodyWaitsForTheRoom) {
  constexpr int64_t kFrames = 16 * kLeast;
  const Store store(kFrames);
  const auto pages = store.Filled(kFrames);
  const std::vector<KvPage*> all = AllOf(pages);
  ASSERT_TRUE(store.pool->Flush(all));
  const uint64_t before = store.pool->traffic().bytes_written;
  for (int i = 0; i < kFrames / 4; ++i) store.Fill(*pages[static_cast<std::size_t>(i)], 7);
  // Half of what changed, at least; no reading here needs room.
  const uint64_t enough = before + static_cast<uint64_t>(kFrames / 8 * kGeometry.PageStride());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (store.pool->traffic().bytes_written < enough && std::chrono::steady_clock::now() < deadline) {
    EXPECT_TRUE(store.Holds(*pages.back(), (kFrames - 1) % 251 + 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(store.pool->traffic().bytes_written, enough);
  EXPECT_EQ(store.pool->traffic().bytes_read, 0u);
}

TEST(KvPool, AChangedPageIsWrittenAgain) {
  const Store store;
  auto pages = store.Filled(200);
  store.Fill(*pages[0], 77);
  const auto more = store.Filled(200);
  EXPECT_TRUE(store.Holds(*pages[0], 77));
}

TEST_P(KvPoolIoTest, FlushedPagesCanBeAdopted) {
  const Store store(kLeast, 0, GetParam());
  const auto pages = store.Filled(100);
  const std::vector<KvPage*> all = AllOf(pages);
  ASSERT_TRUE(store.pool->Flush(all));
  const KvPool::Place place = store.pool->PlaceOf(*pages[42]);
  const auto copy = store.pool->Adopt(place.file, place.offset, place.checksum);
  EXPECT_TRUE(store.Holds(*copy, 43));
  const auto wrong = store.pool->Adopt(place.file, place.offset, place.checksum + 1);
  try {
    store.pool->Read(*wrong);
    ADD_FAILURE() << "a damaged page was taken";
  } catch (const PageError& error) {
    EXPECT_EQ(error.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(error.error().message.find("damaged"), std::string::npos) << error.what();
  }
}

TEST_P(KvPoolIoTest, AFailedReadEndsThatRequestAlone) {
  Faults faults;  // outlives the pool, whose threads ask it
  const Store store(kLeast, 0, GetParam());
  const auto pages = store.Settled(200);
  faults.Set(/*reads=*/true, /*writes=*/false);
  EXPECT_THROW(store.pool->Read(*pages[0]), PageError);
  KvPage* const ahead[] = {pages[1].get()};
  store.pool->ReadAhead(ahead, KvPool::Asked::kForCertain);
  EXPECT_THROW(store.pool->Read(*pages[1]), PageError);
  faults.Set(false, false);
  faults.FailOneRead();
  EXPECT_THROW(store.pool->Read(*pages[2]), PageError);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(store.Holds(*pages[i], static_cast<int>(i) + 1));
}

TEST_P(KvPoolIoTest, AFullDiskEndsThatRequestAndLosesNothing) {
  Faults faults;  // outlives the pool, whose threads ask it
  const Store store(kLeast, 0, GetParam());
  auto pages = store.Filled(static_cast<int>(kLeast) / 2);
  faults.Set(false, /*writes=*/true);
  bool failed = false;
  for (int i = 0; i < 300 && !failed; ++i) {
    auto page = store.pool->Acquire();
    try {
      store.Fill(*page, 9);
    } catch (const PageError& error) {
      EXPECT_EQ(error.error().kind, ErrorKind::kIo);
      failed = true;
    }
    if (!failed) pages.push_back(std::move(page));
  }
  EXPECT_TRUE(failed);
  faults.Set(false, false);
  store.FlushOnceNothingFails(pages);
  for (int i = 0; i < static_cast<int>(kLeast) / 2; ++i) {
    EXPECT_TRUE(store.Holds(*pages[static_cast<std::size_t>(i)], i + 1));
  }
}

// Whichever it is, in a thread that asks or in one that moves pages.
TEST_P(KvPoolIoTest, AnAllocationThatFailsEndsThatRequestAndLosesNothing) {
  for (int64_t k = 1;; ++k) {
    SCOPED_TRACE(k);
    const Store store(kLeast, 0, GetParam());
    const auto pages = store.Filled(kLeast + 40);
    const std::vector<KvPage*> all = AllOf(pages);
    FailAllocation(k);
    try {
      store.pool->ReadAhead(std::span(all).first(20), KvPool::Asked::kForCertain);
      const auto more = store.Filled(10);
      for (int i = 0; i < 40; ++i) (void)store.Holds(*all[static_cast<std::size_t>(i)], 0);
      if (store.pool->Flush(all)) {
        const KvPool::Place place = store.pool->PlaceOf(*all[42]);
        const auto copy = store.pool->Adopt(place.file, place.offset, place.checksum);
        (void)store.Holds(*copy, 0);
      }
    } catch (const std::bad_alloc&) {
    } catch (const PageError&) {
    }
    const bool came = AllocationFailed();
    FailAllocation(0);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      ASSERT_TRUE(store.Holds(*pages[i], static_cast<int>(i) % 251 + 1)) << i;
    }
    EXPECT_LE(store.pool->n_near(), kLeast);
    store.FlushOnceNothingFails(pages);
    if (!came) {
      EXPECT_GT(k, 20);
      break;
    }
  }
}

TEST_P(KvPoolIoTest, ThreadsThatFlushToAFullDiskAllHearOfIt) {
  Faults faults;  // outlives the pool, whose threads ask it
  const Store store(4 * kLeast, 0, GetParam());
  const auto pages = store.Filled(static_cast<int>(kLeast));
  const std::vector<KvPage*> all = AllOf(pages);
  faults.Set(false, /*writes=*/true);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Status status = store.pool->Flush(std::span(all).subspan(t * 16, 16));
        EXPECT_FALSE(status);
        if (!status) {
          EXPECT_EQ(status.error().kind, ErrorKind::kIo);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  faults.Set(false, false);
  store.FlushOnceNothingFails(pages);
  for (std::size_t i = 0; i < pages.size(); ++i) EXPECT_TRUE(store.Holds(*pages[i], static_cast<int>(i) + 1));
}

// As io_uring meets them: nobody injects anything here.
TEST_P(KvPoolIoTest, AFileThatEndsTooEarlyEndsThatRequestAlone) {
  const Store store(kLeast, 0, GetParam());
  const auto pages = store.Settled(200);
  const std::vector<KvPage*> all = AllOf(pages);
  ASSERT_FALSE(store.pool->IsNear(*pages[1]));
  ASSERT_TRUE(store.file->file().Truncate(0));
  store.pool->ReadAhead(std::span(all).first(2), KvPool::Asked::kForCertain);
  for (int i = 0; i < 2; ++i) {
    try {
      store.pool->Read(*pages[static_cast<std::size_t>(i)]);
      ADD_FAILURE() << "read from behind the end";
    } catch (const PageError& error) {
      EXPECT_EQ(error.error().kind, ErrorKind::kIo);
    }
  }
  EXPECT_TRUE(store.Holds(*pages[199], 200));
}

TEST_P(KvPoolIoTest, AFileThatMayNotGrowEndsThatRequestAndLosesNothing) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto may_grow = [&](rlim_t bytes) {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  };
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    const Store store(kLeast, 0, GetParam());
    may_grow(20 * static_cast<rlim_t>(kGeometry.PageStride()));
    std::vector<std::shared_ptr<KvPage>> pages;
    bool failed = false;
    for (int i = 0; i < 300 && !failed; ++i) {
      auto page = store.pool->Acquire();
      try {
        store.Fill(*page, i % 251 + 1);
      } catch (const PageError& error) {
        EXPECT_EQ(error.error().kind, ErrorKind::kIo);
        failed = true;
      }
      if (!failed) pages.push_back(std::move(page));
    }
    EXPECT_TRUE(failed);
    may_grow(before.rlim_cur);
    store.FlushOnceNothingFails(pages);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      EXPECT_TRUE(store.Holds(*pages[i], static_cast<int>(i) % 251 + 1));
    }
  }
  std::signal(SIGXFSZ, handler);
}

TEST(KvPool, TheDisksShareIsKept) {
  const Store store(kLeast, 50 * static_cast<uint64_t>(kGeometry.PageStride()));
  try {
    const auto pages = store.Filled(1000);
    ADD_FAILURE() << "more was written than may be";
  } catch (const PageError& error) {
    EXPECT_NE(error.error().message.find("--kv-disk-max"), std::string::npos) << error.what();
  }
}

TEST(KvPool, RefusesABudgetThatHoldsNothing) {
  auto pool = KvPool::Create(kGeometry);
  const auto file =
      *TemporaryPageFile::Create(testing::TempDir(), static_cast<uint64_t>(kGeometry.PageStride()), 0);
  const Status status = pool->UseDisk({.ram_bytes = 1000, .file = file});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("--kv-ram"), std::string::npos);
}

TEST(KvPool, TakesABudgetOfTwiceWhatReadersHold) {
  const auto stride = static_cast<uint64_t>(kGeometry.PageStride());
  const auto use = [stride](uint64_t n_pages) {
    return KvPool::Create(kGeometry)->UseDisk(
        {.ram_bytes = n_pages * stride,
         .most_pinned = 50,
         .file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0)});
  };
  const Status status = use(99);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("100 pages"), std::string::npos) << status.error().message;
  EXPECT_TRUE(use(100));
}

TEST_P(KvPoolIoTest, ThreadsReadWriteAndReadAheadTogether) {
  const Store store(kLeast, 0, GetParam());
  constexpr int kPages = 400;
  const auto pages = store.Filled(kPages);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        const int at = static_cast<int>(random() % kPages);
        KvPage& page = *pages[static_cast<std::size_t>(at)];
        if (at % 5 == 4) {  // a fifth of the pages is written, each by one thread, and read by nobody else
          if (at / 5 % 4 == t) {
            if (!store.Holds(page, at % 251 + 1)) ++wrong;
            store.Fill(page, at % 251 + 1);
          }
        } else if (i % 7 == 0) {
          std::vector<KvPage*> wanted;
          for (int k = 0; k < 8; ++k) wanted.push_back(pages[random() % kPages].get());
          store.pool->ReadAhead(wanted, KvPool::Asked::kForCertain);
        } else {
          const PinnedPage pinned = store.pool->Read(page);
          if (pinned.data()[17] != static_cast<std::byte>(at % 251 + 1)) ++wrong;
          if (store.pool->Peek(page, 0) != pinned.data()) ++wrong;
          static_cast<void>(
              store.pool->Peek(*pages[random() % kPages], 0));  // others may drive it out meanwhile
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(store.pool->n_near(), kLeast + 4);
}

TEST_P(KvPoolIoTest, PeeksAtWhatIsInMemoryAndBringsNothing) {
  const Store store(kLeast, 0, GetParam());
  const auto pages = store.Filled(static_cast<int>(kLeast) + 8);
  const KvTraffic before = store.pool->traffic();
  int64_t n_there = 0;
  for (const auto& page : pages) {
    const std::byte* const data = store.pool->Peek(*page, 0);
    if (data == nullptr) continue;
    ++n_there;
    EXPECT_EQ(store.pool->Read(*page).data(), data);
  }
  EXPECT_GT(n_there, 0);
  EXPECT_LE(n_there, kLeast);
  const KvTraffic after = store.pool->traffic();
  EXPECT_EQ(after.bytes_read, before.bytes_read);
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.hits, before.hits + static_cast<uint64_t>(n_there));
}

TEST_P(KvPoolIoTest, ThreadsPinWhatOthersDriveOut) {
  const Store store(kLeast, 0, GetParam());
  constexpr int kPages = static_cast<int>(kLeast) + 8;
  constexpr int kThreads = 4, kReadings = 5000;
  const auto pages = store.Filled(kPages);
  const KvTraffic before = store.pool->traffic();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kReadings; ++i) {
        const int at = static_cast<int>(random() % kPages);
        const PinnedPage pinned = store.pool->Read(*pages[static_cast<std::size_t>(at)]);
        const auto size = static_cast<std::size_t>(kGeometry.PageBytes());
        const auto expected = static_cast<std::byte>(at % 251 + 1);
        if (pinned.data()[random() % size] != expected || pinned.data()[size - 1] != expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(store.pool->n_near(), kLeast + kThreads);
  EXPECT_EQ((store.pool->traffic() - before).asked(), static_cast<uint64_t>(kThreads * kReadings));
}

TEST_P(KvPoolIoTest, ThreadsMakeFlushAndDropPagesTogether) {
  const Store store(kLeast, 0, GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::pair<std::shared_ptr<KvPage>, int>> own;  // with what they hold
      for (int i = 0; i < 300; ++i) {
        own.emplace_back(store.pool->Acquire(), (t * 61 + i) % 251 + 1);
        store.Fill(*own.back().first, own.back().second);
        const auto& [page, value] = own[random() % own.size()];
        if (!store.Holds(*page, value)) ++wrong;
        if (own.size() > 40) own.erase(own.begin() + static_cast<std::ptrdiff_t>(random() % own.size()));
        if (i % 16 != 0) continue;
        std::vector<KvPage*> flushed;
        for (const auto& entry : own) flushed.push_back(entry.first.get());
        if (!store.pool->Flush(flushed)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.pool->n_pages(), 0);
  EXPECT_LE(store.pool->n_near(), kLeast);
}

// What sequences do does not depend on where pages are.
TEST(KvPool, SequencesForkAndTruncateWithPagesElsewhere) {
  const Store store;
  KvSequence sequence(store.pool);
  const auto append = [](KvSequence& to, int64_t n, float salt) {
    const int64_t from = to.size();
    to.Reserve(from + n);
    std::vector<float> rows(static_cast<std::size_t>(n * kGeometry.head_dim));
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t head = 0; head < 3; ++head) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
          rows[i] = salt + static_cast<float>(layer * 10 + head) + static_cast<float>(from) +
                    static_cast<float>(i / static_cast<std::size_t>(kGeometry.head_dim));
        }
        to.Write(layer, head, from, n, rows.data(), kGeometry.head_dim, rows.data(), kGeometry.head_dim);
      }
    }
    to.Commit(from + n);
  };
  const auto key = [](const KvSequence& of, int64_t layer, int64_t head, int64_t token) {
    std::vector<float> k(static_cast<std::size_t>(kGeometry.head_dim));
    of.CopyKeys(layer, head, token, 1, k.data(), kGeometry.head_dim);
    return k[0];
  };
  append(sequence, 10000, 0);
  KvSequence fork = sequence.Fork();
  append(fork, 300, 5000);
  append(sequence, 300, 9000);
  sequence.Truncate(10100);
  append(sequence, 10, 100);
  for (const int64_t token : {0, 255, 256, 5000, 9999}) {
    EXPECT_EQ(key(sequence, 1, 2, token), static_cast<float>(12 + token));
    EXPECT_EQ(key(fork, 1, 2, token), static_cast<float>(12 + token));
  }
  EXPECT_EQ(key(fork, 0, 0, 10200), 5000.0f + 10200);
  EXPECT_EQ(key(sequence, 0, 0, 10050), 9000.0f + 10050);
  EXPECT_EQ(key(sequence, 0, 0, 10105), 100.0f + 10105);
  EXPECT_LE(store.pool->n_near(), kLeast);
}

}  // namespace
}  // namespace longheads
