// Power that fails at any moment: whatever part of what was not synced is lost, the old text or the new one
// is there, and every commit that had ended.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/context_scenarios.h"
#include "tests/support/written_files.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

class ContextPowerLossTest : public testing::TestWithParam<int> {
 protected:
  ContextPowerLossTest() : scenario_(ContextScenario::All()[static_cast<std::size_t>(GetParam())]) {}

  void SetUp() override {
    // Thousands of small files, of which nothing has to reach a disk.
    std::string pattern =
        (fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) + "longheads_power_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : {"written", "lost"}) fs::create_directory(folder_ / name);
    const Status prepared = scenario_.Prepare(Path("written"));
    ASSERT_TRUE(prepared) << prepared.error().message;
    written_ = std::make_unique<WrittenFiles>(folder_ / "written");
    const Status run = scenario_.Run(Path("written"), [&] { written_->Mark(); });
    written_->Stop();
    ASSERT_TRUE(run) << run.error().message;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& folder) const { return folder_ / folder / "book.lhctx"; }

  ContextScenario scenario_;
  fs::path folder_;
  std::unique_ptr<WrittenFiles> written_;
};

TEST_P(ContextPowerLossTest, LeavesTheOldTextOrTheNewOneAndWhatWasCommitted) {
  const FolderImage undisturbed = ReadFolder(folder_ / "written");
  int n_checked = 0;
  const bool all = written_->ForEachPowerLoss({}, [&](const FolderImage& image, int marks) {
    WriteFolder(folder_ / "lost", image);
    const std::string problem = scenario_.Problem(Path("lost"), marks);
    EXPECT_EQ(problem, "") << "after " << marks << " steps";
    // Going on ends with the very same file. (One that was finished is checked for its text: before its
    // writer says so, its second superblock may be lost.)
    if (++n_checked % 7 == 0 && !scenario_.IsNew(Path("lost"))) {
      WriteFolder(folder_ / "lost", image);
      const Status recovered = scenario_.Recover(Path("lost"));
      EXPECT_TRUE(recovered) << recovered.error().message;
      EXPECT_TRUE(ReadFolder(folder_ / "lost") == undisturbed) << "after " << marks << " steps";
    }
    return !HasFailure();
  });
  EXPECT_TRUE(all);
  EXPECT_GT(n_checked, 100);
}

// None could be left out: this test would notice.
TEST_P(ContextPowerLossTest, EverySyncIsNeeded) {
  ASSERT_GT(written_->n_syncs(), 3);
  for (int i = 0; i < written_->n_syncs(); ++i) {
    const bool survives = written_->ForEachPowerLoss(i, [&](const FolderImage& image, int marks) {
      WriteFolder(folder_ / "lost", image);
      return scenario_.Problem(Path("lost"), marks).empty();
    });
    EXPECT_FALSE(survives) << "sync " << i << " of " << written_->n_syncs() << " makes no difference";
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ContextPowerLossTest, testing::Range(0, 4), [](const auto& instance) {
  std::string name = ContextScenario::All()[static_cast<std::size_t>(instance.param)].name();
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace longheads
