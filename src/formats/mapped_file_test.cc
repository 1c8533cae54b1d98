#include "formats/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace longheads {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "longheads_mapped_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  // The message begins with the path; the kind is kInvalidInput.
  static std::string Refusal(const std::string& path) {
    const Result<MappedFile> file = MappedFile::Open(path);
    if (file) return "no error";
    EXPECT_EQ(file.error().kind, ErrorKind::kInvalidInput);
    EXPECT_EQ(file.error().message.find(path), 0u);
    return file.error().message.substr(path.size());
  }

  std::string directory_;
};

TEST_F(MappedFileTest, HoldsTheBytesOfTheFile) {
  Result<MappedFile> file = MappedFile::Open(Write("f", "bytes"));
  ASSERT_TRUE(file) << file.error().message;
  const MappedFile moved = std::move(*file);
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()), "bytes");
}

TEST_F(MappedFileTest, FollowsLinks) {
  std::filesystem::create_symlink(Write("f", "bytes"), Path("link"));
  EXPECT_TRUE(MappedFile::Open(Path("link")));
}

TEST_F(MappedFileTest, RefusesWhatIsMissing) {
  EXPECT_EQ(Refusal(Path("nothing")), ": there is no such file; check the path");
  EXPECT_EQ(Refusal(Write("f", "x") + "/below"), ": there is no such file; check the path");
  EXPECT_EQ(Refusal(""), ": there is no such file; check the path");
}

TEST_F(MappedFileTest, RefusesAnEmptyFile) {
  EXPECT_EQ(Refusal(Write("f", "")), " is empty (0 bytes); download or copy it again");
}

TEST_F(MappedFileTest, RefusesADirectory) {
  EXPECT_EQ(Refusal(directory_), " is a directory; name the model file in it");
}

TEST_F(MappedFileTest, RefusesAPipeWithoutWaitingForIt) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_NE(Refusal(Path("pipe")).find("is a pipe or a device"), std::string::npos);
}

TEST_F(MappedFileTest, RefusesADevice) {
  EXPECT_NE(Refusal("/dev/null").find("is a pipe or a device"), std::string::npos);
}

TEST_F(MappedFileTest, RefusesAnUnreadableFile) {
  const std::string path = Write("f", "bytes");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  const uid_t user = geteuid();
  if (user == 0 && seteuid(65534) != 0)
    GTEST_SKIP() << "root reads everything, and cannot become another user";
  const std::string refusal = Refusal(path);
  ASSERT_EQ(seteuid(user), 0);
  EXPECT_NE(refusal.find("no permission to read it"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace longheads
