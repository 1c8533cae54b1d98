// What is written is read again, by one writer at a time, and readers see finished texts only.
#include "formats/context_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/checksum.h"
#include "formats/context_contents.h"
#include "formats/context_layout.h"
#include "formats/context_reader.h"
#include "formats/input_file.h"
#include "tests/support/sample_context.h"
#include "tests/support/written_files.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;
using Ends = std::vector<uint64_t>;
using From = ContextWriter::From;

class ContextWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "longheads_context_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "book.lhctx";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<ContextWriter> Create(ContextWriter::CreateOptions options = {}) const {
    auto writer = ContextWriter::Create(path_, SampleContext::Header(), options);
    EXPECT_TRUE(writer) << writer.error().message;
    return writer ? std::move(*writer) : nullptr;
  }
  // Empty where readers find this text.
  std::string Difference(const Ends& ends, const SampleContext& sample = SampleContext()) const {
    const auto reader = ContextReader::Open(path_, {});
    return reader ? sample.Difference(*reader, ends) : reader.error().message;
  }
  template <typename T>
  void ExpectRefusal(const Result<T>& result, const std::string& words) const {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().message.find(folder_), 0u) << result.error().message;
  }

  fs::path folder_;
  fs::path path_;
  const SampleContext sample_;
};

TEST_F(ContextWriterTest, WhatWasCommittedIsRead) {
  for (const Ends& ends : {Ends{1}, Ends{4}, Ends{0}, Ends{3, 6}, Ends{1, 2, 3, 3, 4, 5, 8, 16, 50}}) {
    ASSERT_TRUE(sample_.Write(path_, ends));
    EXPECT_EQ(Difference(ends), "");
    const auto reader = ContextReader::Open(path_, {.direct = true});
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->header(), SampleContext::Header());
    EXPECT_EQ(reader->n_checkpoints(), ends.size());
    EXPECT_FALSE(reader->has_unfinished());
    ThreadPool pool(2);
    EXPECT_EQ(*reader->Verify(pool, {}), std::vector<std::string>());
  }
  EXPECT_EQ(ReadFolder(folder_).size(), 1u);
}

TEST_F(ContextWriterTest, MetadataMayBeLong) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{4016}, std::size_t{4017}, std::size_t{100000}}) {
    ContextHeader header = SampleContext::Header();
    header.metadata.assign(size, 'm');
    auto writer = ContextWriter::Create(path_, header, {});
    ASSERT_TRUE(writer && sample_.Commit(**writer, 0, 5) && (*writer)->Finish());
    const auto reader = ContextReader::Open(path_, {});
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->header(), header);
    EXPECT_EQ(sample_.Difference(*reader, {5}), "");
  }
}

TEST_F(ContextWriterTest, TheOldTextStandsUntilTheNewOneIsFinished) {
  const SampleContext old(1);
  ASSERT_TRUE(old.Write(path_, {7}));
  const auto writer = Create();
  ASSERT_TRUE(writer && sample_.CommitAll(*writer, {3, 6}));
  EXPECT_EQ(Difference({7}, old), "");
  const auto reader_of_old = ContextReader::Open(path_, {});
  ASSERT_TRUE(writer->Finish());
  EXPECT_EQ(Difference({3, 6}), "");
  EXPECT_EQ(old.Difference(*reader_of_old, {7}), "");  // which was opened before
  EXPECT_EQ(ReadFolder(folder_).size(), 1u);
}

TEST_F(ContextWriterTest, TheNewTextIsAsPrivateAsTheOldOne) {
  using std::filesystem::perms;
  ASSERT_TRUE(sample_.Write(path_, {7}));
  std::filesystem::permissions(path_, perms::owner_read | perms::owner_write);
  const auto writer = Create();
  ASSERT_TRUE(writer && sample_.CommitAll(*writer, {3, 6}) && writer->Finish());
  EXPECT_EQ(std::filesystem::status(path_).permissions(), perms::owner_read | perms::owner_write);
}

