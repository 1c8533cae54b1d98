// Any bytes as a context file: opened, all of it read, its metadata too, and appended to where that is
// allowed. What was opened once must be there again afterwards. With the first byte odd the checksums are
// made to match, so that what lies behind them is reached.
#include <unistd.h>

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

// Opening reads no method's state, and who appends without reading it meets what is damaged there at the
// commit.
void AppendOne(const std::string& path, ContextWriter::From from, bool whole) {
  const auto append = ContextWriter::Append(path, from, /*direct=*/false);
  if (!append) return CheckError(append.error(), path);
  std::vector<int32_t> tokens = append->contents.tokens;
  tokens.push_back(7);
  const uint8_t phase = 1;
  const Status committed = append->writer->Commit({.tokens = std::span(tokens).last(1),
                                                   .phases = std::span(&phase, 1),
                                                   .model_tokens = append->contents.model_tokens});
  if (!committed) {
    LH_CHECK(!whole);
    return CheckError(committed.error(), path);
  }
  LH_CHECK(append->writer->Finish().has_value());
  const auto reader = ContextReader::Open(path, {});
  LH_CHECK(reader.has_value());
  LH_CHECK(reader->contents().tokens == tokens && reader->contents().pages == append->contents.pages);
}

// Over what is there: making files anew would take most of the time.
void Put(const std::string& path, const std::vector<std::byte>& bytes) {
  const auto file = RawFile::Open(path, {.mode = RawFile::Mode::kCreateAny});
  LH_CHECK(file && file->PWrite(0, bytes) && file->Truncate(bytes.size()));
}

}  // namespace
}  // namespace longheads

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const longheads::Folder folder;
  if (size == 0) return 0;
  std::vector<std::byte> bytes = longheads::ExpandZeros(std::as_bytes(std::span(data, size)).subspan(1));
  if ((data[0] & 1) != 0) longheads::RepairContextChecksums(bytes);
  const std::string path = folder.File();
  longheads::Put(path, bytes);
  using longheads::ContextReader;
  using longheads::ContextWriter;
  const auto newest = longheads::ReadAll(path, ContextReader::Which::kNewest);
  const auto finished = longheads::ReadAll(path, ContextReader::Which::kFinished);
  if (!finished.opened) return 0;
  longheads::AppendOne(path, ContextWriter::From::kFinished, finished.whole);
  if (!newest.opened) return 0;
  longheads::Put(path, bytes);
  longheads::AppendOne(path, ContextWriter::From::kNewest, newest.whole);
  return 0;
}
