#include "base/raw_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/allocations.h"

namespace longheads {
namespace {

using Mode = RawFile::Mode;

// Answers as the test says, and counts.
class ScriptedFaults : public FileFaults {
 public:
  explicit ScriptedFaults(std::function<Verdict(const FileOperation&)> script) : script_(std::move(script)) {
    InstallFileFaults(this);
  }
  ~ScriptedFaults() override { InstallFileFaults(nullptr); }
  Verdict Before(const FileOperation& operation) override {
    const std::lock_guard lock(mutex_);
    calls.push_back(operation.call);
    return script_ ? script_(operation) : Verdict{};
  }
  int64_t Count(FileCall call) const { return std::count(calls.begin(), calls.end(), call); }

  std::vector<FileCall> calls;

 private:
  std::mutex mutex_;
  std::function<Verdict(const FileOperation&)> script_;
};

// kDirectAlignment-aligned bytes.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size, int fill = 0)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size)), std::free), size_(size) {
    std::memset(data_.get(), fill, size);
  }
  std::span<std::byte> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> data_;
  std::size_t size_;
};

class RawFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "longheads_raw_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string Get(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  RawFile Open(const std::string& name, Mode mode, bool direct = false) const {
    auto file = RawFile::Open(Path(name), {.mode = mode, .direct = direct});
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : RawFile();
  }
  std::size_t FilesInFolder() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

Status Write(const RawFile& file, uint64_t offset, const std::string& text) {
  return file.PWrite(offset, std::as_bytes(std::span(text)));
}
std::string Read(const RawFile& file, uint64_t offset, std::size_t size) {
  std::string text(size, '?');
  const Status status = file.PRead(offset, std::as_writable_bytes(std::span(text)));
  return status ? text : status.error().message;
}
template <typename T>
void ExpectError(const Result<T>& result, ErrorKind kind, const std::string& words) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, kind) << result.error().message;
  EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
}
int OpenDescriptors() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST_F(RawFileTest, WritesAndReadsAtOffsets) {
  const RawFile file = Open("f", Mode::kCreate);
  ASSERT_TRUE(Write(file, 10, "later") && Write(file, 0, "first") && file.Sync());
  EXPECT_EQ(Get("f"), std::string("first\0\0\0\0\0later", 15));
  EXPECT_EQ(Read(Open("f", Mode::kRead), 11, 3), "ate");
  EXPECT_EQ(*file.Size(), 15u);
  ASSERT_TRUE(file.Truncate(3));
  EXPECT_EQ(Get("f"), "fir");
  ASSERT_TRUE(file.Truncate(5));
  EXPECT_EQ(Get("f"), std::string("fir\0\0", 5));
}

TEST_F(RawFileTest, EachModeTakesWhatItSays) {
  ExpectError(RawFile::Open(Path("f"), {.mode = Mode::kRead}), ErrorKind::kInvalidInput, "no such file");
  ExpectError(RawFile::Open(Path("f"), {.mode = Mode::kWrite}), ErrorKind::kInvalidInput, "no such file");
  ASSERT_TRUE(Write(Open("f", Mode::kCreate), 0, "kept"));
  ExpectError(RawFile::Open(Path("f"), {.mode = Mode::kCreate}), ErrorKind::kInvalidInput, "already");
  for (const Mode mode : {Mode::kRead, Mode::kWrite, Mode::kCreateAny}) {
    EXPECT_EQ(Read(Open("f", mode), 0, 4), "kept");
  }
  ExpectError(Write(Open("f", Mode::kRead), 0, "x"), ErrorKind::kIo, "cannot write 1 B at offset 0");
  ASSERT_TRUE(Write(Open("g", Mode::kCreateAny), 0, "made"));
  EXPECT_EQ(Get("g"), "made");
}

TEST_F(RawFileTest, RefusesWhatIsNoRegularFile) {
  ExpectError(RawFile::Open(folder_, {.mode = Mode::kRead}), ErrorKind::kInvalidInput, "is a folder");
  ExpectError(RawFile::Open(folder_, {.mode = Mode::kWrite}), ErrorKind::kInvalidInput, "is a folder");
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectError(RawFile::Open(Path("pipe"), {}), ErrorKind::kInvalidInput, "a pipe or a device");
  ExpectError(RawFile::Open("/dev/null", {}), ErrorKind::kInvalidInput, "a pipe or a device");
  ExpectError(RawFile::Open(Put("f", "x") + "/below", {}), ErrorKind::kInvalidInput, "no such file");
  ExpectError(RawFile::Temporary(Path("none"), false), ErrorKind::kInvalidInput, "no such file or folder");
  ExpectError(RawFile::Temporary(Path("f"), false), ErrorKind::kInvalidInput, "no such file or folder");
}

