#include "formats/context_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/checksum.h"

namespace longheads {
namespace {

tl::unexpected<Error> CutOff(const RawFile& file, uint64_t file_bytes) {
  return InvalidInput(
      fmt::format("{} is cut off: it ends after {} bytes; copy it again", file.path(), file_bytes));
}

Result<std::vector<std::byte>> ReadBytes(const RawFile& file, uint64_t offset, uint64_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  LH_TRY(file.PRead(offset, bytes));
  return bytes;
}

// A writer may be at one of them this moment: each is written by one call, and never both at once.
Status ReadSuperblocks(const RawFile& file, ContextFrame& frame) {
  std::vector<std::byte> blocks(2 * kContextBlock);
  for (int attempt = 0; attempt < 3; ++attempt) {
    LH_TRY(file.PRead(SuperblockOffset(frame.header_bytes, 0), blocks));
    bool any = false;
    for (uint64_t slot = 0; slot < 2; ++slot) {
      const auto block = std::span(blocks).subspan(slot * kContextBlock, kContextBlock);
      const auto superblock = DecodeSuperblock(block, slot, frame.id);
      frame.superblocks[slot] = superblock;
      if (!superblock || (any && superblock->sequence < frame.superblock.sequence)) continue;
      frame.superblock = *superblock;
      any = true;
    }
    if (any) return {};
  }
  return InvalidInput(
      fmt::format("{}: both superblocks are damaged, so that nothing says where the text lies", file.path()));
}

struct ReadHead {
  CheckpointHead head;
  uint64_t sections_at = 0;
};

// The heads of `ref` and all before it, youngest first. Each lies wholly before the one that follows it, so
// that together they are no larger than the file.
Result<std::vector<ReadHead>> ReadHeads(const RawFile& file, const ContextFrame& frame, CheckpointRef ref,
                                        uint64_t file_bytes) {
  std::vector<ReadHead> heads;
  uint64_t bound = file_bytes;
  while (ref.exists()) {
    const auto damaged = [&](std::string_view problem) {
      return InvalidInput(fmt::format("{}: the checkpoint at offset {} {}; the file is damaged", file.path(),
                                      ref.offset, problem));
    };
    if (ref.offset % kContextBlock != 0 || ref.offset < BodyOffset(frame.header_bytes)) {
      return damaged("lies where none can be");
    }
    if (ref.offset > file_bytes || ref.head_bytes > file_bytes - ref.offset) return CutOff(file, file_bytes);
    LH_ASSIGN(const auto encoded, ReadBytes(file, ref.offset, ref.head_bytes));
    LH_ASSIGN(CheckpointHead head,
              DecodeCheckpointHead(encoded, ref, frame.id, frame.header.geometry, file_bytes, file.path()));
    if (head.offset + head.total_bytes() > bound) return damaged("reaches into the one after it");
    bound = head.offset;
    if (!heads.empty()) {
      const CheckpointHead& next = heads.back().head;
      if (head.sequence + 1 != next.sequence || head.text_tokens_after != next.text_tokens_before ||
          head.model_tokens_after != next.model_tokens_before) {
        return damaged("is not the one before its successor");
      }
    }
    ref = head.previous;
    if (!ref.exists() &&
        (head.sequence != 1 || head.text_tokens_before != 0 || head.model_tokens_before != 0)) {
      return damaged("has lost those before it");
    }
    const uint64_t sections_at = head.offset + head.head_bytes();
    heads.push_back({std::move(head), sections_at});
  }
  return heads;
}

// Puts the sections of one checkpoint after another into the contents.
class ContentsBuilder {
 public:
  ContentsBuilder(const RawFile& file, const ContextFrame& frame, ContextContents& contents)
      : file_(file),
        geometry_(frame.header.geometry),
        body_(BodyOffset(frame.header_bytes)),
        contents_(contents) {}

  // `heads` were checked, so that what they count lies in the file.
  Status Reserve(std::span<const ReadHead> heads) {
    contents_.states.resize(geometry_.n_layers);
    latest_.resize(geometry_.n_layers);
    if (heads.empty()) return {};
    uint64_t n_entries = 0;
    for (const ReadHead& one : heads) {
      for (const StoredSection& section : one.head.sections) {
        if (static_cast<SectionKind>(section.kind) == SectionKind::kPages) {
          n_entries += section.bytes / sizeof(StoredPageEntry);
        }
      }
    }
    const CheckpointHead& last = heads.front().head;
    const auto n_slots = CheckedMul(geometry_.PagesFor(last.model_tokens_after), geometry_.heads());
    if (!n_slots || *n_slots > n_entries) return IncompletePages();
    contents_.tokens.resize(last.text_tokens_after);
    contents_.phases.resize(last.text_tokens_after);
    contents_.model_tokens = last.model_tokens_after;
    contents_.pages.resize(*n_slots);
    return {};
  }

  Status Add(const ReadHead& one) {
    uint64_t at = one.sections_at;
    for (const StoredSection& section : one.head.sections) {
      LH_TRY(AddSection(one.head, section, at));
      at += section.bytes;
    }
    return {};
  }

  // Once all are added.
  Status Finish() {
    for (const ContextPage& page : contents_.pages) {
      if (page.offset == 0) return IncompletePages();
    }
    for (std::size_t layer = 0; layer < latest_.size(); ++layer) {
      if (latest_[layer]) contents_.states[layer].push_back(*latest_[layer]);
    }
    return {};
  }

 private:
  tl::unexpected<Error> IncompletePages() const {
    return InvalidInput(fmt::format("{}: its page table lacks pages; the file is damaged", file_.path()));
  }

