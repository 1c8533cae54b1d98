// Reads what a context file holds, and believes nothing of it before it is checked: the header and
// superblocks (ReadContextFrame), then the chain of checkpoints with tokens, phases and page table
// (ReadContextContents). Pages and states are left where they are: the key/value store reads pages as they
// are chosen, ReadStatePart reads a state. Most callers want ContextReader or ContextWriter, which are made
// of this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "base/result.h"
#include "formats/context_layout.h"

namespace longheads {

struct ContextPage {
  uint64_t offset = 0;    // page_bytes of the file from here on
  uint64_t checksum = 0;  // Checksum of them
  bool operator==(const ContextPage&) const = default;
};

// A part of a layer's state, as one commit added it.
struct ContextStatePart {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;
  bool replaces_earlier = false;  // those of its kind: there is one of them at most
};

// A text as it was saved.
struct ContextContents {
  std::vector<int32_t> tokens;     // the text's
  std::vector<uint8_t> phases;     // one for each of them
  uint64_t model_tokens = 0;       // with those that a method inserted; what the pages hold
  std::vector<ContextPage> pages;  // [n_pages, n_layers, n_kv_heads]; complete
  // [n_layers]: the parts to restore a layer's state from, oldest first, then the one that replaces earlier
  // ones. Those that it replaced are left out.
  std::vector<std::vector<ContextStatePart>> states;

  const ContextPage& page(const ContextGeometry& geometry, uint32_t layer, uint32_t kv_head,
                          uint64_t page) const {
    return pages[page * geometry.heads() + uint64_t{layer} * geometry.n_kv_heads + kv_head];
  }
};

// What stands before the checkpoints.
struct ContextFrame {
  ContextHeader header;
  uint64_t header_bytes = 0;
  uint64_t id = 0;                                       // of all parts of this file
  std::array<std::optional<Superblock>, 2> superblocks;  // those that are whole
  Superblock superblock;                                 // the younger of them
};

// A checkpoint and those before it.
struct ContextChain {
  ContextContents contents;
  uint64_t n_checkpoints = 0;
  uint64_t end = 0;  // of the file, as far as this state goes
};

// kInvalidInput with a sentence of its own for: no context file, a newer or older version, a damaged header,
// a cut file, both superblocks damaged. kIo where the system refuses to read.
Result<ContextFrame> ReadContextFrame(const RawFile& file);

// The text up to the checkpoint `ref`; an empty one where it does not exist. kInvalidInput where anything
// does not match. Memory is taken for what the file was seen to hold, never for what a number in it claims.
Result<ContextChain> ReadContextContents(const RawFile& file, const ContextFrame& frame,
                                         const CheckpointRef& ref);

// The bytes of one part, checked. Several threads may read at once.
Result<std::vector<std::byte>> ReadStatePart(const RawFile& file, const ContextStatePart& part);

}  // namespace longheads
