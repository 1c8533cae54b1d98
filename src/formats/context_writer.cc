#include "formats/context_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

// The file that a link leads to: that one is replaced.
std::string TargetOf(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? path : real.string();
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

tl::unexpected<Error> BeingWritten(const std::string& path) {
  return InvalidInput(
      fmt::format("{}: another process is writing it; wait until it is done, or name another file", path));
}

// The file at `path`, locked. An error where another process has it, or put another file there just now.
Result<RawFile> OpenLocked(const std::string& path, RawFile::Options options, const std::string& target) {
  LH_ASSIGN(RawFile file, RawFile::Open(path, options));
  LH_ASSIGN(const bool locked, file.TryLock());
  if (!locked) return BeingWritten(target);
  LH_ASSIGN(const bool there, file.IsAt(path));
  if (!there) return BeingWritten(target);
  return file;
}

// The old target, locked so that nobody appends to what will be replaced; no file where there is none.
// Refuses to replace what is no context file.
Result<RawFile> LockOldTarget(const std::string& target) {
  if (!Exists(target)) return RawFile();
  LH_ASSIGN(RawFile file, OpenLocked(target, {.mode = RawFile::Mode::kWrite}, target));
  LH_ASSIGN(const uint64_t size, file.Size());
  if (size == 0) return file;
  std::vector<std::byte> first(kContextBlock);
  LH_TRY(file.PRead(0, std::span(first).first(std::min(size, kContextBlock))));
  if (BeginsLikeContextFile(first)) return file;
  return InvalidInput(
      fmt::format("{} exists and is not a context file; it is not replaced: name another file", target));
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// A header is on disk before the first commit, which goes to the second superblock: where that was never
// written, nothing was committed, whatever a loss of power has left of the rest. What is too short for
// the smallest header and both superblocks holds nothing of a text, whatever the header claims.
Result<bool> WasCommittedTo(const RawFile& partial, uint64_t header_bytes, uint64_t size) {
  const uint64_t offset = SuperblockOffset(header_bytes, 1);
  if (size < BodyOffset(kContextBlock)) return false;
  if (offset + kContextBlock > size) return true;  // cut off: nobody knows
  std::vector<std::byte> block(kContextBlock);
  LH_TRY(partial.PRead(offset, block));
  return !AllZero(block);
}

// Whether a new writer may begin in the place of this partial, which nobody else writes.
Status MayReplace(const RawFile& partial, ContextWriter::CreateOptions::Unfinished unfinished) {
  using Unfinished = ContextWriter::CreateOptions::Unfinished;
  LH_ASSIGN(const uint64_t size, partial.Size());
  std::vector<std::byte> first(kContextBlock);
  LH_TRY(partial.PRead(0, std::span(first).first(std::min(size, kContextBlock))));
  // Killed before its header, or the first sector of that, was on disk.
  if (AllZero(std::span(first).first(8))) return {};
  if (!BeginsLikeContextFile(first)) {
    return InvalidInput(
        fmt::format("{} exists and is no unfinished context file; it is not replaced: name another file",
                    partial.path()));
  }
  if (unfinished == Unfinished::kDiscard) return {};
  const auto frame = ReadContextFrame(partial);
  if (frame) {
    if (!frame->superblock.newest.exists()) return {};
    return InvalidInput(fmt::format(
        "{} holds a text that was not read to its end; go on with it, or delete it", partial.path()));
  }
  if (frame.error().kind == ErrorKind::kIo) return tl::unexpected<Error>(frame.error());
  if (const auto header_bytes = DecodeHeaderBytes(first, partial.path())) {
    LH_ASSIGN(const bool committed, WasCommittedTo(partial, *header_bytes, size));
    if (!committed) return {};
  }
  return InvalidInput(
      fmt::format("{}; what was read into it may be worth keeping: delete it, or begin anew with --restart",
                  frame.error().message));
}

Status RemoveOldPartial(const std::string& target, const std::string& partial,
                        ContextWriter::CreateOptions::Unfinished unfinished) {
  if (!Exists(partial)) return {};
  LH_ASSIGN(const RawFile old, OpenLocked(partial, {.mode = RawFile::Mode::kWrite}, target));
  LH_TRY(MayReplace(old, unfinished));
  return RemoveFile(partial);
}

Result<ContextFrame> WriteFrame(const RawFile& file, const ContextHeader& header) {
  const std::vector<std::byte> encoded = EncodeHeader(header);
  ContextFrame frame;
  frame.header = header;
  frame.header_bytes = encoded.size();
  frame.id = HeaderId(encoded);
  frame.superblocks[0] = frame.superblock;
  LH_TRY(file.Truncate(BodyOffset(frame.header_bytes)));
  LH_TRY(file.PWrite(0, encoded));
  LH_TRY(file.PWrite(SuperblockOffset(frame.header_bytes, 0), EncodeSuperblock(frame.superblock, frame.id)));
  // The other one's zeros too: a hole would need room on a disk that the first pages may have filled.
  constexpr std::array<std::byte, kContextBlock> kZeros{};
  LH_TRY(file.PWrite(SuperblockOffset(frame.header_bytes, 1), kZeros));
  return frame;  // the first commit syncs it
}

// What is to be gone on from. Where a text was finished before it, it begins with that text: what lies behind
// `from` will be cut off.
Result<ContextChain> ReadNewest(const RawFile& file, const ContextFrame& frame, const CheckpointRef& from) {
  const CheckpointRef& finished = frame.superblock.finished;
  Result<ContextChain> chain = ReadContextContents(file, frame, from);
  if (!finished.exists() || from == finished) return chain;
  const auto unusable = [](const Error& error) {
    return MakeError(error.kind, error.message + "; --restart drops what an interrupted append had added");
  };
  if (!chain) return unusable(chain.error());
  LH_ASSIGN(const ContextChain before, ReadContextContents(file, frame, finished));
  const std::vector<int32_t>& tokens = before.contents.tokens;
  if (std::ranges::mismatch(tokens, chain->contents.tokens).in1 != tokens.end()) {
    return unusable({ErrorKind::kInvalidInput,
                     fmt::format("{}: what was being added does not go on from the finished text; the file "
                                 "is damaged",
                                 file.path())});
  }
  return chain;
}

std::vector<StoredPageEntry> EntriesOf(const ContextDelta& delta, const ContextGeometry& geometry) {
  std::vector<StoredPageEntry> entries;
  entries.reserve(delta.pages.size());
  for (const ContextPageUpdate& page : delta.pages) {
    const uint64_t head = uint64_t{page.layer} * geometry.n_kv_heads + page.kv_head;
    entries.push_back(
        {.slot = page.page * geometry.heads() + head, .offset = page.offset, .checksum = page.checksum});
  }
  return entries;
}

}  // namespace

std::string ContextWriter::PartialPath(const std::string& path) { return TargetOf(path) + ".partial"; }

Result<std::unique_ptr<ContextWriter>> ContextWriter::Create(const std::string& path,
                                                             const ContextHeader& header,
                                                             CreateOptions options) {
  LH_CHECK(!WhatIsWrongWith(header.geometry));
  const std::string target = TargetOf(path);
  const std::string partial = PartialPath(path);
  LH_ASSIGN(RawFile target_lock, LockOldTarget(target));  // before anything is thrown away
  LH_TRY(RemoveOldPartial(target, partial, options.unfinished));
  LH_ASSIGN(RawFile file, OpenLocked(partial,
                                     {.mode = RawFile::Mode::kCreate,
                                      .direct = options.direct,
                                      .owner_only = target_lock.is_open()},
                                     target));
  // From here on the partial is ours to remove where nothing comes of it.
  const auto make = [&]() -> Result<std::unique_ptr<ContextWriter>> {
    if (target_lock.is_open()) {  // who may read the old text may read the new one, and nobody else
      std::error_code error;
      const auto mode = std::filesystem::status(target, error).permissions();
      if (!error) std::filesystem::permissions(partial, mode, error);
      if (error) {
        return MakeError(ErrorKind::kIo, fmt::format("{}: cannot give it the permissions of {}: {}", partial,
                                                     target, error.message()));
      }
    }
    LH_ASSIGN(ContextFrame frame, WriteFrame(file, header));
    LH_TRY(SyncFolderOf(partial));
    std::unique_ptr<ContextWriter> writer(
        new ContextWriter(target, partial, std::move(file), std::move(target_lock), std::move(frame)));
    writer->newest_end_ = BodyOffset(writer->frame_.header_bytes);
    writer->end_ = writer->newest_end_;
    return writer;
  };
  auto writer = make();
  if (!writer) (void)RemoveFile(partial);  // the first error is the one to tell
  return writer;
}

Result<ContextWriter::Resumed> ContextWriter::Resume(const std::string& path, bool direct) {
  const std::string target = TargetOf(path);
  const std::string partial = PartialPath(path);
  if (!Exists(partial)) {
    return InvalidInput(
        fmt::format("{}: there is no unfinished text to go on with ({} does not exist)", path, partial));
  }
  LH_ASSIGN(RawFile file, OpenLocked(partial, {.mode = RawFile::Mode::kWrite, .direct = direct}, target));
  LH_ASSIGN(RawFile target_lock, LockOldTarget(target));
  LH_ASSIGN(ContextFrame frame, ReadContextFrame(file));
  const CheckpointRef newest = frame.superblock.newest;
  if (!newest.exists()) {
    return InvalidInput(fmt::format("{}: nothing was committed to it yet; begin anew", partial));
  }
  return GoOn(std::unique_ptr<ContextWriter>(new ContextWriter(target, partial, std::move(file),
                                                               std::move(target_lock), std::move(frame))),
              newest);
}

Result<ContextWriter::Resumed> ContextWriter::Append(const std::string& path, From from, bool direct,
                                                     const Check& check) {
  const std::string target = TargetOf(path);
  LH_ASSIGN(RawFile file, OpenLocked(target, {.mode = RawFile::Mode::kWrite, .direct = direct}, target));
  // Whoever is writing a new file for this name has locked his partial, and the target if there was one.
  const std::string partial = PartialPath(path);
  if (Exists(partial)) {
    LH_ASSIGN(const RawFile other, RawFile::Open(partial, {.mode = RawFile::Mode::kWrite}));
    LH_ASSIGN(const bool free, other.TryLock());
    if (!free) return BeingWritten(target);
  }
  LH_ASSIGN(ContextFrame frame, ReadContextFrame(file));
  const Superblock superblock = frame.superblock;
  if (!superblock.finished.exists()) {
    return InvalidInput(
        fmt::format("{} holds no finished text, so that there is nothing to append to", path));
  }
  std::unique_ptr<ContextWriter> writer(
      new ContextWriter(target, target, std::move(file), RawFile(), std::move(frame)));
  const auto& other = writer->frame_.superblocks[(superblock.sequence + 1) % 2];
  if (superblock.newest == superblock.finished && other && other->finished != superblock.finished &&
      other->finished.exists()) {
    LH_ASSIGN(const ContextChain before, ReadContextContents(writer->file_, writer->frame_, other->finished));
    LH_ASSIGN(Resumed resumed, GoOn(std::move(writer), superblock.finished, check));
    resumed.tokens_before_interrupted_finish = before.contents.tokens.size();
    return resumed;
  }
  return GoOn(std::move(writer), from == From::kNewest ? superblock.newest : superblock.finished, check);
}

Result<ContextWriter::Resumed> ContextWriter::GoOn(std::unique_ptr<ContextWriter> writer,
                                                   const CheckpointRef& from, const Check& check) {
  if (writer->frame_.superblock.sequence > kMostSequence / 2) {
    return InvalidInput(fmt::format(
        "{}: its superblocks have numbers that no writer comes to: it can be read, but not gone on with; "
        "ingest the text anew",
        writer->written_));
  }
  LH_ASSIGN(ContextChain chain, ReadNewest(writer->file_, writer->frame_, from));
  if (check) {
    LH_ASSIGN(const uint64_t size, writer->file_.Size());
    LH_ASSIGN(const uint64_t allocated, writer->file_.Allocated());
    LH_TRY(check({.header = writer->header(),
                  .n_tokens = chain.contents.tokens.size(),
                  .drops = size > chain.end,
                  .dropped_bytes = allocated - std::min(allocated, chain.end)}));
  }
  if (writer->frame_.superblock.newest != from) {
    // Before what it names is overwritten.
    LH_TRY(writer->WriteSuperblock(from, from));
    LH_TRY(writer->file_.Sync());
  }
  LH_TRY(writer->file_.Truncate(chain.end));
  writer->n_checkpoints_ = chain.n_checkpoints;
  writer->newest_end_ = chain.end;
  writer->end_ = chain.end;
  writer->text_tokens_ = chain.contents.tokens.size();
  writer->model_tokens_ = chain.contents.model_tokens;
  return Resumed{std::move(writer), std::move(chain.contents)};
}

// What was not committed is of no use to anybody, and a full disk wants it back. A killed writer cannot do
// this; the next one does.
ContextWriter::~ContextWriter() {
  if (state_ != State::kWriting || newest_end_ == 0) return;
  try {
    if (n_checkpoints_ > 0) {
      if (CheckUncut(newest_end_)) (void)file_.Truncate(newest_end_);
    } else if (const auto there = file_.IsAt(written_); there && *there) {
      (void)RemoveFile(written_);
    }
  } catch (const std::bad_alloc&) {  // it stays, then
  }
}

uint64_t ContextWriter::AllotPages(uint64_t n) {
  const auto bytes = CheckedMul(n, header().geometry.page_stride);
  LH_CHECK(bytes.has_value());
  return end_.fetch_add(*bytes);
}

// Our own mistakes would make a file that its reader refuses.
void ContextWriter::CheckPages(const ContextDelta& delta) const {
  const ContextGeometry& geometry = header().geometry;
  LH_CHECK(delta.phases.size() == delta.tokens.size());
  LH_CHECK(delta.model_tokens >= model_tokens_);
  const bool grows = delta.model_tokens > model_tokens_;
  const uint64_t first = grows ? model_tokens_ / geometry.page_tokens : 0;  // the open page is part of it
  const uint64_t n_pages = geometry.PagesFor(delta.model_tokens);
  std::vector<bool> named(grows ? (n_pages - first) * geometry.heads() : 0);
  for (const ContextPageUpdate& page : delta.pages) {
    LH_CHECK(page.layer < geometry.n_layers && page.kv_head < geometry.n_kv_heads && page.page < n_pages);
    LH_CHECK(page.offset % kContextBlock == 0 && page.offset >= BodyOffset(frame_.header_bytes));
    LH_CHECK(page.offset + geometry.page_stride <= end_.load());
    const uint64_t head = uint64_t{page.layer} * geometry.n_kv_heads + page.kv_head;
    if (grows && page.page >= first) named[(page.page - first) * geometry.heads() + head] = true;
  }
  for (const bool one : named) LH_CHECK(one);
}

Result<CheckpointHead> ContextWriter::HeadOf(const ContextDelta& delta,
                                             std::span<const StoredPageEntry> entries) const {
  CheckpointHead head;
  head.sequence = n_checkpoints_ + 1;
  head.text_tokens_before = text_tokens_;
  head.text_tokens_after = text_tokens_ + delta.tokens.size();
  head.model_tokens_before = model_tokens_;
  head.model_tokens_after = delta.model_tokens;
  head.previous = frame_.superblock.newest;
  const auto add = [&](SectionKind kind, std::span<const std::byte> bytes, uint32_t layer, uint32_t flags) {
    head.sections.push_back({.kind = static_cast<uint32_t>(kind),
                             .layer = layer,
                             .flags = flags,
                             .bytes = bytes.size(),
                             .checksum = Checksum(bytes)});
  };
  add(SectionKind::kTokens, std::as_bytes(delta.tokens), 0, 0);
  add(SectionKind::kPhases, std::as_bytes(delta.phases), 0, 0);
  add(SectionKind::kPages, std::as_bytes(entries), 0, 0);
  if (delta.states) {
    LH_TRY(delta.states([&](const ContextStateUpdate& state) -> Status {
      LH_CHECK(state.layer < header().geometry.n_layers);
      add(SectionKind::kState, state.bytes, state.layer, state.replaces_earlier ? kReplacesEarlier : 0);
      return {};
    }));
  }
  return head;
}

// In the order of HeadOf's table.
Status ContextWriter::WriteCheckpoint(const ContextDelta& delta, std::span<const std::byte> head,
                                      std::span<const StoredPageEntry> entries, uint64_t offset,
                                      uint64_t total_bytes) const {
  uint64_t at = offset;
  const uint64_t end = offset + total_bytes;
  const auto write = [&](std::span<const std::byte> bytes) {
    LH_CHECK(bytes.size() <= end - at);
    const uint64_t here = at;
    at += bytes.size();
    return file_.PWrite(here, bytes);
  };
  LH_TRY(write(head));
  LH_TRY(write(std::as_bytes(delta.tokens)));
  LH_TRY(write(std::as_bytes(delta.phases)));
  LH_TRY(write(std::as_bytes(entries)));
  if (delta.states) {
    LH_TRY(delta.states([&](const ContextStateUpdate& state) { return write(state.bytes); }));
  }
  LH_CHECK(end - at < kContextBlock);
  constexpr std::array<std::byte, kContextBlock> kZeros{};
  return write(std::span(kZeros).first(end - at));
}

Status ContextWriter::WriteSuperblock(const CheckpointRef& newest, const CheckpointRef& finished) {
  const Superblock next{.sequence = frame_.superblock.sequence + 1, .newest = newest, .finished = finished};
  LH_TRY(file_.PWrite(SuperblockOffset(frame_.header_bytes, next.sequence % 2),
                      EncodeSuperblock(next, frame_.id)));
  frame_.superblocks[next.sequence % 2] = next;
  frame_.superblock = next;
  return {};
}

Status ContextWriter::CheckUsable() const {
  if (state_ == State::kFinished) {
    return InvalidInput(fmt::format("{} is finished; append to it to go on", target_));
  }
  if (state_ == State::kBroken) {
    return MakeError(
        ErrorKind::kIo,
        fmt::format("{}: an earlier write failed, and what of it is on disk is unknown; open it again "
                    "to go on from the last commit",
                    written_));
  }
  if (state_ == State::kCut) {
    return InvalidInput(fmt::format(
        "{}: something else cut the file while the text was read, and what is kept of it is damaged: begin "
        "anew with --restart",
        written_));
  }
  return {};
}

// Whether the last of the newest checkpoint's sections is what it was: whatever cuts the checkpoint takes
// that.
Result<bool> ContextWriter::NewestIsWhole(uint64_t size) const {
  const CheckpointRef& newest = frame_.superblock.newest;
  if (!newest.exists()) return true;
  std::vector<std::byte> bytes(newest.head_bytes);
  LH_TRY(file_.PRead(newest.offset, bytes));
  const auto head = DecodeCheckpointHead(bytes, newest, frame_.id, header().geometry, size, written_);
  if (!head) return false;
  uint64_t at = newest.offset + newest.head_bytes;
  uint64_t last_at = at;
  const StoredSection* last = nullptr;
  for (const StoredSection& section : head->sections) {
    if (section.bytes > 0) {
      last = &section;
      last_at = at;
    }
    at += section.bytes;
  }
  if (last == nullptr) return true;
  bytes.resize(last->bytes);
  LH_TRY(file_.PRead(last_at, bytes));
  return Checksum(bytes) == last->checksum;
}

// What was cut off, and then written behind, would be zeros. Header and newest checkpoint lie before and
// behind all else that counts.
Status ContextWriter::CheckUncut(uint64_t end) {
  LH_ASSIGN(const uint64_t size, file_.Size());
  bool whole = size >= end;
  if (whole) {
    std::vector<std::byte> encoded(frame_.header_bytes);
    LH_TRY(file_.PRead(0, encoded));
    whole = HeaderId(encoded) == frame_.id;
  }
  if (whole) {
    LH_ASSIGN(whole, NewestIsWhole(size));
  }
  if (whole) return {};
  state_ = State::kCut;
  return CheckUsable();
}

Status ContextWriter::Commit(const ContextDelta& delta) {
  LH_TRY(CheckUsable());
  CheckPages(delta);
  uint64_t written_end = newest_end_;
  for (const ContextPageUpdate& page : delta.pages) {
    written_end = std::max(written_end, page.offset + header().geometry.page_bytes);
  }
  LH_TRY(CheckUncut(written_end));
  const std::vector<StoredPageEntry> entries = EntriesOf(delta, header().geometry);
  LH_ASSIGN(CheckpointHead head, HeadOf(delta, entries));
  const uint64_t total_bytes = head.total_bytes();
  head.offset = end_.fetch_add(total_bytes);
  const auto give_back = [&] {  // where nobody was given what follows
    uint64_t end = head.offset + total_bytes;
    end_.compare_exchange_strong(end, head.offset);
  };
  std::vector<std::byte> encoded;
  try {
    encoded = EncodeCheckpointHead(head, frame_.id);
    if (Status written = WriteCheckpoint(delta, encoded, entries, head.offset, total_bytes); !written) {
      give_back();
      return written;
    }
  } catch (...) {  // no memory for a part of a state
    give_back();
    throw;
  }
  state_ = State::kBroken;  // unless all goes well
  // Pages and checkpoint may reach the disk in any order, but both before the superblock that names them.
  LH_TRY(file_.Sync());
  LH_TRY(WriteSuperblock(RefTo(head, encoded), frame_.superblock.finished));
  LH_TRY(file_.Sync());
  state_ = State::kWriting;
  n_checkpoints_ = head.sequence;
  newest_end_ = head.offset + total_bytes;
  text_tokens_ = head.text_tokens_after;
  model_tokens_ = head.model_tokens_after;
  return {};
}

// Else whoever looks for the text under the name that he gave would not find it.
Status ContextWriter::CheckStillThere() const {
  LH_ASSIGN(const bool there, file_.IsAt(written_));
  if (there) return {};
  return InvalidInput(
      fmt::format("{}: the file that the text went to has another name now, or is gone; what was read is in "
                  "it: give it this name again, and the same command goes on",
                  written_));
}

// What took that name since this writer was opened is not replaced.
Status ContextWriter::TakeTargetsName() const {
  bool replaces = false;
  if (target_lock_.is_open()) {
    LH_ASSIGN(replaces, target_lock_.IsAt(target_));
  }
  if (!replaces && Exists(target_)) {
    return InvalidInput(
        fmt::format("{}: another file took this name while the text was read, and is not replaced; the text "
                    "is whole in {}: give that another name",
                    target_, written_));
  }
  LH_TRY(replaces ? RenameFile(written_, target_) : RenameFileToNew(written_, target_));
  return SyncFolderOf(target_);
}

Status ContextWriter::Finish() {
  LH_TRY(CheckUsable());
  LH_TRY(CheckStillThere());
  const CheckpointRef newest = frame_.superblock.newest;
  LH_CHECK(newest.exists());
  state_ = State::kBroken;  // unless all goes well
  LH_TRY(CheckUncut(newest_end_));
  LH_TRY(file_.Truncate(newest_end_));  // what was allotted and not used
  // Twice, so that one of the two may be damaged without loss: the first is on disk before the second is
  // written, and both before anybody is told so. An earlier writer may have been interrupted here.
  if (frame_.superblock.finished != newest) LH_TRY(WriteSuperblock(newest, newest));
  LH_TRY(file_.Sync());
  const auto& other = frame_.superblocks[(frame_.superblock.sequence + 1) % 2];
  if (!other || other->finished != newest) LH_TRY(WriteSuperblock(newest, newest));
  LH_TRY(file_.Sync());
  if (written_ != target_) LH_TRY(TakeTargetsName());
  state_ = State::kFinished;
  return {};
}

}  // namespace longheads
