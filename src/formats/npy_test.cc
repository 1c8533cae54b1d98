#include "formats/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace longheads {
namespace {

class NpyTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/longheads-npy-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ / name; }

  std::filesystem::path folder_;
};

// A file with a header of our choice.
std::string File(std::string dictionary, std::string data = "", char major = 1) {
  std::string file("\x93NUMPY");
  file +=
      {major, '\0', static_cast<char>(dictionary.size() % 256), static_cast<char>(dictionary.size() / 256)};
  if (major == 2) file += {'\0', '\0'};
  return file + dictionary + data;
}

Result<NpyArray> Parse(const std::string& file) {
  return ParseNpy(std::as_bytes(std::span(file.data(), file.size())), "x.npy");
}

template <typename T>
void ExpectRoundTrip(const std::string& path, const std::vector<int64_t>& shape,
                     const std::vector<T>& values) {
  ASSERT_TRUE(WriteNpy<T>(path, shape, values));
  const Result<NpyArray> array = ReadNpy(path);
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->shape, shape);
  ASSERT_NE(array->As<T>(), nullptr);
  EXPECT_EQ(*array->As<T>(), values);
}

TEST_F(NpyTest, ReadsBackWhatItWrote) {
  ExpectRoundTrip<float>(Path("a"), {2, 3}, {1, -2.5f, 3e-40f, 4, 5, 6});
  ExpectRoundTrip<int32_t>(Path("a"), {4}, {1, -2, INT32_MIN, INT32_MAX});
  ExpectRoundTrip<int64_t>(Path("a"), {}, {INT64_MIN});
  ExpectRoundTrip<uint32_t>(Path("a"), {1, 2, 1}, {7, UINT32_MAX});
  ExpectRoundTrip<float>(Path("a"), {3, 0, 2}, {});
  ExpectRoundTrip<float>(Path("a"), std::vector<int64_t>(32, 1), {5});
}

TEST_F(NpyTest, AlignsElementsAsNumPyDoes) {
  const float value = 1;
  ASSERT_TRUE(WriteNpy<float>(Path("a"), std::vector<int64_t>{1}, std::span(&value, 1)));
  EXPECT_EQ(std::filesystem::file_size(Path("a")), 128u + 4u);
}

TEST_F(NpyTest, ReadsWhatNumPyWrote) {
  const Result<NpyArray> argmax = ReadNpy(LONGHEADS_SOURCE_DIR "/tests/golden/llama/default.argmax.npy");
  ASSERT_TRUE(argmax) << argmax.error().message;
  EXPECT_EQ(argmax->shape, (std::vector<int64_t>{62}));
  ASSERT_NE(argmax->As<int32_t>(), nullptr);
  EXPECT_EQ((*argmax->As<int32_t>())[0], 29);
  EXPECT_EQ(argmax->As<float>(), nullptr);
}

TEST(ParseNpy, ReadsVersionTwoAndFreeSpacing) {
  const std::string data("\1\0\0\0\2\0\0\0", 8);
  for (const char* const text :
       {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n",
        "{\"shape\":(2),\"fortran_order\":True,\"descr\":\"<i4\"}",  // one dimension has no order
        "  { 'shape' : ( 2 , ) ,'descr':'<i4' , 'fortran_order' : False}  \n"}) {
    for (const char major : {1, 2}) {
      const Result<NpyArray> array = Parse(File(text, data, major));
      ASSERT_TRUE(array) << array.error().message << text;
      EXPECT_EQ(*array->As<int32_t>(), (std::vector<int32_t>{1, 2}));
    }
  }
}

