// A system that refuses: every call fails in turn, transfers end short, the disk is full, memory runs out at
// any allocation. Then the old text or the new one is there, whoever comes next can go on, and nothing is
// leaked.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <string>

#include "formats/context_reader.h"
#include "tests/support/allocations.h"
#include "tests/support/context_scenarios.h"
#include "tests/support/written_files.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

// The call of this number, and if `from_then_on` all of its kind after it, fails.
class FailingCall : public FileFaults {
 public:
  FailingCall(int call, int error, bool from_then_on)
      : left_(call), error_(error), from_then_on_(from_then_on) {
    InstallFileFaults(this);
  }
  ~FailingCall() override { InstallFileFaults(nullptr); }
  Verdict Before(const FileOperation& operation) override {
    if (left_-- == 0) {
      came_ = true;
      kind_ = operation.call;
      return {.error = error_};
    }
    return {.error = came_ && from_then_on_ && operation.call == kind_ ? error_ : 0};
  }
  bool came() const { return came_; }

 private:
  int left_;
  int error_;
  bool from_then_on_;
  bool came_ = false;
  FileCall kind_ = FileCall::kOpen;
};

// Reads and writes move `most` bytes and then go on: all of them, or the one of this number.
class ShortTransfers : public FileFaults {
 public:
  explicit ShortTransfers(uint64_t most, std::optional<int> only = {}) : most_(most), only_(only) {
    InstallFileFaults(this);
  }
  ~ShortTransfers() override { InstallFileFaults(nullptr); }
  Verdict Before(const FileOperation& operation) override {
    if (operation.call != FileCall::kRead && operation.call != FileCall::kWrite) return {};
    return only_ && n_++ != *only_ ? Verdict{} : Verdict{.most = most_};
  }
  bool came() const { return !only_ || n_ > *only_; }

 private:
  uint64_t most_;
  std::optional<int> only_;
  int n_ = 0;
};

int OpenDescriptors() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