TEST_F(ContextWriterTest, AFinishedWriterWritesNoMore) {
  const auto writer = Create();
  ASSERT_TRUE(sample_.Commit(*writer, 0, 3) && writer->Finish());
  ExpectRefusal(sample_.Commit(*writer, 3, 4), "is finished");
  ExpectRefusal(writer->Finish(), "is finished");
  EXPECT_EQ(Difference({3}), "");
}

TEST_F(ContextWriterTest, ResumeGoesOnBehindTheLastCommitAndEndsWithTheSameBytes) {
  const Ends ends = {3, 6, 11};
  ASSERT_TRUE(sample_.Write(path_, ends));
  const FolderImage undisturbed = ReadFolder(folder_);
  fs::remove(path_);
  for (std::size_t n = 1; n <= ends.size(); ++n) {
    const Ends done(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(n));
    {
      const auto writer = Create();
      ASSERT_TRUE(sample_.CommitAll(*writer, done));
      // The next block was under way.
      const uint64_t offset = writer->AllotPages(5);
      ASSERT_TRUE(writer->file().PWrite(offset + 4096, std::vector<std::byte>(100, std::byte{7})));
    }
    EXPECT_FALSE(fs::exists(path_));
    ExpectRefusal(ContextWriter::Create(path_, SampleContext::Header(), {}), "was not read to its end");
    ExpectRefusal(ContextReader::Open(ContextWriter::PartialPath(path_), {}), "holds no finished text");
    ExpectRefusal(ContextReader::Open(path_, {}), "the same command again goes on with it");
    const auto newest =
        ContextReader::Open(ContextWriter::PartialPath(path_), {.which = ContextReader::Which::kNewest});
    ASSERT_TRUE(newest) << newest.error().message;
    EXPECT_EQ(sample_.Difference(*newest, done), "");
    EXPECT_TRUE(newest->has_unfinished());
    {
      const auto resumed = ContextWriter::Resume(path_, false);
      ASSERT_TRUE(resumed) << resumed.error().message;
      EXPECT_EQ(sample_.Difference(resumed->contents, resumed->writer->file(), done), "");
      ASSERT_TRUE(sample_.CommitAll(*resumed->writer, ends, n) && resumed->writer->Finish());
    }
    EXPECT_TRUE(ReadFolder(folder_) == undisturbed) << n;
    fs::remove(path_);
  }
}

TEST_F(ContextWriterTest, AWriterGoesOnWhereAStateFoundNoMemory) {
  ASSERT_TRUE(sample_.Write(path_, {3, 6}));
  const uintmax_t undisturbed = fs::file_size(path_);
  fs::remove(path_);
  const auto writer = Create();
  ASSERT_TRUE(sample_.Commit(*writer, 0, 3));
  for (const int last : {1, 2}) {  // to be counted, and to be written
    int asked = 0;
    const auto states = [&](const ContextStateSink& take) -> Status {
      if (++asked == last) throw std::bad_alloc();
      return take({.layer = 0, .bytes = sample_.State(0, 3, 6)});
    };
    EXPECT_THROW(
        (void)writer->Commit(
            {.tokens = {}, .phases = {}, .model_tokens = SampleContext::ModelTokens(3), .states = states}),
        std::bad_alloc);
    EXPECT_EQ(asked, last);
  }
  ASSERT_TRUE(sample_.Commit(*writer, 3, 6) && writer->Finish());
  EXPECT_EQ(Difference({3, 6}), "");
  EXPECT_EQ(fs::file_size(path_), undisturbed);
}

TEST_F(ContextWriterTest, WhatWasBegunMayBeDiscarded) {
  {
    const SampleContext other(1);
    const auto writer = Create();
    ASSERT_TRUE(other.Commit(*writer, 0, 9));
  }
  const auto writer = Create({.unfinished = ContextWriter::CreateOptions::Unfinished::kDiscard});
  ASSERT_TRUE(sample_.Commit(*writer, 0, 4) && writer->Finish());
  EXPECT_EQ(Difference({4}), "");
  EXPECT_EQ(ReadFolder(folder_).size(), 1u);
}

