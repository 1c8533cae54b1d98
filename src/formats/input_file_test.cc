#include "formats/input_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace longheads {
namespace {

class InputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/longheads-input-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

TEST_F(InputFileTest, GivesTheBytesAsTheyAre) {
  std::string text("a\r\n\0\xff", 5);
  text.append(100000, 'x');
  EXPECT_EQ(*ReadFile(Put("all", text)), text);
  EXPECT_EQ(*ReadUtf8File(Put("empty", "")), "");
  EXPECT_EQ(*ReadUtf8File(Put("text",
                              "Gr\xc3\xbc\xc3\x9f"
                              "e")),
            "Gr\xc3\xbc\xc3\x9f"
            "e");
}

TEST_F(InputFileTest, RefusesWithTheNameAndTheReason) {
  const auto refused = [](const Result<std::string>& result, const std::string& words) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  };
  refused(ReadFile(folder_ / "none"), "none: there is no such file; check the path");
  refused(ReadFile(folder_), "is a directory");
  refused(ReadUtf8File(Put("latin",
                           "Gr\xfc\xdf"
                           "e")),
          "byte 0xFC at offset 2");
}

}  // namespace
}  // namespace longheads