TEST_F(RawFileTest, ReadingBeyondTheEndSaysWhereItEnds) {
  const RawFile file = Open("f", Mode::kCreate);
  ASSERT_TRUE(Write(file, 0, "12345"));
  ExpectError(file.PRead(3, AlignedBytes(4096).span()), ErrorKind::kIo, "ends before offset 5");
  ExpectError(file.PRead(uint64_t{1} << 63, AlignedBytes(4096).span()), ErrorKind::kIo, "cannot read");
  EXPECT_EQ(Read(file, 99, 0), "");
}

TEST_F(RawFileTest, DirectTransfersAndCachedOnesSeeEachOther) {
  const RawFile file = Open("f", Mode::kCreate, /*direct=*/true);
  if (!file.direct()) GTEST_SKIP() << folder_ << " lies on a file system without direct I/O";
  const ScriptedFaults faults([&](const FileOperation& operation) {
    // Aligned transfers, and only they, go past the cache.
    const bool aligned = (operation.offset | operation.size | reinterpret_cast<uintptr_t>(operation.data)) %
                             kDirectAlignment ==
                         0;
    EXPECT_TRUE(operation.data == nullptr || aligned == (operation.descriptor == file.descriptor()));
    return FileFaults::Verdict{};
  });
  const AlignedBytes ones(8192, '1');
  ASSERT_TRUE(file.PWrite(4096, ones.span()));
  ASSERT_TRUE(Write(file, 4096 + 10, "cached"));
  ASSERT_TRUE(Write(file, 12288, "tail"));
  const AlignedBytes back(8192);
  ASSERT_TRUE(file.PRead(4096, back.span()));
  EXPECT_EQ(std::memcmp(back.span().data() + 10, "cached", 6), 0);
  EXPECT_EQ(Read(file, 12287, 5), "1tail");
  ASSERT_TRUE(file.PWrite(4096, ones.span()));
  EXPECT_EQ(Read(file, 4096 + 10, 6), "111111");
}

TEST_F(RawFileTest, ABlockOfTheDiskIsReadPastTheCache) {
  const RawFile file = Open("f", Mode::kCreate, /*direct=*/true);
  const uint64_t unit = file.direct_unit();
  ASSERT_TRUE(unit > 0 && kDirectAlignment % unit == 0) << unit;
  if (!file.direct()) GTEST_SKIP() << folder_ << " lies on a file system without direct I/O";
  ASSERT_TRUE(file.PWrite(0, AlignedBytes(4096, '1').span()));
  ASSERT_TRUE(file.PWrite(4096, AlignedBytes(4096, '2').span()));
  std::vector<int> descriptors;
  const ScriptedFaults faults([&](const FileOperation& operation) {
    descriptors.push_back(operation.descriptor);
    return FileFaults::Verdict{};
  });
  const AlignedBytes block(4096);
  ASSERT_TRUE(file.PRead(4096 - unit, block.span().first(unit)));
  EXPECT_EQ(std::memcmp(block.span().data(), AlignedBytes(4096, '1').span().data(), unit), 0);
  EXPECT_EQ(descriptors, std::vector{file.descriptor()});
}

TEST_F(RawFileTest, ShortTransfersAreCarriedOn) {
  for (const uint64_t most : {uint64_t{1}, uint64_t{1000}, uint64_t{4096}}) {
    for (const bool direct : {false, true}) {
      const RawFile file = Open("f", Mode::kCreateAny, direct);
      const ScriptedFaults faults([&](const FileOperation&) { return FileFaults::Verdict{.most = most}; });
      const AlignedBytes written(8192, static_cast<int>('a' + most % 7));
      ASSERT_TRUE(file.PWrite(4096, written.span()));
      const AlignedBytes read(8192);
      ASSERT_TRUE(file.PRead(4096, read.span()));
      EXPECT_EQ(std::memcmp(read.span().data(), written.span().data(), 8192), 0);
      EXPECT_GE(faults.Count(FileCall::kWrite), static_cast<int64_t>(8192 / most));
    }
  }
}