TEST_F(ContextWriterTest, NothingIsDiscardedWhereNothingMayBeBegun) {
  ASSERT_TRUE(sample_.Write(path_, {4}));
  {
    const auto writer = Create();
    ASSERT_TRUE(sample_.Commit(*writer, 0, 9));
  }
  const FolderImage before = ReadFolder(folder_);
  {
    const RawFile appending = *RawFile::Open(path_, {.mode = RawFile::Mode::kWrite});
    ASSERT_TRUE(*appending.TryLock());
    ExpectRefusal(ContextWriter::Create(path_, SampleContext::Header(),
                                        {.unfinished = ContextWriter::CreateOptions::Unfinished::kDiscard}),
                  "another process is writing it");
  }
  EXPECT_TRUE(ReadFolder(folder_) == before);
}

TEST_F(ContextWriterTest, WhatAppearsMeanwhileIsNotReplaced) {
  auto writer = Create();
  ASSERT_TRUE(sample_.Commit(*writer, 0, 4));
  std::ofstream(path_) << "It came later.";
  ExpectRefusal(writer->Finish(), "another file took this name");
  EXPECT_EQ(*ReadFile(path_), "It came later.");
  fs::remove(path_);
  writer.reset();
  const auto resumed = ContextWriter::Resume(path_, false);
  ASSERT_TRUE(resumed) << resumed.error().message;
  ASSERT_TRUE(resumed->writer->Finish());
  EXPECT_EQ(Difference({4}), "");
}

TEST_F(ContextWriterTest, AnotherFileInTheOldOnesPlaceIsNotReplaced) {
  const SampleContext old(1), other(2);
  ASSERT_TRUE(other.Write(folder_ / "other", {2, 9}));
  const std::string others = *ReadFile(folder_ / "other");
  ASSERT_TRUE(old.Write(path_, {7}));
  auto writer = Create();
  ASSERT_TRUE(writer && sample_.CommitAll(*writer, {3, 6}));
  fs::rename(path_, folder_ / "old");
  fs::rename(folder_ / "other", path_);
  ExpectRefusal(writer->Finish(), "another file took this name");
  writer.reset();
  EXPECT_EQ(*ReadFile(path_), others);
  // What was read is whole, as the error says.
  fs::rename(ContextWriter::PartialPath(path_), folder_ / "new");
  for (const auto& [name, sample, ends] :
       {std::tuple("new", sample_, Ends{3, 6}), std::tuple("old", old, Ends{7})}) {
    const auto reader = ContextReader::Open(folder_ / name, {});
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(sample.Difference(*reader, ends), "") << name;
  }
}

TEST_F(ContextWriterTest, AnOldFileThatWasMovedAwayIsKept) {
  const SampleContext old(1);
  ASSERT_TRUE(old.Write(path_, {7}));
  const std::string olds = *ReadFile(path_);
  const auto writer = Create();
  ASSERT_TRUE(writer && sample_.CommitAll(*writer, {3, 6}));
  fs::rename(path_, folder_ / "old");
  const Status finished = writer->Finish();
  ASSERT_TRUE(finished) << finished.error().message;
  EXPECT_EQ(Difference({3, 6}), "");
  EXPECT_EQ(*ReadFile(folder_ / "old"), olds);
  EXPECT_EQ(ReadFolder(folder_).size(), 2u);
}