  Status ReadSection(const CheckpointHead& head, const StoredSection& section, uint64_t at,
                     std::span<std::byte> to) const {
    LH_TRY(file_.PRead(at, to));
    if (Checksum(to) == section.checksum) return {};
    const char* const names[] = {"", "tokens", "phases", "page table", "state"};
    return InvalidInput(
        fmt::format("{}: the {} of the checkpoint at offset {} do not match their checksum; the file is "
                    "damaged",
                    file_.path(), names[section.kind], head.offset));
  }

  Status AddSection(const CheckpointHead& head, const StoredSection& section, uint64_t at) {
    const std::size_t from = head.text_tokens_before;
    const std::size_t n_tokens = head.text_tokens_after - from;
    switch (static_cast<SectionKind>(section.kind)) {
      case SectionKind::kTokens:
        return ReadSection(head, section, at,
                           std::as_writable_bytes(std::span(contents_.tokens).subspan(from, n_tokens)));
      case SectionKind::kPhases:
        return ReadSection(head, section, at,
                           std::as_writable_bytes(std::span(contents_.phases).subspan(from, n_tokens)));
      case SectionKind::kPages:
        return AddPages(head, section, at);
      case SectionKind::kState: {
        const bool replaces = (section.flags & kReplacesEarlier) != 0;
        const ContextStatePart part = {
            .offset = at, .bytes = section.bytes, .checksum = section.checksum, .replaces_earlier = replaces};
        if (replaces) {
          latest_[section.layer] = part;
        } else {
          contents_.states[section.layer].push_back(part);
        }
        return {};
      }
    }
    return {};  // other kinds were refused with the head
  }

  Status AddPages(const CheckpointHead& head, const StoredSection& section, uint64_t at) {
    std::vector<StoredPageEntry> entries(section.bytes / sizeof(StoredPageEntry));
    LH_TRY(ReadSection(head, section, at, std::as_writable_bytes(std::span(entries))));
    for (const StoredPageEntry& entry : entries) {
      // Pages were written before the checkpoint that names them, and were given their place before it.
      const bool lies_before = entry.offset >= body_ && entry.offset % kContextBlock == 0 &&
                               entry.offset < head.offset &&
                               geometry_.page_stride <= head.offset - entry.offset;
      if (entry.slot >= contents_.pages.size() || !lies_before) {
        return InvalidInput(
            fmt::format("{}: the page table of the checkpoint at offset {} names a page that cannot be; "
                        "the file is damaged",
                        file_.path(), head.offset));
      }
      contents_.pages[entry.slot] = {.offset = entry.offset, .checksum = entry.checksum};
    }
    return {};
  }

  const RawFile& file_;
  const ContextGeometry& geometry_;
  const uint64_t body_;
  ContextContents& contents_;
  std::vector<std::optional<ContextStatePart>> latest_;  // [n_layers]: the newest that replaces earlier ones
};

}  // namespace

Result<ContextFrame> ReadContextFrame(const RawFile& file) {
  LH_ASSIGN(const uint64_t file_bytes, file.Size());
  if (file_bytes == 0) return InvalidInput(fmt::format("{} is empty (0 bytes); copy it again", file.path()));
  std::vector<std::byte> bytes(kContextBlock);
  LH_TRY(file.PRead(0, std::span(bytes).first(std::min(file_bytes, kContextBlock))));
  if (file_bytes < kContextBlock && BeginsLikeContextFile(bytes)) return CutOff(file, file_bytes);
  ContextFrame frame;
  LH_ASSIGN(frame.header_bytes, DecodeHeaderBytes(bytes, file.path()));
  if (file_bytes < BodyOffset(frame.header_bytes)) return CutOff(file, file_bytes);
  LH_ASSIGN(bytes, ReadBytes(file, 0, frame.header_bytes));
  LH_ASSIGN(frame.header, DecodeHeader(bytes, file.path()));
  frame.id = HeaderId(bytes);
  LH_TRY(ReadSuperblocks(file, frame));
  const auto& [sequence, newest, finished] = frame.superblock;
  if (finished.exists() && (!newest.exists() || newest.offset < finished.offset)) {
    return InvalidInput(fmt::format(
        "{}: its newest checkpoint is older than the finished one; the file is damaged", file.path()));
  }
  return frame;
}

Result<ContextChain> ReadContextContents(const RawFile& file, const ContextFrame& frame,
                                         const CheckpointRef& ref) {
  LH_ASSIGN(const uint64_t file_bytes, file.Size());
  LH_ASSIGN(const auto heads, ReadHeads(file, frame, ref, file_bytes));
  ContextChain chain;
  chain.n_checkpoints = heads.size();
  chain.end = heads.empty() ? BodyOffset(frame.header_bytes)
                            : heads.front().head.offset + heads.front().head.total_bytes();
  ContentsBuilder builder(file, frame, chain.contents);
  LH_TRY(builder.Reserve(heads));
  for (std::size_t i = heads.size(); i-- > 0;) LH_TRY(builder.Add(heads[i]));
  LH_TRY(builder.Finish());
  return chain;
}

Result<std::vector<std::byte>> ReadStatePart(const RawFile& file, const ContextStatePart& part) {
  LH_ASSIGN(auto bytes, ReadBytes(file, part.offset, part.bytes));
  if (Checksum(bytes) != part.checksum) {
    return InvalidInput(
        fmt::format("{}: the state at offset {} does not match its checksum; the file is damaged",
                    file.path(), part.offset));
  }
  return bytes;
}

}  // namespace longheads