TEST_F(RawFileTest, SignalsAreNoErrors) {
  const RawFile file = Open("f", Mode::kCreate);
  int turn = 0;
  const ScriptedFaults faults(
      [&](const FileOperation&) { return FileFaults::Verdict{.error = ++turn % 3 != 0 ? EINTR : 0}; });
  ASSERT_TRUE(Write(file, 0, "text") && file.Sync() && file.Truncate(3));
  EXPECT_EQ(Read(file, 0, 3), "tex");
}

TEST_F(RawFileTest, WhereAFileSystemRefusesADirectTransferTheCacheServes) {
  const RawFile file = Open("f", Mode::kCreate, /*direct=*/true);
  const ScriptedFaults faults([&](const FileOperation& operation) {
    return FileFaults::Verdict{.error =
                                   file.direct() && operation.descriptor == file.descriptor() ? EINVAL : 0};
  });
  const AlignedBytes written(4096, 'x');
  ASSERT_TRUE(file.PWrite(0, written.span()));
  const AlignedBytes read(4096);
  ASSERT_TRUE(file.PRead(0, read.span()));
  EXPECT_EQ(std::memcmp(read.span().data(), written.span().data(), 4096), 0);
}

TEST_F(RawFileTest, EveryRefusalOfTheSystemIsAnErrorThatNamesThePath) {
  Put("f", "text");
  const auto attempts = [&]() -> std::vector<std::function<Status()>> {
    const auto opened = [&](const std::function<Status(RawFile&)>& use) -> Status {
      LH_ASSIGN(RawFile file, RawFile::Open(Path("f"), {.mode = Mode::kWrite}));
      return use(file);
    };
    return {[=] { return opened([](RawFile& f) { return Write(f, 0, "x"); }); },
            [=] { return opened([](RawFile& f) { return f.PRead(0, AlignedBytes(4096).span().first(2)); }); },
            [=] { return opened([](RawFile& f) { return f.Sync(); }); },
            [=] { return opened([](RawFile& f) { return f.Truncate(9); }); },
            [=] { return opened([](RawFile& f) -> Status { return f.Size().map([](uint64_t) {}); }); },
            [=] { return opened([](RawFile& f) -> Status { return f.TryLock().map([](bool) {}); }); },
            [=, this] {
              return opened([this](RawFile& f) -> Status { return f.IsAt(Path("f")).map([](bool) {}); });
            },
            [this] { return RawFile::Temporary(folder_, false).map([](const RawFile&) {}); },
            [this] { return RenameFile(Path("f"), Path("f")); },
            [this] {
              Put("from", "x");
              std::filesystem::remove(Path("to"));
              return RenameFileToNew(Path("from"), Path("to"));
            },
            [this] { return RemoveFile(Path("g")); },
            [this] { return SyncFolderOf(Path("f")); },
            [this] { return FreeSpace(folder_).map([](uint64_t) {}); }};
  }();
  const int descriptors = OpenDescriptors();
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    for (int64_t failing = 0;; ++failing) {
      SCOPED_TRACE(std::to_string(i) + ", call " + std::to_string(failing));
      int64_t call = 0;
      const ScriptedFaults faults([&](const FileOperation& operation) {
        // A temporary takes its second way where the first fails: that one fails too.
        const bool last = operation.path.find("/.longheads-") != std::string_view::npos;
        return FileFaults::Verdict{.error = call++ == failing || (last && failing == 0) ? EIO : 0};
      });
      const Status status = attempts[i]();
      if (call <= failing) {
        EXPECT_TRUE(status);
        break;
      }
      ExpectError(status, ErrorKind::kIo, "Input/output error");
      EXPECT_EQ(status.error().message.find(folder_), 0u) << status.error().message;
    }
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(Get("f").substr(1, 3), "ext");
}

TEST(FileError, NeedsNoMemoryForItsSentence) {
  EXPECT_EQ(FileError("/some/where", "read it", EIO).kind, ErrorKind::kIo);
  for (int64_t k = 1;; ++k) {
    FailAllocation(k);
    const Error error = FileError("/some/where/that/takes/more/than/a/short/string", "read it", ENOSPC);
    const bool failed = AllocationFailed();
    FailAllocation(0);
    EXPECT_EQ(error.kind, failed ? ErrorKind::kOutOfMemory : ErrorKind::kIo) << k;
    EXPECT_FALSE(error.message.empty());
    if (!failed) break;
  }
}

