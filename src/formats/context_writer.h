// Writes a context file so that at any moment, also when the process is killed or the power fails, the file
// is whole as it was or whole as it is to be. Reading is context_reader.h.
//
//   LH_ASSIGN(auto writer, ContextWriter::Create("book.lhctx", header, {.direct = true}));
//   for each block of text:
//     const uint64_t offset = writer->AllotPages(n);
//     writer->file().PWrite(offset + i * page_stride, ...);      // the key/value store does, by any threads
//     LH_TRY(writer->Commit({.tokens = ..., .pages = ...}));     // a kill then costs only what follows
//   LH_TRY(writer->Finish());                                    // from here on readers see it
//
// Until Finish a new text lies in PATH.partial, and what stood at PATH is untouched. A writer that goes away
// without Finish leaves what was committed for Resume, and nothing where nothing was. Two writers of one PATH
// never meet: the second is refused.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/raw_file.h"
#include "base/result.h"
#include "formats/context_contents.h"

namespace longheads {

struct ContextPageUpdate {
  uint32_t layer = 0;
  uint32_t kv_head = 0;
  uint64_t page = 0;
  uint64_t offset = 0;    // from AllotPages; page_bytes are written there
  uint64_t checksum = 0;  // Checksum of them
};

struct ContextStateUpdate {
  uint32_t layer = 0;
  bool replaces_earlier = false;  // the layer's earlier parts that did the same no longer count
  std::span<const std::byte> bytes;
};
// Gives each part of the layers' states in its turn; its bytes need to be there only until `take` returns, so
// that one part at a time is in memory. It ends with the first error of `take`, and returns that.
using ContextStateSink = std::function<Status(const ContextStateUpdate&)>;
using ContextStates = std::function<Status(const ContextStateSink& take)>;

// What one commit adds. The spans are only read.
struct ContextDelta {
  std::span<const int32_t> tokens;
  std::span<const uint8_t> phases;  // as many
  uint64_t model_tokens = 0;        // of the whole text so far, with those that a method inserted
  // Every page that is new or whose tokens became more since the last commit, of all layers and heads; others
  // may be named again (they then have a new place).
  std::span<const ContextPageUpdate> pages = {};
  // Asked twice, for sizes and checksums and to be written, and the same each time. A layer may have several
  // parts, in order.
  ContextStates states = {};
};

class ContextWriter {
 public:
  static std::string PartialPath(const std::string& path);

  struct CreateOptions {
    bool direct = false;  // file() goes past the system's cache where the file system takes it
    // What to do where an earlier writer left PATH.partial with something committed in it: kInvalidInput, or
    // begin anew. One with nothing in it is always replaced; one that cannot be read is kept as one with
    // something; what is no context file is never replaced.
    enum class Unfinished { kRefuse, kDiscard } unfinished = Unfinished::kRefuse;
  };
  // kInvalidInput where another process is writing PATH, where PATH is something else than a context file (it
  // is not replaced), where the folder does not exist or may not be written. The header's geometry and size
  // are the caller's to get right.
  static Result<std::unique_ptr<ContextWriter>> Create(const std::string& path, const ContextHeader& header,
                                                       CreateOptions options);

  struct Resumed {
    std::unique_ptr<ContextWriter> writer;
    ContextContents contents;  // what was committed: restore from it, and go on behind its last token
    // Of Append: a writer before finished all that it had added and was interrupted before it said so twice;
    // the tokens that were there before it. Finish ends that.
    std::optional<uint64_t> tokens_before_interrupted_finish = {};
  };
  // Goes on with PATH.partial behind its newest commit; what was written later is cut off. kInvalidInput
  // where there is none, nothing was committed yet (Create replaces it), or it is damaged.
  static Result<Resumed> Resume(const std::string& path, bool direct);

  // Extends a finished file in place; whoever reads it meanwhile is not disturbed, and sees the old text
  // until Finish. Where an earlier Append was interrupted, kNewest goes on behind its last commit and
  // kFinished drops what it had committed.
  enum class From { kFinished, kNewest };
  struct Found {
    const ContextHeader& header;
    uint64_t n_tokens;       // of the text that is gone on with
    bool drops;              // whether something lies behind it
    uint64_t dropped_bytes;  // of the disk, that this takes at least
  };
  // Asked when nothing was changed yet; an error of it ends the call, and the file stays as it was.
  using Check = std::function<Status(const Found&)>;
  static Result<Resumed> Append(const std::string& path, From from, bool direct, const Check& check = {});

  ~ContextWriter();
  ContextWriter(const ContextWriter&) = delete;
  ContextWriter& operator=(const ContextWriter&) = delete;

  const ContextHeader& header() const { return frame_.header; }
  // Where pages are written and read back. Not its Truncate, and only inside what AllotPages gave.
  const RawFile& file() const { return file_; }
  // Whether a call found that something else had cut the file, so that what it kept is damaged.
  bool was_cut() const { return state_ == State::kCut; }

  // Room for n pages, page_stride apart, beginning at the offset returned. Nothing is written. Any thread,
  // but for a resumed file to equal an undisturbed one, no page may be allotted or written while Commit runs.
  uint64_t AllotPages(uint64_t n);

  // Returns when all of the delta and its pages are on disk for good. Where it fails, what was committed
  // before stays. After a full disk the caller may try again; after a failed sync nobody knows what reached
  // the disk, and every further call fails: Resume or Append again. kInvalidInput, of every further call too,
  // where something else cut the file: what was written before is not whole any more. What delta.states
  // throws goes through, and as after a full disk the caller may try again.
  Status Commit(const ContextDelta& delta);

  // Makes what was committed the text that readers see; at least one commit is needed. The writer is done
  // then. Where it fails the old text stays, and Resume (or Append with kNewest) and Finish may try again.
  // kInvalidInput where the file was given another name meanwhile, or PATH was given to another file, which
  // is not replaced, or something else cut it.
  Status Finish();

 private:
  ContextWriter(std::string target, std::string written, RawFile file, RawFile target_lock,
                ContextFrame frame)
      : target_(std::move(target)),
        written_(std::move(written)),
        file_(std::move(file)),
        target_lock_(std::move(target_lock)),
        frame_(std::move(frame)) {}
  static Result<Resumed> GoOn(std::unique_ptr<ContextWriter> writer, const CheckpointRef& from,
                              const Check& check = {});
  void CheckPages(const ContextDelta& delta) const;
  Result<CheckpointHead> HeadOf(const ContextDelta& delta, std::span<const StoredPageEntry> entries) const;
  Status WriteCheckpoint(const ContextDelta& delta, std::span<const std::byte> head,
                         std::span<const StoredPageEntry> entries, uint64_t offset,
                         uint64_t total_bytes) const;
  Status WriteSuperblock(const CheckpointRef& newest, const CheckpointRef& finished);
  Status CheckUsable() const;
  Status CheckStillThere() const;
  Status CheckUncut(uint64_t end);
  Result<bool> NewestIsWhole(uint64_t size) const;
  Status TakeTargetsName() const;

  std::string target_;
  std::string written_;  // the target itself, or its partial
  RawFile file_;
  RawFile target_lock_;  // the old target, where another file is to replace it
  ContextFrame frame_;   // with the superblock as it is on disk
  std::atomic<uint64_t> end_{0};
  uint64_t n_checkpoints_ = 0;
  uint64_t newest_end_ = 0;  // 0: what is there was not read yet
  uint64_t text_tokens_ = 0;
  uint64_t model_tokens_ = 0;
  enum class State { kWriting, kBroken, kCut, kFinished } state_ = State::kWriting;
};

}  // namespace longheads