TEST_F(ContextWriterTest, AnAppendToAFileThatWasMovedAwayIsNotFinished) {
  for (const bool another_there : {false, true}) {
    ASSERT_TRUE(sample_.Write(path_, {4}));
    std::string others;
    {
      const auto append = ContextWriter::Append(path_, From::kFinished, false);
      ASSERT_TRUE(append && sample_.Commit(*append->writer, 4, 9));
      fs::rename(path_, folder_ / "moved");
      if (another_there) {
        ASSERT_TRUE(SampleContext(1).Write(path_, {5}));
        others = *ReadFile(path_);
      }
      ExpectRefusal(append->writer->Finish(), "has another name now");
    }
    EXPECT_EQ(fs::exists(path_), another_there);
    if (another_there) {
      EXPECT_EQ(*ReadFile(path_), others);
    }
    fs::rename(folder_ / "moved", path_);
    EXPECT_EQ(Difference({4}), "");  // readers did not see the added text there
    const auto append = ContextWriter::Append(path_, From::kNewest, false);
    ASSERT_TRUE(append) << append.error().message;
    ASSERT_TRUE(append->writer->Finish());
    EXPECT_EQ(Difference({4, 9}), "");
  }
}

// Else zeros would stand where it was cut, and the old text would be gone.
TEST_F(ContextWriterTest, WhatWasCutMeanwhileIsNotFinished) {
  const std::string partial = ContextWriter::PartialPath(path_);
  const auto cut = [](const std::string& file, uint64_t bytes) {
    fs::resize_file(file, fs::file_size(file) - bytes);
  };
  ASSERT_TRUE(sample_.Write(path_, {7}));
  {  // pages close the file again, with a hole in it: at its beginning, in the newest checkpoint's head,
     // behind
    const auto writer = Create();
    ASSERT_TRUE(writer);
    fs::resize_file(partial, 0);
    ExpectRefusal(sample_.Commit(*writer, 0, 3), "something else cut the file");
    ExpectRefusal(sample_.Commit(*writer, 0, 3), "something else cut the file");
  }
  fs::remove(partial);
  for (const uint64_t blocks : {1, 2, 4}) {
    SCOPED_TRACE(blocks);
    {
      const auto writer = Create();
      ASSERT_TRUE(writer && sample_.CommitAll(*writer, {3, 6}));
      cut(partial, blocks * kContextBlock);
      ExpectRefusal(sample_.Commit(*writer, 6, 9), "something else cut the file");
      ExpectRefusal(writer->Finish(), "something else cut the file");
    }
    EXPECT_EQ(Difference({7}), "");
    fs::remove(partial);
  }
  {
    const auto writer = Create();
    ASSERT_TRUE(writer && sample_.CommitAll(*writer, {3, 6}));
    cut(partial, 1);
    ExpectRefusal(writer->Finish(), "something else cut the file");
  }
  EXPECT_EQ(Difference({7}), "");
  fs::remove(partial);
  {
    const auto append = ContextWriter::Append(path_, From::kFinished, false);
    ASSERT_TRUE(append && sample_.Commit(*append->writer, 7, 9));
    cut(path_, 1);
    ExpectRefusal(append->writer->Finish(), "something else cut the file");
  }
  EXPECT_EQ(Difference({7}), "");  // which lies before
}

TEST_F(ContextWriterTest, WhatGrewMeanwhileIsCutToItsText) {
  const auto writer = Create();
  ASSERT_TRUE(writer && sample_.CommitAll(*writer, {3, 6}));
  const fs::path partial = ContextWriter::PartialPath(path_);
  const uint64_t size = fs::file_size(partial);
  fs::resize_file(partial, size + 12345);
  ASSERT_TRUE(writer->Finish());
  EXPECT_EQ(fs::file_size(path_), size);
  EXPECT_EQ(Difference({3, 6}), "");
}

// Else another unfinished text would get the name, in place of what had it.
TEST_F(ContextWriterTest, APartialThatWasMovedAwayIsNotFinished) {
  const SampleContext old(1);
  ASSERT_TRUE(old.Write(path_, {7}));
  const std::string partial = ContextWriter::PartialPath(path_);
  const auto writer = Create();
  ASSERT_TRUE(writer && sample_.Commit(*writer, 0, 4));
  fs::rename(partial, folder_ / "moved");
  std::ofstream(partial) << "another's";
  ExpectRefusal(writer->Finish(), "has another name now");
  EXPECT_EQ(Difference({7}, old), "");
  EXPECT_EQ(*ReadFile(partial), "another's");
  fs::rename(folder_ / "moved", partial);
  ASSERT_TRUE(writer->Finish());
  EXPECT_EQ(Difference({4}), "");
}

