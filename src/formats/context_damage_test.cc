// Files that are damaged, cut, swapped about, or change while they are read: refused with a sentence, or the
// text is still the one that was saved. Never another text, and never a crash.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "formats/context_reader.h"
#include "tests/support/context_cases.h"
#include "tests/support/sample_context.h"
#include "tests/support/written_files.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
using Ends = std::vector<uint64_t>;
using Which = ContextReader::Which;

class ContextDamageTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) + "longheads_damage_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "book.lhctx";
    ASSERT_TRUE(sample_.Write(path_, ends_));
    whole_ = ReadFolder(folder_).at("book.lhctx");
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<ContextReader> Open(Which which = Which::kFinished) const {
    return ContextReader::Open(path_, {.which = which});
  }
  void Put(const Bytes& bytes) const { WriteFolder(folder_, {{"book.lhctx", bytes}}); }
  void Set(uint64_t at, std::byte value) const {
    const auto file = RawFile::Open(path_, {.mode = RawFile::Mode::kWrite});
    ASSERT_TRUE(file && file->PWrite(at, std::span(&value, 1)));
  }
  // What the file turns out to be when all of it is read.
  enum class Found { kTheText, kRefused, kDamagedInside, kAnotherText };
  Found Look() {
    const auto reader = Open();
    if (!reader) {
      EXPECT_FALSE(reader.error().message.empty());
      EXPECT_EQ(reader.error().kind, ErrorKind::kInvalidInput) << reader.error().message;
      return Found::kRefused;
    }
    // A note of damage where nothing is damaged would be an error too.
    const auto damage = reader->Verify(pool_, {});
    if (!damage) return Found::kAnotherText;
    const bool same =
        sample_.Difference(*reader, ends_).empty() && reader->header() == SampleContext::Header();
    if (same && damage->empty()) return Found::kTheText;
    if (!damage->empty()) return Found::kDamagedInside;
    return Found::kAnotherText;
  }

  const Ends ends_ = {1, 6};
  const SampleContext sample_;
  fs::path folder_;
  fs::path path_;
  Bytes whole_;
  ThreadPool pool_{1};
};

TEST_F(ContextDamageTest, EachCaseOpensOrIsRefusedWithItsSentence) {
  std::set<std::string> names;
  fs::create_directory(folder_ / "cases");
  const std::vector<ContextCase> cases = ContextCases(folder_ / "cases");
  for (const ContextCase& one : cases) {
    SCOPED_TRACE(one.name);
    EXPECT_TRUE(names.insert(one.name).second);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(one.bytes.data()),
               static_cast<std::streamsize>(one.bytes.size()));
    const auto reader = Open();
    if (one.refusal.empty()) {
      EXPECT_TRUE(reader) << reader.error().message;
    } else {
      ASSERT_FALSE(reader);
      EXPECT_EQ(reader.error().kind, ErrorKind::kInvalidInput);
      EXPECT_NE(reader.error().message.find(one.refusal), std::string::npos) << reader.error().message;
      EXPECT_EQ(reader.error().message.find(path_), 0u) << reader.error().message;
    }
    EXPECT_EQ(ExpandZeros(SqueezeZeros(one.bytes)), one.bytes);
  }
  EXPECT_GT(cases.size(), 90u);
}

// Which bytes no checksum covers is written in docs/context-file.md: what fills up a page or a checkpoint,
// and pages that were written again later.
TEST_F(ContextDamageTest, EveryFlippedByteIsFoundOrDoesNotMatter) {
  ASSERT_EQ(Look(), Found::kTheText);
  const auto reader = Open();
  ASSERT_TRUE(reader);
  Bytes covered(whole_.size());  // 1: its change must be found
  std::fill_n(covered.begin(), 3 * kContextBlock, std::byte{1});
  for (const ContextPage& page : reader->contents().pages) {
    std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(page.offset),
                SampleContext::Header().geometry.page_bytes, std::byte{1});
  }
  uint64_t n_found = 0;
  for (uint64_t at = 0; at < whole_.size(); ++at) {
    const std::byte was = whole_[at];
    // One bit, another one for each byte.
    Set(at, was ^ std::byte{1} << static_cast<int>(at % 8));
    const Found found = Look();
    ASSERT_NE(found, Found::kAnotherText) << "byte " << at;
    if (covered[at] == std::byte{1}) {
      ASSERT_NE(found, Found::kTheText) << "byte " << at;
    }
    if (found != Found::kTheText) ++n_found;
    Set(at, was);
  }
  EXPECT_EQ(Look(), Found::kTheText);
  // All that the two checkpoints hold besides.
  const auto covered_above = static_cast<uint64_t>(std::count(covered.begin(), covered.end(), std::byte{1}));
  EXPECT_GT(n_found, covered_above + 2 * 300);
}