TEST_F(RawFileTest, AFullDiskSaysWhatToDo) {
  const RawFile file = Open("f", Mode::kCreate);
  const ScriptedFaults faults([](const FileOperation&) { return FileFaults::Verdict{.error = ENOSPC}; });
  ExpectError(Write(file, 5, "x"), ErrorKind::kIo,
              "f: cannot write 1 B at offset 5: No space left on device; make room");
}

TEST_F(RawFileTest, ALockIsOnesOwnUntilItsFileCloses) {
  RawFile first = Open("f", Mode::kCreate);
  EXPECT_TRUE(*first.TryLock());
  EXPECT_TRUE(*first.TryLock());  // has it already
  const RawFile second = Open("f", Mode::kWrite);
  EXPECT_FALSE(*second.TryLock());
  first = RawFile();
  EXPECT_TRUE(*second.TryLock());
}

TEST_F(RawFileTest, ALockEndsWithItsProcess) {
  Put("f", "");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto file = RawFile::Open(Path("f"), {.mode = Mode::kWrite});
    const char got = file && *file->TryLock() ? 'y' : 'n';
    if (write(ready[1], &got, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char got = 0;
  ASSERT_EQ(read(ready[0], &got, 1), 1);
  EXPECT_EQ(got, 'y');
  const RawFile file = Open("f", Mode::kWrite);
  EXPECT_FALSE(*file.TryLock());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(*file.TryLock());
  close(ready[0]);
  close(ready[1]);
}

TEST_F(RawFileTest, KnowsWhetherAPathStillNamesIt) {
  const RawFile file = Open("f", Mode::kCreate);
  EXPECT_TRUE(*file.IsAt(Path("f")));
  ASSERT_TRUE(RenameFile(Path("f"), Path("g")));
  EXPECT_FALSE(*file.IsAt(Path("f")));
  EXPECT_TRUE(*file.IsAt(Path("g")));
  Put("other", "x");
  ASSERT_TRUE(RenameFile(Path("other"), Path("g")));
  EXPECT_FALSE(*file.IsAt(Path("g")));
}

TEST_F(RawFileTest, NamesAreGivenTakenAndSynced) {
  Put("f", "new");
  Put("g", "old");
  ASSERT_TRUE(RenameFile(Path("f"), Path("g")) && SyncFolderOf(Path("g")));
  EXPECT_EQ(Get("g"), "new");
  EXPECT_EQ(FilesInFolder(), 1u);
  ASSERT_TRUE(RemoveFile(Path("g")) && RemoveFile(Path("g")));
  EXPECT_EQ(FilesInFolder(), 0u);
  ExpectError(RenameFile(Path("f"), Path("g")), ErrorKind::kIo, "cannot give it the name");
  ASSERT_TRUE(SyncFolderOf("a name without a folder"));
}

TEST_F(RawFileTest, ATemporaryHasNoName) {
  for (const bool named_first : {false, true}) {
    const ScriptedFaults faults([&](const FileOperation& operation) {
      return FileFaults::Verdict{
          .error =
              named_first && operation.path == folder_ && operation.call == FileCall::kOpen ? EOPNOTSUPP : 0};
    });
    auto file = RawFile::Temporary(folder_, /*direct=*/true);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(FilesInFolder(), 0u);
    ASSERT_TRUE(file->PWrite(4096, AlignedBytes(4096, 'x').span()));
    EXPECT_EQ(Read(*file, 4095, 2), std::string("\0x", 2));
    EXPECT_EQ(faults.Count(FileCall::kRemove), named_first ? 1 : 0);
  }
}

TEST_F(RawFileTest, AFileForItsOwnerIsOpenedByNobodyElse) {
  ASSERT_TRUE(RawFile::Open(Path("f"), {.mode = Mode::kCreate, .owner_only = true}));
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(Path("f")).permissions() & (perms::group_all | perms::others_all),
            perms::none);
}

TEST_F(RawFileTest, WhatAKilledProcessLeftOfATemporaryIsSwept) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof(host) - 1), 0);
  const std::string prefix = std::string(".longheads-pages-") + host + "-";
  const std::string living = prefix + std::to_string(getppid()) + "-7";
  // Another host's processes are none here, and not all files with a process in their names are pages.
  const std::string elsewhere =
      ".longheads-pages-not-" + std::string(host) + "-" + std::to_string(gone) + "-0";
  const std::string output = ".longheads-" + std::to_string(gone) + "-0";
  for (const std::string& name :
       {prefix + std::to_string(gone) + "-0", living, elsewhere, output, prefix, prefix + "x-1"}) {
    Put(name, "");
  }
  const ScriptedFaults faults([&](const FileOperation& operation) {
    return FileFaults::Verdict{
        .error = operation.path == folder_ && operation.call == FileCall::kOpen ? EOPNOTSUPP : 0};
  });
  ASSERT_TRUE(RawFile::Temporary(folder_, /*direct=*/false));
  EXPECT_EQ(FilesInFolder(), 5u);
  for (const std::string& name : {living, elsewhere, output}) {
    EXPECT_TRUE(std::filesystem::exists(Path(name))) << name;
  }
}