TEST_F(ContextWriterTest, APartialWithoutACommitIsNoObstacle) {
  const std::string partial = ContextWriter::PartialPath(path_);
  ExpectRefusal(ContextWriter::Resume(path_, false), "no unfinished text");
  Create();  // goes away, and takes the file with it
  EXPECT_TRUE(ReadFolder(folder_).empty());
  FolderImage killed;
  {
    const auto writer = Create();
    killed = ReadFolder(folder_);
  }
  WriteFolder(folder_, killed);
  ExpectRefusal(ContextWriter::Resume(path_, false), "nothing was committed");
  for (const std::size_t zeros : {0, 7, 20000}) {  // killed before anything was written
    std::ofstream(partial) << std::string(zeros, '\0');
    EXPECT_FALSE(ContextWriter::Resume(path_, false));
    ASSERT_NE(Create(), nullptr);
  }
  std::string written;
  {
    const auto writer = Create();
    written = *ReadFile(partial);
  }
  // The disk has the header, and no superblock yet.
  std::fill(written.end() - 2 * kContextBlock, written.end(), '\0');
  std::ofstream(partial) << written;
  EXPECT_FALSE(ContextWriter::Resume(path_, false));
  ASSERT_NE(Create(), nullptr);
}

TEST_F(ContextWriterTest, APartialThatCannotBeReadIsKeptUnlessItIsToBeDiscarded) {
  const std::string partial = ContextWriter::PartialPath(path_);
  const auto create = [&](bool discard) {
    using Unfinished = ContextWriter::CreateOptions::Unfinished;
    return ContextWriter::Create(path_, SampleContext::Header(),
                                 {.unfinished = discard ? Unfinished::kDiscard : Unfinished::kRefuse});
  };
  const auto write = [&](const std::string& bytes) { std::ofstream(partial, std::ios::binary) << bytes; };
  {
    const auto writer = create(true);
    ASSERT_TRUE(writer && sample_.CommitAll(**writer, {3, 6}));
  }
  const std::string whole = *ReadFile(partial);
  std::string damaged_header = whole, newer = whole, no_superblocks = whole;
  damaged_header[100] ^= 1;
  newer[12] = 2;
  const uint64_t header_bytes = EncodeHeader(SampleContext::Header()).size();
  for (uint64_t slot = 0; slot < 2; ++slot) no_superblocks[SuperblockOffset(header_bytes, slot) + 20] ^= 1;
  for (const std::string& bytes : {damaged_header, newer, no_superblocks}) {
    write(bytes);
    ExpectRefusal(create(false), "--restart");
    EXPECT_EQ(*ReadFile(partial), bytes);
    EXPECT_TRUE(create(true));
  }
  std::string longer_header = whole;  // by what it says: the file ends before its superblocks then
  longer_header[18] ^= 0x10;
  write(longer_header);
  ExpectRefusal(create(false), "--restart");
  // What ends before the second superblock does holds nothing of a text.
  for (const uint64_t n : {header_bytes, header_bytes + 100, BodyOffset(header_bytes) - 1}) {
    write(whole.substr(0, n));
    EXPECT_TRUE(create(false)) << n;
  }
  write(no_superblocks.substr(0, BodyOffset(header_bytes)));
  ExpectRefusal(create(false), "--restart");
  for (const std::string foreign : {"LHCTX", "something else"}) {
    write(foreign);
    for (const bool discard : {false, true}) ExpectRefusal(create(discard), "no unfinished context file");
    EXPECT_EQ(*ReadFile(partial), foreign);
  }
}

