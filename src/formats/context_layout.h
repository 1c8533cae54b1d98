// The bytes of a context file: where header, superblocks, checkpoints and sections lie and what they hold
// (docs/context-file.md says the same for other programs). Here they are only laid out and checked one by
// one; context_contents.h reads a whole file, context_writer.h writes one. Models and methods are unknown
// here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace longheads {

inline constexpr uint32_t kContextVersion = 1;
inline constexpr uint64_t kContextBlock = 4096;  // everything begins at a multiple: direct I/O, torn writes

// What all pages of a file have in common. A page holds the keys and values of page_tokens tokens of one
// layer and key/value head.
struct ContextGeometry {
  uint32_t n_layers = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t kv_type = 0;  // the key/value store's own number of its element type
  uint32_t page_tokens = 0;
  uint64_t page_bytes = 0;   // what a page holds, and what its checksum covers
  uint64_t page_stride = 0;  // the room it takes: page_bytes rounded up to a multiple of kContextBlock

  uint64_t heads() const { return uint64_t{n_layers} * n_kv_heads; }
  // Pages of one layer and head that n tokens take.
  uint64_t PagesFor(uint64_t n_tokens) const {
    return n_tokens / page_tokens + (n_tokens % page_tokens != 0 ? 1 : 0);
  }
  bool operator==(const ContextGeometry&) const = default;
};

struct ContextHeader {
  ContextGeometry geometry;
  std::string metadata;  // a JSON object in UTF-8; not looked into here
  bool operator==(const ContextHeader&) const = default;
};

// Where the head of a checkpoint lies, and its checksum; offset 0: there is none.
struct CheckpointRef {
  uint64_t offset = 0;
  uint64_t head_bytes = 0;
  uint64_t checksum = 0;
  bool exists() const { return offset != 0; }
  bool operator==(const CheckpointRef&) const = default;
};

// Which checkpoint counts. Two of them lie behind the header and are written in turn, the one with sequence
// number s in slot s % 2: a torn one leaves the other.
struct Superblock {
  uint64_t sequence = 0;
  CheckpointRef newest;    // what a writer that was interrupted goes on from
  CheckpointRef finished;  // what readers see
};

enum class SectionKind : uint32_t {
  kTokens = 1,  // int32 each
  kPhases = 2,  // uint8 each, one for every token
  kPages = 3,   // StoredPageEntry each
  kState = 4,   // of one layer: opaque
};
inline constexpr uint32_t kReplacesEarlier = 1;  // a flag of kState: earlier ones with it no longer count

// Sections follow the head and each other without gaps, in the order of the table.
struct StoredSection {
  uint32_t kind = 0;
  uint32_t layer = 0;  // of kState
  uint32_t flags = 0;
  uint32_t reserved = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;
};

struct StoredPageEntry {
  uint64_t slot = 0;  // page * heads + layer * n_kv_heads + kv_head
  uint64_t offset = 0;
  uint64_t checksum = 0;
};

// What was added to the text between one commit and the next.
struct CheckpointHead {
  uint64_t sequence = 0;  // 1, 2, ...
  uint64_t offset = 0;    // its own
  uint64_t text_tokens_before = 0;
  uint64_t text_tokens_after = 0;
  uint64_t model_tokens_before = 0;  // with those that a method inserted
  uint64_t model_tokens_after = 0;
  CheckpointRef previous;
  std::vector<StoredSection> sections;

  uint64_t head_bytes() const;
  uint64_t total_bytes()
      const;  // with sections, rounded up to whole blocks; the head was checked or made here
};

// ---- Writing: sizes are ours and fit ----

// The header with its checksum, a multiple of kContextBlock.
std::vector<std::byte> EncodeHeader(const ContextHeader& header);
// Identifies a file's parts: the checksum of its header.
uint64_t HeaderId(std::span<const std::byte> encoded_header);
std::array<std::byte, kContextBlock> EncodeSuperblock(const Superblock& superblock, uint64_t id);
std::vector<std::byte> EncodeCheckpointHead(const CheckpointHead& head, uint64_t id);
// Of an encoded head.
CheckpointRef RefTo(const CheckpointHead& head, std::span<const std::byte> encoded);

// ---- Reading: nothing is believed. Errors are kInvalidInput and begin with `path` ----

// Says what is wrong with a geometry, or nothing.
std::optional<std::string> WhatIsWrongWith(const ContextGeometry& geometry);
bool BeginsLikeContextFile(std::span<const std::byte> first_block);
// Bytes of the header that begins with these kContextBlock bytes.
Result<uint64_t> DecodeHeaderBytes(std::span<const std::byte> first_block, const std::string& path);
Result<ContextHeader> DecodeHeader(std::span<const std::byte> encoded, const std::string& path);
// Nothing where it is torn, damaged, of another file or in the wrong slot.
std::optional<Superblock> DecodeSuperblock(std::span<const std::byte> block, uint64_t slot, uint64_t id);
// Where a head's sections begin and end is checked against the file's size.
Result<CheckpointHead> DecodeCheckpointHead(std::span<const std::byte> encoded, const CheckpointRef& ref,
                                            uint64_t id, const ContextGeometry& geometry, uint64_t file_bytes,
                                            const std::string& path);

// The largest header that is read.
inline constexpr uint64_t kMostHeaderBytes = 16 << 20;
// The highest number of a superblock that is read. Files are gone on with up to half of it, so that no writer
// comes to a number that readers do not take.
inline constexpr uint64_t kMostSequence = uint64_t{1} << 62;

// Of a file whose header takes header_bytes.
inline uint64_t SuperblockOffset(uint64_t header_bytes, uint64_t slot) {
  return header_bytes + slot * kContextBlock;
}
inline uint64_t BodyOffset(uint64_t header_bytes) { return header_bytes + 2 * kContextBlock; }

}  // namespace longheads