TEST_F(RawFileTest, ThreadsReadAndWriteOneFileAtOnce) {
  const RawFile file = Open("f", Mode::kCreate, /*direct=*/true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&file, t] {
      const AlignedBytes written(4096, 'a' + t);
      const AlignedBytes read(4096);
      for (uint64_t i = 0; i < 50; ++i) {
        const uint64_t offset = (i * 4 + static_cast<uint64_t>(t)) * 4096;
        EXPECT_TRUE(file.PWrite(offset, written.span()) && file.PRead(offset, read.span()));
        EXPECT_EQ(std::memcmp(read.span().data(), written.span().data(), 4096), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*file.Size(), 200u * 4096);
}

TEST_F(RawFileTest, ANameThatIsTakenIsNotGivenAnew) {
  Put("f", "one");
  Put("g", "two");
  ExpectError(RenameFileToNew(Path("f"), Path("g")), ErrorKind::kIo, "cannot give it the name");
  EXPECT_EQ(Get("f"), "one");
  EXPECT_EQ(Get("g"), "two");
  ASSERT_TRUE(RenameFileToNew(Path("f"), Path("h")));
  EXPECT_EQ(Get("h"), "one");
  ExpectError(RenameFileToNew(Path("f"), Path("i")), ErrorKind::kIo, "No such file");
}

TEST_F(RawFileTest, ANameThatIsTakenIsNotGivenAnewWhereTheSystemCannotLookItself) {
  for (const int refusal : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    SCOPED_TRACE(std::strerror(refusal));
    Put("f", "one");
    Put("g", "two");
    std::filesystem::remove(Path("h"));
    int n_renames = 0;
    const ScriptedFaults faults([&](const FileOperation& operation) {
      const bool first = operation.call == FileCall::kRename && n_renames++ % 2 == 0;
      return FileFaults::Verdict{.error = first ? refusal : 0};
    });
    ExpectError(RenameFileToNew(Path("f"), Path("g")), ErrorKind::kIo, "File exists");
    EXPECT_EQ(Get("f") + Get("g"), "onetwo");
    const Status renamed = RenameFileToNew(Path("f"), Path("h"));
    ASSERT_TRUE(renamed) << renamed.error().message;
    EXPECT_EQ(Get("h"), "one");
    EXPECT_EQ(n_renames, 4);
  }
}

TEST_F(RawFileTest, KnowsWhatLiesInMemory) {
  EXPECT_FALSE(LiesInMemory("/proc"));
  EXPECT_FALSE(LiesInMemory(Path("none")));
  struct stat shared {
  }, around{};
  if (stat("/dev/shm", &shared) == 0 && stat("/dev", &around) == 0 && shared.st_dev != around.st_dev) {
    EXPECT_TRUE(LiesInMemory("/dev/shm"));
  }
}

TEST_F(RawFileTest, KnowsWhereTheCacheCannotBePassed) {
  EXPECT_EQ(RefusesDirect(folder_), !RawFile::Temporary(folder_, /*direct=*/true)->direct());
  EXPECT_FALSE(RefusesDirect(Path("none")));
  const ScriptedFaults faults([](const FileOperation& operation) {
    return FileFaults::Verdict{.error = operation.call == FileCall::kReopenDirect ? EINVAL : 0};
  });
  EXPECT_TRUE(RefusesDirect(folder_));
}

TEST_F(RawFileTest, KnowsTheFreeSpace) {
  const auto space = FreeSpace(folder_);
  ASSERT_TRUE(space);
  EXPECT_GT(*space, 0u);
  ExpectError(FreeSpace(Path("none")), ErrorKind::kIo, "none: cannot ask for the free space");
}

}  // namespace
}  // namespace longheads