TEST(ParseNpy, RefusesWithAWayOut) {
  const auto header = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  };
  const std::string good = header("'<f4'", "False", "(1,)");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "numpy.save"},
      {"PK\3\4 an archive", "numpy.save"},
      {std::string("\x93NUMPY\3\0\0\0", 10), "3.0"},
      {std::string("\x93NUMPY\2\0\0\0", 10), "damaged"},
      {File(header("'<f8'", "False", "(1,)"), "12345678"), "<f8"},
      {File(header("'>f4'", "False", "(1,)"), "1234"), "little-endian"},
      {File(header("'|O'", "False", "(1,)"), "1234"), "|O"},
      {File(header("[('a', '<f4')]", "False", "(1,)"), "1234"), "('a', '<f4')"},
      {File(header("'<f4'", "True", "(1, 1)"), "1234"), "ascontiguousarray"},
      {File(good, "123"), "cut off"},
      {File(good, "12345"), "cut off"},
      {File(header("'<f4'", "False", "(2305843009213693952,)"), "1234"), "cut off"},
      {File(header("'<f4'", "False", "(4294967296, 4294967296, 4)"), "1234"), "cut off"},
      {File(header("'<f4'", "False", "(0, 9223372036854775807, 4)"), "1234"), "cut off"},
      {File(header("'<f4'", "False", "(9223372036854775808,)"), "1234"), "damaged"},
      {File(header("'<f4'", "False", "(-1,)"), "1234"), "damaged"},
      {File(header("'<f4'", "False", "(1"), "1234"), "damaged"},
      {File(header("'<f4'", "False", "1"), "1234"), "damaged"},
      {File(header("'<f4'", "Perhaps", "(1,)"), "1234"), "damaged"},
      {File(header("'<f4", "False", "(1,)"), "1234"), "damaged"},
      {File(header("[1", "False", "(1,)"), "1234"), "damaged"},
      {File(good + " {}", "1234"), "damaged"},
      {File("{'descr': '<f4', 'shape': (1,)}", "1234"), "damaged"},
      {File("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "1234"), "damaged"},
      {File("{'colour': '<f4'}", "1234"), "damaged"},
      {File("", "1234"), "damaged"},
      {File(header("'<f4'", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"),
            "1234"),
       "damaged"},
  };
  for (const auto& [file, expected] : cases) {
    const Result<NpyArray> array = Parse(file);
    ASSERT_FALSE(array) << file;
    EXPECT_EQ(array.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(array.error().message.find(expected), std::string::npos) << array.error().message;
    EXPECT_NE(array.error().message.find("x.npy"), std::string::npos) << array.error().message;
  }
}

TEST(ParseNpy, RefusesEveryCutOfAFile) {
  const std::string whole = File("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "12345678");
  ASSERT_TRUE(Parse(whole));
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(Parse(whole.substr(0, n))) << n;
}

TEST_F(NpyTest, RefusesWhatIsNoFile) {
  EXPECT_NE(ReadNpy(Path("none")).error().message.find("No such file"), std::string::npos);
  EXPECT_NE(ReadNpy(folder_).error().message.find("no regular file"), std::string::npos);
  std::ofstream(Path("empty")).close();
  EXPECT_NE(ReadNpy(Path("empty")).error().message.find("no .npy file"), std::string::npos);
  EXPECT_NE(ReadNpy("/dev/null").error().message.find("no regular file"), std::string::npos);
}

TEST_F(NpyTest, ReportsWhatTheSystemRefusesToWrite) {
  const std::vector<float> values(100'000);
  const std::vector<int64_t> shape = {100'000};
  EXPECT_EQ(WriteNpy<float>(Path("none/a"), shape, values).error().kind, ErrorKind::kIo);
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Status large = WriteNpy<float>("/dev/full", shape, values);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().kind, ErrorKind::kIo);
  EXPECT_NE(large.error().message.find("No space left"), std::string::npos) << large.error().message;
  // So small that only closing tells.
  const Status small = WriteNpy<float>("/dev/full", std::vector<int64_t>{1}, std::span(values).first(1));
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("No space left"), std::string::npos) << small.error().message;
}

TEST_F(NpyTest, AnArrayThatIsNotClosedLeavesTheOldFile) {
  const std::vector<float> values = {1, 2, 3};
  ASSERT_TRUE(WriteNpy<float>(Path("a"), std::vector<int64_t>{3}, values));
  {
    auto writer = NpyWriter<float>::Create(Path("a"), std::vector<int64_t>{4});
    ASSERT_TRUE(writer && writer->Append(values));
  }
  EXPECT_EQ(*ReadNpy(Path("a"))->As<float>(), values);
}

TEST_F(NpyTest, RefusesShapesThatDoNotFit) {
  const std::vector<int64_t> shape = {int64_t{1} << 32, int64_t{1} << 32};
  EXPECT_EQ(NpyWriter<float>::Create(Path("a"), shape).error().kind, ErrorKind::kInvalidInput);
}

}  // namespace
}  // namespace longheads