TEST_F(ContextDamageTest, EveryTruncationIsRefused) {
  for (uint64_t size = whole_.size(); size-- > 0;) {
    fs::resize_file(path_, size);
    ASSERT_EQ(Look(), Found::kRefused) << size;
  }
}

TEST_F(ContextDamageTest, SwappedRecordsAreFound) {
  const auto reader = Open();
  ASSERT_TRUE(reader);
  const uint64_t n_blocks = whole_.size() / kContextBlock;
  int n_same = 0;
  for (uint64_t a = 0; a < n_blocks; ++a) {
    for (uint64_t b = 0; b < a; ++b) {
      Bytes bytes = whole_;
      const auto block = [&](uint64_t i) {
        return bytes.begin() + static_cast<std::ptrdiff_t>(i * kContextBlock);
      };
      if (std::equal(block(a), block(a + 1), block(b))) continue;
      std::swap_ranges(block(a), block(a + 1), block(b));
      Put(bytes);
      const Found found = Look();
      ASSERT_NE(found, Found::kAnotherText) << a << " and " << b;
      n_same += found == Found::kTheText ? 1 : 0;
    }
  }
  // Two pages that were written again later, swapped with each other.
  EXPECT_EQ(n_same, 1);
}

TEST_F(ContextDamageTest, PartsOfAnotherFileAreFound) {
  // The same header but for a letter, so that all lies at the same places.
  ContextHeader header = SampleContext::Header();
  header.metadata.back() = ' ';
  fs::create_directory(folder_ / "other");
  {
    auto writer = ContextWriter::Create(folder_ / "other" / "a", header, {});
    ASSERT_TRUE(writer && sample_.CommitAll(**writer, ends_) && (*writer)->Finish());
  }
  const Bytes other = ReadFolder(folder_ / "other").at("a");
  ASSERT_EQ(other.size(), whole_.size());
  fs::remove_all(folder_ / "other");
  for (uint64_t at = 0; at < whole_.size(); at += kContextBlock) {
    Bytes bytes = whole_;
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(at), kContextBlock,
                bytes.begin() + static_cast<std::ptrdiff_t>(at));
    Put(bytes);
    ASSERT_NE(Look(), Found::kAnotherText) << at;
    if (bytes != whole_) {
      ASSERT_NE(Look(), Found::kTheText) << at;
    }
  }
}

TEST_F(ContextDamageTest, DamagedPagesAndStatesAreNamedTogether) {
  const auto reader = Open();
  ASSERT_TRUE(reader);
  const ContextGeometry geometry = SampleContext::Header().geometry;
  const ContextContents& contents = reader->contents();
  Set(contents.page(geometry, 1, 0, 0).offset, std::byte{77});
  Set(contents.page(geometry, 0, 0, 1).offset + geometry.page_bytes - 1, std::byte{77});
  Set(contents.states[1][0].offset, std::byte{77});
  Set(contents.states[0][0].offset, std::byte{77});
  Set(kContextBlock + 100, std::byte{77});
  const auto found = reader->Verify(pool_, {});
  ASSERT_TRUE(found);
  std::string all;
  for (const std::string& sentence : *found) all += sentence + "\n";
  EXPECT_EQ(found->size(), 4u) << all;  // the superblocks were read when it was opened
  for (const char* const words :
       {"page 0 of layer 1, head 0", "page 1 of layer 0, head 0", "(layer 0)", "(layer 1)"}) {
    EXPECT_NE(all.find(words), std::string::npos) << all;
  }
  const auto again = Open();
  ASSERT_TRUE(again) << again.error().message;  // one superblock serves
  EXPECT_EQ(again->Verify(pool_, {})->size(), 5u);
  EXPECT_FALSE(again->ReadState(contents.states[1][0]));
}