TEST_F(ContextWriterTest, AnAppendIsSeenWhenItIsFinished) {
  ASSERT_TRUE(sample_.Write(path_, {3, 6}));
  const auto reader_of_old = ContextReader::Open(path_, {});
  {
    const auto append = ContextWriter::Append(path_, From::kFinished, false);
    ASSERT_TRUE(append) << append.error().message;
    EXPECT_EQ(sample_.Difference(append->contents, append->writer->file(), {3, 6}), "");
    ASSERT_TRUE(sample_.CommitAll(*append->writer, {3, 6, 7, 12}, 2));
    EXPECT_EQ(Difference({3, 6}), "");
    EXPECT_TRUE(ContextReader::Open(path_, {})->has_unfinished());
    ASSERT_TRUE(append->writer->Finish());
  }
  EXPECT_EQ(Difference({3, 6, 7, 12}), "");
  EXPECT_EQ(sample_.Difference(*reader_of_old, {3, 6}), "");
}

TEST_F(ContextWriterTest, AnInterruptedAppendIsGoneOnWithOrDropped) {
  for (const From from : {From::kFinished, From::kNewest}) {
    ASSERT_TRUE(sample_.Write(path_, {3, 6}));
    {
      const auto append = ContextWriter::Append(path_, From::kFinished, false);
      ASSERT_TRUE(sample_.CommitAll(*append->writer, {3, 6, 7}, 2));
    }
    EXPECT_EQ(Difference({3, 6}), "");
    const auto append = ContextWriter::Append(path_, from, false);
    ASSERT_TRUE(append);
    const Ends found = from == From::kFinished ? Ends{3, 6} : Ends{3, 6, 7};
    EXPECT_EQ(sample_.Difference(append->contents, append->writer->file(), found), "");
    Ends ends = found;
    ends.push_back(12);
    ASSERT_TRUE(sample_.CommitAll(*append->writer, ends, found.size()) && append->writer->Finish());
    EXPECT_EQ(Difference(ends), "");
  }
}

TEST_F(ContextWriterTest, NothingIsDroppedWhereTheCheckRefuses) {
  ASSERT_TRUE(sample_.Write(path_, {3, 6}));
  {
    const auto append = ContextWriter::Append(path_, From::kFinished, false);
    ASSERT_TRUE(sample_.CommitAll(*append->writer, {3, 6, 7}, 2));
    // Killed behind a page of the next block.
    ASSERT_TRUE(append->writer->file().PWrite(append->writer->AllotPages(1), std::vector<std::byte>(4096)));
    fs::copy_file(path_, folder_ / "killed");
  }
  fs::rename(folder_ / "killed", path_);
  // Places of pages that were never written take no disk.
  constexpr uint64_t kHole = 16 << 20;
  fs::resize_file(path_, fs::file_size(path_) + kHole);
  const uint64_t allocated = *RawFile::Open(path_, {})->Allocated();
  EXPECT_LT(allocated, kHole);
  const FolderImage before = ReadFolder(folder_);
  for (const From from : {From::kFinished, From::kNewest}) {
    const auto refuse = [&](const ContextWriter::Found& found) -> Status {
      EXPECT_EQ(found.header, SampleContext::Header());
      EXPECT_EQ(found.n_tokens, from == From::kFinished ? 6u : 7u);
      EXPECT_TRUE(found.drops);
      EXPECT_GE(found.dropped_bytes, from == From::kFinished ? 8192u : 4096u);
      EXPECT_LE(found.dropped_bytes, allocated - 3 * 4096);  // header and superblocks stay
      return InvalidInput(path_.string() + ": not this one");
    };
    ExpectRefusal(ContextWriter::Append(path_, from, false, refuse), "not this one");
    EXPECT_TRUE(ReadFolder(folder_) == before);
  }
}

TEST_F(ContextWriterTest, AppendNeedsAFinishedText) {
  ExpectRefusal(ContextWriter::Append(path_, From::kFinished, false), "no such file");
  {
    const auto writer = Create();
    ASSERT_TRUE(sample_.Commit(*writer, 0, 3));
  }
  fs::rename(ContextWriter::PartialPath(path_), path_);
  ExpectRefusal(ContextWriter::Append(path_, From::kNewest, false), "holds no finished text");
}

