// Opens a context file to ask it: tokens, phases and page table are read and checked at once; states
// and pages are read through it when they are needed, each with its checksum. A writer may append meanwhile:
// this goes on with the text that was finished when it was opened. Writing is context_writer.h.
//
//   LH_ASSIGN(const ContextReader reader, ContextReader::Open("book.lhctx", {.direct = true}));
//   reader.header(), reader.contents().tokens ...
//   for (const ContextStatePart& part : reader.contents().states[layer]) ... reader.ReadState(part) ...
//   const ContextPage& page = reader.contents().page(reader.header().geometry, layer, kv_head, index);
//   reader.file().PRead(page.offset, ...) must have Checksum() page.checksum
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "formats/context_contents.h"

namespace longheads {

class ContextReader {
 public:
  enum class Which {
    kFinished,  // the text as its writer last finished it
    kNewest,    // with what an interrupted writer had committed since; also of PATH.partial
  };
  struct Options {
    bool direct = false;  // pages past the system's cache, where the file system takes it
    Which which = Which::kFinished;
  };

  // Errors as ReadContextFrame and ReadContextContents give them; and kInvalidInput where no text was
  // finished.
  static Result<ContextReader> Open(const std::string& path, Options options);
  static Result<ContextReader> FromFile(RawFile file, Which which);
  // To be read. kInvalidInput where there is none, which names PATH.partial where that is there.
  static Result<RawFile> OpenFile(const std::string& path, bool direct);

  const ContextHeader& header() const { return frame_.header; }
  const ContextContents& contents() const { return chain_.contents; }
  // For those who have taken over what they need: hands it out and keeps nothing.
  ContextContents TakeContents() { return std::move(chain_.contents); }
  const RawFile& file() const { return file_; }
  uint64_t n_checkpoints() const { return chain_.n_checkpoints; }
  // Whether a writer was interrupted while it appended (see ContextWriter::Append).
  bool has_unfinished() const { return frame_.superblock.newest != frame_.superblock.finished; }

  // Tokens of the finished text, whichever was opened: of the same moment; 0 where none was finished.
  Result<uint64_t> FinishedTokens() const;

  // Several threads may read at once.
  Result<std::vector<std::byte>> ReadState(const ContextStatePart& part) const {
    return ReadStatePart(file_, part);
  }

  // Reads all states and pages. One sentence for each thing that is damaged (at most 100); none where the
  // file is whole. `progress` hears how many pages of how many are done and returns false to stop
  // (kCancelled).
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;
  Result<std::vector<std::string>> Verify(ThreadPool& pool, const Progress& progress) const;

 private:
  ContextReader(RawFile file, ContextFrame frame, ContextChain chain)
      : file_(std::move(file)), frame_(std::move(frame)), chain_(std::move(chain)) {}

  RawFile file_;
  ContextFrame frame_;
  ContextChain chain_;
};

}  // namespace longheads