TEST_F(ContextDamageTest, WhatAnInterruptedAppendLeftDamagedCanBeDropped) {
  using From = ContextWriter::From;
  {
    const auto append = ContextWriter::Append(path_, From::kFinished, false);
    ASSERT_TRUE(append && sample_.Commit(*append->writer, 6, 9));
  }
  const auto newest = Open(Which::kNewest);
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->contents().tokens.size(), 9u);
  EXPECT_EQ(*newest->FinishedTokens(), 6u);
  for (uint64_t at = whole_.size(); at < fs::file_size(path_); at += kContextBlock) Set(at, std::byte{77});
  EXPECT_FALSE(Open(Which::kNewest));
  const auto refused = ContextWriter::Append(path_, From::kNewest, false);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--restart drops"), std::string::npos) << refused.error().message;
  EXPECT_EQ(Look(), Found::kTheText);
  const auto append = ContextWriter::Append(path_, From::kFinished, false);
  ASSERT_TRUE(append && sample_.Commit(*append->writer, 6, 9) && append->writer->Finish());
  EXPECT_EQ(*Open()->FinishedTokens(), 9u);
}

TEST_F(ContextDamageTest, AFileThatShrinksWhileItIsOpenIsAnErrorOfWhatIsRead) {
  const auto reader = Open();
  ASSERT_TRUE(reader);
  fs::resize_file(path_, 4 * kContextBlock);
  const auto found = reader->Verify(pool_, {});
  ASSERT_TRUE(found);
  EXPECT_GE(found->size(), 4u);
  EXPECT_NE(found->back().find("cut off"), std::string::npos) << found->back();
  const auto state = reader->ReadState(reader->contents().states[0][0]);
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().kind, ErrorKind::kIo);
}

TEST_F(ContextDamageTest, AFileThatShrinksWhileItIsOpenedIsRefused) {
  // At each call that reads, the file has just been cut.
  for (int at = 0;; ++at) {
    class Cut : public FileFaults {
     public:
      Cut(const fs::path& path, int call) : path_(path), left_(call) { InstallFileFaults(this); }
      ~Cut() override { InstallFileFaults(nullptr); }
      Verdict Before(const FileOperation& operation) override {
        if (operation.call == FileCall::kRead && left_-- == 0) fs::resize_file(path_, operation.offset);
        return {};
      }
      bool came() const { return left_ < 0; }

     private:
      fs::path path_;
      int left_;
    };
    const Cut cut(path_, at);
    const auto reader = Open();
    if (!cut.came()) {
      EXPECT_TRUE(reader);
      EXPECT_GT(at, 8);
      break;
    }
    ASSERT_FALSE(reader);
    Put(whole_);
  }
}

TEST_F(ContextDamageTest, AFileThatGrowsIsStillTheText) {
  const auto reader = Open();
  Bytes longer = whole_;
  longer.resize(whole_.size() + 100000, std::byte{5});
  std::ofstream(path_, std::ios::binary)
      .write(reinterpret_cast<const char*>(longer.data()), static_cast<std::streamsize>(longer.size()));
  EXPECT_EQ(sample_.Difference(*reader, ends_), "");
  EXPECT_EQ(Look(), Found::kTheText);
  // What another program has put behind it is in nobody's way.
  const auto append = ContextWriter::Append(path_, ContextWriter::From::kFinished, false);
  ASSERT_TRUE(append && sample_.Commit(*append->writer, 6, 9) && append->writer->Finish());
  EXPECT_EQ(sample_.Difference(*Open(), {1, 6, 9}), "");
}

TEST_F(ContextDamageTest, VerifyReportsItsProgressAndStops) {
  const auto reader = Open();
  std::vector<uint64_t> seen;
  const auto progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 4u);
    seen.push_back(done);
    return true;
  };
  ASSERT_TRUE(reader->Verify(pool_, progress));
  EXPECT_EQ(seen, (std::vector<uint64_t>{0, 4}));
  const auto stopped = reader->Verify(pool_, [](uint64_t, uint64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
}

}  // namespace
}  // namespace longheads
