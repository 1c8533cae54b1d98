// Any bytes as a context file: opened, all of it read, its metadata too, and appended to where that is
// allowed; as an unfinished one, gone on with; and in the way of a new one. What was opened once must be
// there again afterwards. With the first byte odd the checksums are made to match, so that what lies behind
// them is reached.
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/context.h"
#include "formats/context_reader.h"
#include "formats/context_writer.h"
#include "tests/support/context_cases.h"
#include "tests/support/sample_context.h"

namespace longheads {
namespace {

// In memory where there is such a file system; removed when the process ends.
class Folder {
 public:
  Folder() {
    std::string pattern =
        (access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : "/tmp/") + std::string("longheads_fuzz_XXXXXX");
    LH_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File() const { return path_ + "/book.lhctx"; }

 private:
  std::string path_;
};

void CheckError(const Error& error, const std::string& path) { LH_CHECK(error.message.find(path) == 0); }

struct Reading {
  bool opened;
  bool whole;  // every byte that it names is what was written
};

Reading ReadAll(const std::string& path, ContextReader::Which which) {
  static ThreadPool pool(1);
  const auto reader = ContextReader::Open(path, {.which = which});
  if (!reader) {
    CheckError(reader.error(), path);
    return {.opened = false, .whole = false};
  }
  const ContextContents& contents = reader->contents();
  LH_CHECK(contents.tokens.size() == contents.phases.size());
  LH_CHECK(contents.states.size() == reader->header().geometry.n_layers);
  if (const auto setup = ParseContextSetup(path, reader->header().metadata); !setup)
    CheckError(setup.error(), path);
  const auto damage = reader->Verify(pool, {});
  LH_CHECK(damage.has_value());
  for (const std::string& sentence : *damage) CheckError({ErrorKind::kIo, sentence}, path);
  return {.opened = true, .whole = damage->empty()};
}

// Opening reads no method's state, and who goes on without reading it meets what is damaged there at the
// commit.
void AddOne(const Result<ContextWriter::Resumed>& resumed, const std::string& path, bool whole) {
  if (!resumed) return CheckError(resumed.error(), path);
  std::vector<int32_t> tokens = resumed->contents.tokens;
  tokens.push_back(7);
  const uint8_t phase = 1;
  const Status committed = resumed->writer->Commit({.tokens = std::span(tokens).last(1),
                                                    .phases = std::span(&phase, 1),
                                                    .model_tokens = resumed->contents.model_tokens});
  if (!committed) {
    LH_CHECK(!whole);
    return CheckError(committed.error(), path);
  }
  LH_CHECK(resumed->writer->Finish().has_value());
  const auto reader = ContextReader::Open(path, {});
  LH_CHECK(reader.has_value());
  LH_CHECK(reader->contents().tokens == tokens && reader->contents().pages == resumed->contents.pages);
}

// A new file where `path` and its partial are whatever they are; the text that `path` holds stands until the
// new one is finished.
void CreateAnew(const std::string& path, ContextWriter::CreateOptions::Unfinished unfinished) {
  const ContextHeader header = SampleContext::Header();
  const auto before = ContextReader::Open(path, {});
  const auto writer = ContextWriter::Create(path, header, {.unfinished = unfinished});
  if (!writer) return CheckError(writer.error(), path);
  const auto meanwhile = ContextReader::Open(path, {});
  LH_CHECK(before.has_value() == meanwhile.has_value());
  if (before) LH_CHECK(before->contents().tokens == meanwhile->contents().tokens);
  const SampleContext sample;
  LH_CHECK(sample.CommitAll(**writer, {1, 6}).has_value() && (*writer)->Finish().has_value());
  const auto reader = ContextReader::Open(path, {});
  LH_CHECK(reader.has_value() && sample.Difference(*reader, {1, 6}).empty());
}

void Remove(const std::string& path) { LH_CHECK(unlink(path.c_str()) == 0 || errno == ENOENT); }

// Over what is there: making files anew would take most of the time.
void Put(const std::string& path, const std::vector<std::byte>& bytes) {
  const auto file = RawFile::Open(path, {.mode = RawFile::Mode::kCreateAny});
  LH_CHECK(file && file->PWrite(0, bytes) && file->Truncate(bytes.size()));
}

}  // namespace
}  // namespace longheads

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using From = longheads::ContextWriter::From;
  using Unfinished = longheads::ContextWriter::CreateOptions::Unfinished;
  using Which = longheads::ContextReader::Which;
  static const longheads::Folder folder;
  if (size == 0) return 0;
  std::vector<std::byte> bytes = longheads::ExpandZeros(std::as_bytes(std::span(data, size)).subspan(1));
  if ((data[0] & 1) != 0) longheads::RepairContextChecksums(bytes);
  const std::string path = folder.File();
  const std::string partial = longheads::ContextWriter::PartialPath(path);

  longheads::Remove(partial);
  longheads::Put(path, bytes);
  const auto newest = longheads::ReadAll(path, Which::kNewest);
  const auto finished = longheads::ReadAll(path, Which::kFinished);
  longheads::AddOne(longheads::ContextWriter::Append(path, From::kFinished, /*direct=*/false), path,
                    finished.whole);
  longheads::Put(path, bytes);
  longheads::AddOne(longheads::ContextWriter::Append(path, From::kNewest, /*direct=*/false), path,
                    newest.whole);
  longheads::Put(path, bytes);
  longheads::CreateAnew(path, Unfinished::kRefuse);

  longheads::Remove(path);
  longheads::Put(partial, bytes);
  longheads::AddOne(longheads::ContextWriter::Resume(path, /*direct=*/false), path, newest.whole);
  longheads::Put(partial, bytes);
  longheads::CreateAnew(path, (data[0] & 2) != 0 ? Unfinished::kDiscard : Unfinished::kRefuse);
  return 0;
}