// One that a writer would take beyond what readers know would be lost with its first commit.
TEST_F(ContextWriterTest, NoFileIsGoneOnWithBeyondHalfOfTheHighestNumber) {
  constexpr uint64_t kMost = kMostSequence / 2;
  for (const uint64_t sequence : {kMost, kMost + 1, kMostSequence}) {
    ASSERT_TRUE(sample_.Write(path_, {3, 6}));
    {
      const auto file = RawFile::Open(path_, {.mode = RawFile::Mode::kWrite});
      ASSERT_TRUE(file);
      auto frame = ReadContextFrame(*file);
      ASSERT_TRUE(frame);
      frame->superblock.sequence = sequence;
      ASSERT_TRUE(file->PWrite(SuperblockOffset(frame->header_bytes, sequence % 2),
                               EncodeSuperblock(frame->superblock, frame->id)));
    }
    EXPECT_EQ(Difference({3, 6}), "");
    const FolderImage before = ReadFolder(folder_);
    const auto append = ContextWriter::Append(path_, From::kFinished, false);
    if (sequence > kMost) {
      ExpectRefusal(append, "have numbers that no writer comes to");
      EXPECT_TRUE(ReadFolder(folder_) == before);
      continue;
    }
    ASSERT_TRUE(append) << append.error().message;
    ASSERT_TRUE(sample_.CommitAll(*append->writer, {3, 6, 7}, 2) && append->writer->Finish());
    EXPECT_EQ(Difference({3, 6, 7}), "");
  }
}

TEST_F(ContextWriterTest, TheSecondWriterIsRefused) {
  const std::string busy = "another process is writing it";
  ASSERT_TRUE(sample_.Write(path_, {4}));
  {
    const auto creating = Create();
    ExpectRefusal(ContextWriter::Create(path_, SampleContext::Header(), {}), busy);
    ExpectRefusal(ContextWriter::Resume(path_, false), busy);
    ExpectRefusal(ContextWriter::Append(path_, From::kFinished, false), busy);
    ASSERT_TRUE(sample_.Commit(*creating, 0, 5) && creating->Finish());
  }
  EXPECT_EQ(Difference({5}), "");
  {
    const auto appending = ContextWriter::Append(path_, From::kFinished, false);
    ExpectRefusal(ContextWriter::Create(path_, SampleContext::Header(), {}), busy);
    ExpectRefusal(ContextWriter::Append(path_, From::kFinished, false), busy);
    EXPECT_EQ(ReadFolder(folder_).size(), 1u);
    ASSERT_TRUE(sample_.Commit(*appending->writer, 5, 8) && appending->writer->Finish());
  }
  EXPECT_EQ(Difference({5, 8}), "");
}