class ContextFaultsTest : public testing::TestWithParam<int> {
 protected:
  ContextFaultsTest() : scenario_(ContextScenario::All()[static_cast<std::size_t>(GetParam())]) {}
  void SetUp() override {
    std::string pattern =
        (fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) + "longheads_faults_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "book.lhctx";
    ASSERT_TRUE(scenario_.Prepare(path_));
    old_ = ReadFolder(folder_);
    ASSERT_TRUE(scenario_.Run(path_, [] {}));
    new_ = ReadFolder(folder_);
    WriteFolder(folder_, old_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // After a run of which so many steps ended well.
  void ExpectSoundAndRecoverable(int steps) {
    const FolderImage left = ReadFolder(folder_);
    ASSERT_EQ(scenario_.Problem(path_, steps), "");
    WriteFolder(folder_, left);  // looking may have cut off what lay behind
    const Status recovered = scenario_.Recover(path_);
    ASSERT_TRUE(recovered) << recovered.error().message;
    ASSERT_TRUE(scenario_.IsNew(path_));
    ASSERT_EQ(ReadFolder(folder_).size(), 1u);
    WriteFolder(folder_, old_);
  }

  ContextScenario scenario_;
  fs::path folder_;
  fs::path path_;
  FolderImage old_;
  FolderImage new_;
};

TEST_P(ContextFaultsTest, EveryCallThatFailsLeavesTheOldTextOrTheNewOne) {
  const int descriptors = OpenDescriptors();
  for (const int error : {EIO, ENOSPC, EACCES}) {
    for (const bool from_then_on : {false, true}) {
      int n_failed = 0;
      for (int call = 0;; ++call) {
        SCOPED_TRACE("call " + std::to_string(call) + ": " + std::strerror(error));
        int steps = 0;
        Status status;
        bool came = false;
        {
          const FailingCall fault(call, error, from_then_on);
          status = scenario_.Run(path_, [&] { ++steps; });
          came = fault.came();
        }
        if (!came) {
          ASSERT_TRUE(status);
          WriteFolder(folder_, old_);
          break;
        }
        if (!status) {
          ++n_failed;
          ASSERT_LT(steps, scenario_.n_steps());
          ASSERT_EQ(status.error().message.find(folder_), 0u) << status.error().message;
        } else {
          ASSERT_EQ(steps, scenario_.n_steps());
        }
        ASSERT_NO_FATAL_FAILURE(ExpectSoundAndRecoverable(steps));
      }
      EXPECT_GT(n_failed, 30);
    }
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_P(ContextFaultsTest, EveryCallThatFailsWhileReadingIsAnError) {
  WriteFolder(folder_, new_);
  const int descriptors = OpenDescriptors();
  for (int call = 0;; ++call) {
    const FailingCall fault(call, EIO, /*from_then_on=*/false);
    const auto reader = ContextReader::Open(path_, {});
    if (!fault.came()) {
      ASSERT_TRUE(reader);
      EXPECT_GT(call, 10);
      break;
    }
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().kind, ErrorKind::kIo);
    EXPECT_EQ(reader.error().message.find(path_), 0u) << reader.error().message;
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_P(ContextFaultsTest, ShortTransfersMakeNoDifference) {
  for (const uint64_t most : {uint64_t{7}, uint64_t{4000}}) {
    const ShortTransfers faults(most);
    const Status status = scenario_.Run(path_, [] {});
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_TRUE(scenario_.IsNew(path_));
    ASSERT_TRUE(ReadFolder(folder_) == new_);
    WriteFolder(folder_, old_);
  }
}

TEST_P(ContextFaultsTest, AnyTransferMayBeShort) {
  for (int transfer = 0;; ++transfer) {
    SCOPED_TRACE(transfer);
    const ShortTransfers fault(1, transfer);
    const Status status = scenario_.Run(path_, [] {});
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_TRUE(ReadFolder(folder_) == new_);
    WriteFolder(folder_, old_);
    if (!fault.came()) {
      EXPECT_GT(transfer, 20);
      break;
    }
  }
}

// Every write is refused while the disk is full; the same writer goes on when there is room.
TEST_P(ContextFaultsTest, AWriterGoesOnWhenAFullDiskHasRoomAgain) {
  class FullDisk : public FileFaults {
   public:
    explicit FullDisk(int writes) : left_(writes) { InstallFileFaults(this); }
    ~FullDisk() override { InstallFileFaults(nullptr); }
    Verdict Before(const FileOperation& operation) override {
      return {.error = operation.call == FileCall::kWrite && left_-- <= 0 ? ENOSPC : 0};
    }

   private:
    int left_;
  };
  WriteFolder(folder_, {});
  const SampleContext sample(GetParam());
  auto writer = ContextWriter::Create(path_, SampleContext::Header(), {});
  ASSERT_TRUE(writer && sample.Commit(**writer, 0, 3));
  for (int writes = 0; writes < 8;
       ++writes) {  // pages and sections; then comes the superblock, which has room
    const FullDisk full(writes);
    const Status status = sample.Commit(**writer, 3, 6);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kIo);
    EXPECT_NE(status.error().message.find("No space left on device; make room"), std::string::npos);
  }
  ASSERT_TRUE(sample.Commit(**writer, 3, 6) && (*writer)->Finish());
  const auto reader = ContextReader::Open(path_, {});
  ASSERT_TRUE(reader);
  EXPECT_EQ(sample.Difference(*reader, {3, 6}), "");
}

// The first commit too, whatever of it the disk has no room for: what was written before stays writable.
TEST_P(ContextFaultsTest, AFirstCommitIsTriedAgainWhenAFullDiskHasRoom) {
  class Disk : public FileFaults {
   public:
    Disk() { InstallFileFaults(this); }
    ~Disk() override { InstallFileFaults(nullptr); }
    // Room for so many writes where nothing was written before.
    void SetRoom(int writes) { room_ = writes; }
    Verdict Before(const FileOperation& operation) override {
      if (operation.call != FileCall::kWrite) return {};
      std::set<uint64_t> blocks = written_;
      for (uint64_t block = operation.offset / 4096; block * 4096 < operation.offset + operation.size;
           ++block)
        blocks.insert(block);
      if (blocks.size() == written_.size()) return {};
      if (room_-- <= 0) return {.error = ENOSPC};
      written_ = std::move(blocks);
      return {};
    }

   private:
    int room_ = std::numeric_limits<int>::max();
    std::set<uint64_t> written_;
  };
  WriteFolder(folder_, {});
  const SampleContext sample(GetParam());
  int n_refused = 0;
  {
    Disk disk;
    auto writer = ContextWriter::Create(path_, SampleContext::Header(), {});
    ASSERT_TRUE(writer);
    for (Status status = MakeError(ErrorKind::kIo, ""); !status; n_refused += !status) {
      disk.SetRoom(n_refused);
      status = sample.Commit(**writer, 0, 3);
      if (!status) {
        ASSERT_NE(status.error().message.find("No space left on device; make room"), std::string::npos)
            << status.error().message;
      }
    }
    disk.SetRoom(std::numeric_limits<int>::max());
    ASSERT_TRUE(sample.Commit(**writer, 3, 6) && (*writer)->Finish());
  }
  EXPECT_GE(n_refused, 2);
  const auto reader = ContextReader::Open(path_, {});
  ASSERT_TRUE(reader);
  EXPECT_EQ(sample.Difference(*reader, {3, 6}), "");
}

// Memory: who opens or writes gets std::bad_alloc, which the engine turns into an error.
TEST_P(ContextFaultsTest, EveryAllocationThatFailsLeavesTheOldTextOrTheNewOne) {
  const int descriptors = OpenDescriptors();
  int n_failed = 0;
  for (int64_t k = 1;; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k) + " fails");
    int steps = 0;
    bool thrown = false;
    FailAllocation(k);
    try {
      const Status status = scenario_.Run(path_, [&] { ++steps; });
      FailAllocation(0);
      ASSERT_TRUE(status) << status.error().message;
    } catch (const std::bad_alloc&) {
      FailAllocation(0);
      thrown = true;
      ++n_failed;
    }
    if (!thrown) {
      WriteFolder(folder_, old_);
      break;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSoundAndRecoverable(steps));
  }
  EXPECT_GT(n_failed, 30);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_P(ContextFaultsTest, EveryAllocationThatFailsWhileReadingIsNoLeak) {
  WriteFolder(folder_, new_);
  const int descriptors = OpenDescriptors();
  for (int64_t k = 1;; ++k) {
    FailAllocation(k);
    try {
      const auto reader = ContextReader::Open(path_, {});
      FailAllocation(0);
      ASSERT_TRUE(reader);
      EXPECT_GT(k, 10);
      break;
    } catch (const std::bad_alloc&) {
      FailAllocation(0);
    }
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

// A disk of its own, smaller than the text: where this test may mount one (in a process with mounts of its
// own).
TEST_P(ContextFaultsTest, ARealDiskThatFillsUpLeavesTheOldText) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr int kNotPermitted = 42;
    const fs::path disk = folder_ / "disk";
    std::error_code ignored;
    fs::create_directory(disk, ignored);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      _exit(kNotPermitted);
    }
    const std::string path = disk / "book.lhctx";
    int n_refused = 0;
    for (int blocks = 1; blocks < 60; ++blocks) {
      const std::string options = "size=" + std::to_string(blocks * 4096);
      if (mount("tmpfs", disk.c_str(), "tmpfs", 0, options.c_str()) != 0) _exit(kNotPermitted);
      int steps = 0;
      const bool prepared = scenario_.Prepare(path).has_value();
      if (prepared) {
        const Status status = scenario_.Run(path, [&] { ++steps; });
        const bool full =
            !status && status.error().message.find("No space left on device") != std::string::npos;
        if (!status && !full) _exit(1);
        if (full) ++n_refused;
        const std::string problem = scenario_.Problem(path, steps);
        if (!problem.empty()) {
          std::fprintf(stderr, "%d blocks: %s\n", blocks, problem.c_str());
          _exit(2);
        }
      }
      if (umount2(disk.c_str(), MNT_DETACH) != 0) _exit(3);
    }
    _exit(n_refused > 0 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 42)
    GTEST_SKIP() << "no rights to mount a small disk; the faults above stand for it";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(Every, ContextFaultsTest, testing::Range(0, 4), [](const auto& instance) {
  std::string name = ContextScenario::All()[static_cast<std::size_t>(instance.param)].name();
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace longheads
