#include "formats/output_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace longheads {
namespace {

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/longheads-output-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }
  void Put(const std::string& name, const std::string& text) const { std::ofstream(Path(name)) << text; }
  std::string Get(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t FilesInFolder() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  mode_t ModeOf(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(stat(Path(name).c_str(), &info), 0);
    return info.st_mode & 07777;
  }

  std::filesystem::path folder_;
};

Status Write(OutputFile& file, const std::string& text) { return file.Write(std::as_bytes(std::span(text))); }

TEST_F(OutputFileTest, TakesItsNameOnlyWhenItIsWhole) {
  Put("old", "old");
  for (const char* const name : {"old", "new"}) {
    auto file = OutputFile::Create(Path(name));
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(Write(*file, "written "));
    EXPECT_EQ(Get("old"), name == std::string("old") ? "old" : "written whole");
    EXPECT_FALSE(std::filesystem::exists(Path("new")));
    ASSERT_TRUE(Write(*file, "whole"));
    ASSERT_TRUE(file->Commit());
    EXPECT_EQ(Get(name), "written whole");
  }
  EXPECT_EQ(FilesInFolder(), 2u);
}

TEST_F(OutputFileTest, ACallerThatGivesUpLeavesTheOldFileAndNothingElse) {
  Put("old", "old");
  for (const char* const name : {"old", "new"}) {
    auto file = OutputFile::Create(Path(name));
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(Write(*file, std::string(1 << 20, 'x')));
    const OutputFile moved = std::move(*file);
    EXPECT_EQ(FilesInFolder(), 2u);
  }
  EXPECT_EQ(Get("old"), "old");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(OutputFileTest, TwoWritersOfOneFileDoNotMeet) {
  auto first = OutputFile::Create(Path("a"));
  auto second = OutputFile::Create(Path("a"));
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(Write(*first, "first") && Write(*second, "second"));
  ASSERT_TRUE(second->Commit());
  EXPECT_EQ(Get("a"), "second");
  ASSERT_TRUE(first->Commit());
  EXPECT_EQ(Get("a"), "first");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(OutputFileTest, FollowsALinkAndKeepsTheModeOfWhatItReplaces) {
  std::filesystem::create_directory(folder_ / "elsewhere");
  Put("elsewhere/target", "old");
  ASSERT_EQ(chmod(Path("elsewhere/target").c_str(), 0640), 0);
  std::filesystem::create_symlink("elsewhere/target", Path("link"));
  auto file = OutputFile::Create(Path("link"));
  ASSERT_TRUE(file && Write(*file, "new") && file->Commit());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(Get("elsewhere/target"), "new");
  EXPECT_EQ(ModeOf("elsewhere/target"), 0640u);
}

TEST_F(OutputFileTest, ANewFileHasTheModeOfAnyOther) {
  Put("other", "");
  auto file = OutputFile::Create(Path("new"));
  ASSERT_TRUE(file && file->Commit());
  EXPECT_EQ(ModeOf("new"), ModeOf("other"));
}

TEST_F(OutputFileTest, WritesADeviceAsItStands) {
  auto file = OutputFile::Create("/dev/null");
  ASSERT_TRUE(file && Write(*file, "text") && file->Commit());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(OutputFileTest, RefusesWhatTheSystemDoesNotLetItWrite) {
  const auto refuses = [](const std::string& path, const std::string& words) {
    const auto file = OutputFile::Create(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().kind, ErrorKind::kIo);
    EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
    EXPECT_NE(file.error().message.find(words), std::string::npos) << file.error().message;
  };
  refuses(Path("no/such/folder"), "No such file");
  refuses(folder_, "directory");
  if (geteuid() == 0) GTEST_SKIP() << "root may write everything";
  Put("kept", "old");
  ASSERT_EQ(chmod(Path("kept").c_str(), 0444), 0);
  refuses(Path("kept"), "denied");
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  refuses(Path("new"), "denied");
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
}

// A file that may not grow stands for a disk that is full.
TEST_F(OutputFileTest, AFullDiskLeavesTheOldFileAndNothingElse) {
  Put("old", "old");
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const std::size_t size : {std::size_t{100}, std::size_t{1} << 20}) {  // told at the end, and before
    auto file = OutputFile::Create(Path("old"));
    ASSERT_TRUE(file) << file.error().message;
    const struct rlimit limit { .rlim_cur = 10, .rlim_max = before.rlim_max };
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    Status status = Write(*file, std::string(size, 'x'));
    if (status) status = file->Commit();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kIo);
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(Get("old"), "old");
  EXPECT_EQ(FilesInFolder(), 1u);
}

}  // namespace
}  // namespace longheads