TEST_F(ContextWriterTest, TheSecondProcessIsRefusedAndTheFirstOneKilledIsNoObstacle) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto writer = ContextWriter::Create(path_, SampleContext::Header(), {});
    const char good = writer && sample_.Commit(**writer, 0, 5) ? 'y' : 'n';
    if (write(ready[1], &good, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char good = 0;
  ASSERT_EQ(read(ready[0], &good, 1), 1);
  EXPECT_EQ(good, 'y');
  ExpectRefusal(ContextWriter::Create(path_, SampleContext::Header(), {}), "another process is writing it");
  ExpectRefusal(ContextWriter::Resume(path_, false), "another process is writing it");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const auto resumed = ContextWriter::Resume(path_, false);
  ASSERT_TRUE(resumed) << resumed.error().message;
  ASSERT_TRUE(resumed->writer->Finish());
  EXPECT_EQ(Difference({5}), "");
  close(ready[0]);
  close(ready[1]);
}

TEST_F(ContextWriterTest, ReadersSeeOneTextOrTheOtherWhileAnotherAppends) {
  ASSERT_TRUE(sample_.Write(path_, {1}));
  std::atomic<bool> stop = false;
  std::atomic<int> n_reads = 0;
  std::thread reader([&] {
    while (!stop) {
      const auto seen = ContextReader::Open(path_, {});
      ASSERT_TRUE(seen) << seen.error().message;
      Ends ends;
      for (uint64_t end = 1; end <= seen->contents().tokens.size(); ++end) ends.push_back(end);
      ASSERT_EQ(sample_.Difference(*seen, ends), "");
      ++n_reads;
    }
  });
  for (uint64_t n = 1; n < 30 || n_reads < 10; ++n) {
    const auto append = ContextWriter::Append(path_, From::kFinished, false);
    EXPECT_TRUE(append && sample_.Commit(*append->writer, n, n + 1) && append->writer->Finish());
  }
  stop = true;
  reader.join();
}

TEST_F(ContextWriterTest, ReplacesNothingButContextFiles) {
  std::ofstream(path_) << "Once upon a time there was a file that somebody wants to keep.";
  ExpectRefusal(ContextWriter::Create(path_, SampleContext::Header(), {}),
                "is not a context file; it is not replaced");
  EXPECT_EQ(ReadFolder(folder_).size(), 1u);
  EXPECT_EQ(fs::file_size(path_), 62u);
  std::ofstream(path_, std::ios::trunc).close();
  ASSERT_TRUE(sample_.Write(path_, {3}));  // an empty one holds nothing
  fs::remove(path_);
  fs::create_directory(path_);
  ExpectRefusal(ContextWriter::Create(path_, SampleContext::Header(), {}), "is a folder");
}

TEST_F(ContextWriterTest, FollowsALinkToTheFileThatItReplaces) {
  fs::create_directory(folder_ / "elsewhere");
  ASSERT_TRUE(SampleContext(1).Write(folder_ / "elsewhere" / "a", {3}));
  fs::create_symlink("elsewhere/a", path_);
  ASSERT_TRUE(sample_.Write(path_, {5}));
  EXPECT_TRUE(fs::is_symlink(path_));
  const auto reader = ContextReader::Open(folder_ / "elsewhere" / "a", {});
  ASSERT_TRUE(reader);
  EXPECT_EQ(sample_.Difference(*reader, {5}), "");
}

TEST_F(ContextWriterTest, ThePlacesOfPagesDoNotOverlap) {
  const auto writer = Create();
  std::vector<std::thread> threads;
  std::vector<std::vector<uint64_t>> offsets(4);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 100; ++i) offsets[t].push_back(writer->AllotPages(1 + i % 3));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> blocks;
  for (const auto& some : offsets) {
    for (std::size_t i = 0; i < some.size(); ++i) {
      for (uint64_t page = 0; page < 1 + i % 3; ++page) {
        EXPECT_EQ(some[i] % kContextBlock, 0u);
        EXPECT_TRUE(blocks.insert(some[i] + page * kContextBlock).second);
      }
    }
  }
}

TEST_F(ContextWriterTest, FoldersThatCannotBeWrittenAreRefused) {
  ExpectRefusal(ContextWriter::Create(folder_ / "none" / "a", SampleContext::Header(), {}),
                "no such file or folder");
  ASSERT_TRUE(sample_.Write(path_, {3}));
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0444), 0);
  const uid_t user = geteuid();
  // Root may write anything: it becomes somebody else for a moment, where it can.
  if (user == 0 && seteuid(65534) != 0)
    GTEST_SKIP() << "root may write everything, and cannot become another user";
  const auto created = ContextWriter::Create(path_, SampleContext::Header(), {});
  const auto appended = ContextWriter::Append(path_, From::kFinished, false);
  const std::string difference = Difference({3});
  ASSERT_EQ(seteuid(user), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  ExpectRefusal(created, "no permission to write it");
  ExpectRefusal(appended, "no permission to write it");
  EXPECT_EQ(difference, "");
}

}  // namespace
}  // namespace longheads
