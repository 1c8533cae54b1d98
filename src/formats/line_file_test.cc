#include "formats/line_file.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zip.h>

#include <filesystem>
#include <fstream>

#include "formats/zip_file.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

std::string TestPath(const std::string& name) {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  return (fs::temp_directory_path() /
          (std::string("line_file-") + test->name() + "-" + std::to_string(::getpid()) + name))
      .string();
}

class LineFiles : public testing::Test {
 protected:
  ~LineFiles() override {
    for (const std::string& path : made_) fs::remove(path);
  }

  std::string Write(const std::string& bytes) {
    made_.push_back(TestPath(".txt"));
    std::ofstream(made_.back(), std::ios::binary) << bytes;
    return made_.back();
  }

  // An archive with one file in a folder.
  std::string Zip(const std::string& name, const std::string& bytes) {
    made_.push_back(TestPath(".zip"));
    zip_t* const archive = zip_open(made_.back().c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    EXPECT_NE(archive, nullptr);
    zip_dir_add(archive, "data", 0);
    zip_source_t* const source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    EXPECT_GE(zip_file_add(archive, name.c_str(), source, 0), 0);
    EXPECT_EQ(zip_close(archive), 0);
    return made_.back();
  }

  std::vector<std::string> made_;
};

TEST_F(LineFiles, LinesComeInAnyOrderAndBlankOnesAreNotCounted) {
  const std::string path = Write("first\r\n\n  \nsecond\nlast");
  const Result<LineFile> file = LineFile::Open(path);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->n_lines(), 3);
  EXPECT_EQ(*file->Line(2), "last");
  EXPECT_EQ(*file->Line(0), "first\r");
  EXPECT_EQ(*file->Line(1), "second");
  EXPECT_EQ(file->PlaceOf(1), path + ", line 4");
}

TEST_F(LineFiles, AnEmptyFileHasNoLines) { EXPECT_EQ(LineFile::Open(Write(""))->n_lines(), 0); }

TEST_F(LineFiles, ZippedFilesReadAlike) {
  const std::string path = Zip("data/a.jsonl", "one\n\ntwo\n");
  EXPECT_EQ(*ZipFileNames(path), std::vector<std::string>{"data/a.jsonl"});
  const Result<LineFile> file = LineFile::OpenZipped(path, "data/a.jsonl");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->n_lines(), 2);
  EXPECT_EQ(*file->Line(1), "two");
  EXPECT_EQ(file->PlaceOf(1), path + ": data/a.jsonl, line 3");
}

TEST_F(LineFiles, WhatCannotBeReadIsSaid) {
  EXPECT_FALSE(LineFile::Open("/nowhere/a.jsonl"));
  EXPECT_NE(LineFile::Open(fs::temp_directory_path().string()).error().message.find("folder"),
            std::string::npos);
  EXPECT_NE(ZipFileNames(Write("no archive")).error().message.find("zip archive"), std::string::npos);
  const std::string path = Zip("a.jsonl", std::string(1000, 'x'));
  EXPECT_FALSE(LineFile::OpenZipped(path, "b.jsonl"));
  EXPECT_NE(ReadZippedFile(path, "a.jsonl", 999).error().message.find("larger"), std::string::npos);
  EXPECT_TRUE(ReadZippedFile(path, "a.jsonl", 1000));
}

TEST_F(LineFiles, DamagedArchivesAreRefused) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * i) + "\n";
  const std::string path = Zip("a.jsonl", text);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
  file << "damage";
  file.close();
  EXPECT_FALSE(ReadZippedFile(path, "a.jsonl", 1 << 20));
  fs::resize_file(path, fs::file_size(path) / 2);
  EXPECT_FALSE(ZipFileNames(path));
}

TEST_F(LineFiles, AFileThatBecameShorterIsAnError) {
  const std::string path = Write("one\ntwo\n");
  const Result<LineFile> file = LineFile::Open(path);
  fs::resize_file(path, 5);
  EXPECT_EQ(*file->Line(0), "one");
  EXPECT_NE(file->Line(1).error().message.find("line 2"), std::string::npos);
}

}  // namespace
}  // namespace longheads
