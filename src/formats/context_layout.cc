#include "formats/context_layout.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"

namespace longheads {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian; swap bytes here");

// A transfer as text would change the line ends and so be noticed.
constexpr std::array<char, 8> kHeaderMagic = {'L', 'H', 'C', 'T', 'X', '\r', '\n', '\x1a'};
constexpr std::array<char, 8> kSuperblockMagic = {'L', 'H', 'S', 'U', 'P', 'E', 'R', '\n'};
constexpr std::array<char, 8> kCheckpointMagic = {'L', 'H', 'C', 'H', 'E', 'C', 'K', '\n'};
constexpr uint32_t kByteOrder = 0x01020304;
constexpr uint64_t kChecksumBytes = sizeof(uint64_t);  // the last bytes of whatever carries one

// As they lie in the file.
struct StoredHeader {
  std::array<char, 8> magic = kHeaderMagic;
  uint32_t byte_order = kByteOrder;
  uint32_t version = kContextVersion;
  uint64_t header_bytes = 0;
  uint64_t metadata_bytes = 0;
  uint32_t n_layers = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t kv_type = 0;
  uint32_t page_tokens = 0;
  uint32_t reserved = 0;
  uint64_t page_bytes = 0;
  uint64_t page_stride = 0;
};
struct StoredSuperblock {
  std::array<char, 8> magic = kSuperblockMagic;
  uint64_t id = 0;
  uint64_t sequence = 0;
  CheckpointRef newest;
  CheckpointRef finished;
};
struct StoredCheckpoint {
  std::array<char, 8> magic = kCheckpointMagic;
  uint64_t id = 0;
  uint64_t sequence = 0;
  uint64_t offset = 0;
  uint64_t text_tokens_before = 0;
  uint64_t text_tokens_after = 0;
  uint64_t model_tokens_before = 0;
  uint64_t model_tokens_after = 0;
  CheckpointRef previous;
  uint64_t total_bytes = 0;
  uint64_t n_sections = 0;
};
static_assert(sizeof(StoredHeader) == 72 && sizeof(StoredSuperblock) == 72 &&
              sizeof(StoredCheckpoint) == 104);
static_assert(sizeof(StoredSection) == 32 && sizeof(StoredPageEntry) == 24 && sizeof(CheckpointRef) == 24);

// Limits that no model comes near, and that keep every product of two sizes far below 2^64.
constexpr uint32_t kMostLayers = 1 << 16;
constexpr uint32_t kMostHeads = 1 << 16;
constexpr uint32_t kMostPageTokens = 1 << 20;
constexpr uint64_t kMostPageBytes = uint64_t{1} << 30;
constexpr uint64_t kMostTokens = uint64_t{1} << 40;

template <typename T>
T Load(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  LH_CHECK(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}
template <typename T>
void Store(std::span<std::byte> to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  LH_CHECK(to.size() >= sizeof(T));
  std::memcpy(to.data(), &value, sizeof(T));
}

uint64_t StoredChecksum(std::span<const std::byte> bytes) {
  return Load<uint64_t>(bytes.last(kChecksumBytes));
}
uint64_t TrueChecksum(std::span<const std::byte> bytes) {
  return Checksum(bytes.first(bytes.size() - kChecksumBytes));
}
void StoreChecksum(std::span<std::byte> bytes) { Store(bytes.last(kChecksumBytes), TrueChecksum(bytes)); }

// `bytes` came from the file, so that it may be anything.
std::optional<uint64_t> RoundedUp(uint64_t bytes) {
  const auto more = CheckedAdd(bytes, kContextBlock - 1);
  if (!more) return std::nullopt;
  return *more / kContextBlock * kContextBlock;
}

// A checkpoint's bytes; nothing where they do not fit in 64 bits.
std::optional<uint64_t> TotalBytes(uint64_t head_bytes, std::span<const StoredSection> sections) {
  std::optional<uint64_t> total = head_bytes;
  for (const StoredSection& section : sections) {
    total = CheckedAdd(*total, section.bytes);
    if (!total) return std::nullopt;
  }
  return RoundedUp(*total);
}

uint64_t HeadBytes(uint64_t n_sections) {
  return sizeof(StoredCheckpoint) + n_sections * sizeof(StoredSection) + kChecksumBytes;
}

// What is wrong with one section of a checkpoint, as words after "a section"; nothing where it is well
// formed.
std::optional<std::string> WhatIsWrongWith(const StoredSection& section, const CheckpointHead& head,
                                           const ContextGeometry& geometry) {
  const uint64_t n_tokens = head.text_tokens_after - head.text_tokens_before;
  const auto kind = static_cast<SectionKind>(section.kind);
  const bool is_state = kind == SectionKind::kState;
  if (section.reserved != 0 || (section.flags & ~(is_state ? kReplacesEarlier : 0)) != 0)
    return "has unknown flags";
  if (section.layer >= (is_state ? geometry.n_layers : 1)) return "is of a layer that does not exist";
  switch (kind) {
    case SectionKind::kTokens:
      if (section.bytes != n_tokens * sizeof(int32_t))
        return "of tokens has another number of them than it says";
      return std::nullopt;
    case SectionKind::kPhases:
      if (section.bytes != n_tokens) return "of phases has another number of them than there are tokens";
      return std::nullopt;
    case SectionKind::kPages:
      if (section.bytes % sizeof(StoredPageEntry) != 0) return "of pages ends inside an entry";
      return std::nullopt;
    case SectionKind::kState:
      return std::nullopt;
  }
  return "is of an unknown kind";
}

// As words after "the checkpoint"; nothing where it is well formed.
std::optional<std::string> WhatIsWrongWith(const CheckpointHead& head, const ContextGeometry& geometry) {
  if (head.text_tokens_after > kMostTokens || head.model_tokens_after > kMostTokens ||
      head.text_tokens_before > head.text_tokens_after ||
      head.model_tokens_before > head.model_tokens_after) {
    return "counts its tokens wrongly";
  }
  uint32_t seen = 0;  // kinds that may stand there once
  for (const StoredSection& section : head.sections) {
    if (const auto problem = WhatIsWrongWith(section, head, geometry))
      return "has a section that " + *problem;
    if (static_cast<SectionKind>(section.kind) == SectionKind::kState) continue;
    const uint32_t bit = 1u << section.kind;
    if ((seen & bit) != 0) return "has two sections of one kind";
    seen |= bit;
  }
  for (const SectionKind needed : {SectionKind::kTokens, SectionKind::kPhases, SectionKind::kPages}) {
    if ((seen & (1u << static_cast<uint32_t>(needed))) == 0) return "lacks its tokens, phases or pages";
  }
  return std::nullopt;
}

}  // namespace

uint64_t CheckpointHead::head_bytes() const { return HeadBytes(sections.size()); }
uint64_t CheckpointHead::total_bytes() const {
  const auto total = TotalBytes(head_bytes(), sections);
  LH_CHECK(total.has_value());
  return *total;
}

std::optional<std::string> WhatIsWrongWith(const ContextGeometry& g) {
  if (g.n_layers == 0 || g.n_layers > kMostLayers) return fmt::format("{} layers are impossible", g.n_layers);
  if (g.n_kv_heads == 0 || g.n_kv_heads > kMostHeads) {
    return fmt::format("{} key/value heads are impossible", g.n_kv_heads);
  }
  if (g.page_tokens == 0 || g.page_tokens > kMostPageTokens) {
    return fmt::format("pages of {} tokens are impossible", g.page_tokens);
  }
  if (g.page_bytes == 0 || g.page_bytes > kMostPageBytes || g.page_stride != RoundedUp(g.page_bytes)) {
    return fmt::format("pages of {} bytes, {} apart, are impossible", g.page_bytes, g.page_stride);
  }
  return std::nullopt;
}

std::vector<std::byte> EncodeHeader(const ContextHeader& header) {
  const ContextGeometry& g = header.geometry;
  StoredHeader stored;
  stored.header_bytes = *RoundedUp(sizeof(StoredHeader) + header.metadata.size() + kChecksumBytes);
  LH_CHECK(stored.header_bytes <= kMostHeaderBytes);
  stored.metadata_bytes = header.metadata.size();
  stored.n_layers = g.n_layers;
  stored.n_kv_heads = g.n_kv_heads;
  stored.head_dim = g.head_dim;
  stored.kv_type = g.kv_type;
  stored.page_tokens = g.page_tokens;
  stored.page_bytes = g.page_bytes;
  stored.page_stride = g.page_stride;
  std::vector<std::byte> bytes(stored.header_bytes);
  Store(bytes, stored);
  if (!header.metadata.empty()) {
    std::memcpy(bytes.data() + sizeof(stored), header.metadata.data(), header.metadata.size());
  }
  StoreChecksum(bytes);
  return bytes;
}

uint64_t HeaderId(std::span<const std::byte> encoded_header) { return StoredChecksum(encoded_header); }

std::array<std::byte, kContextBlock> EncodeSuperblock(const Superblock& superblock, uint64_t id) {
  StoredSuperblock stored;
  stored.id = id;
  stored.sequence = superblock.sequence;
  stored.newest = superblock.newest;
  stored.finished = superblock.finished;
  std::array<std::byte, kContextBlock> bytes{};
  Store<StoredSuperblock>(bytes, stored);
  StoreChecksum(bytes);
  return bytes;
}

std::vector<std::byte> EncodeCheckpointHead(const CheckpointHead& head, uint64_t id) {
  StoredCheckpoint stored;
  stored.id = id;
  stored.sequence = head.sequence;
  stored.offset = head.offset;
  stored.text_tokens_before = head.text_tokens_before;
  stored.text_tokens_after = head.text_tokens_after;
  stored.model_tokens_before = head.model_tokens_before;
  stored.model_tokens_after = head.model_tokens_after;
  stored.previous = head.previous;
  stored.total_bytes = head.total_bytes();
  stored.n_sections = head.sections.size();
  std::vector<std::byte> bytes(head.head_bytes());
  Store(bytes, stored);
  if (!head.sections.empty()) {
    std::memcpy(bytes.data() + sizeof(stored), head.sections.data(),
                head.sections.size() * sizeof(StoredSection));
  }
  StoreChecksum(bytes);
  return bytes;
}

CheckpointRef RefTo(const CheckpointHead& head, std::span<const std::byte> encoded) {
  return {.offset = head.offset, .head_bytes = encoded.size(), .checksum = StoredChecksum(encoded)};
}

bool BeginsLikeContextFile(std::span<const std::byte> first_block) {
  return Load<StoredHeader>(first_block).magic == kHeaderMagic;
}

Result<uint64_t> DecodeHeaderBytes(std::span<const std::byte> first_block, const std::string& path) {
  LH_CHECK(first_block.size() == kContextBlock);
  const auto stored = Load<StoredHeader>(first_block);
  if (!BeginsLikeContextFile(first_block)) {
    return InvalidInput(
        fmt::format("{} is not a context file; name one that `longheads ingest` has written", path));
  }
  if (stored.byte_order != kByteOrder) {
    return InvalidInput(
        fmt::format("{}: its header is damaged, or of a machine with another byte order", path));
  }
  if (stored.version > kContextVersion) {
    return InvalidInput(
        fmt::format("{} has version {} of the format, newer than the {} that this program reads; "
                    "use a newer longheads",
                    path, stored.version, kContextVersion));
  }
  if (stored.version < kContextVersion) {
    return InvalidInput(
        fmt::format("{} has version {} of the format, which is no longer read (it is {} now); "
                    "write the file anew",
                    path, stored.version, kContextVersion));
  }
  if (stored.header_bytes < kContextBlock || stored.header_bytes > kMostHeaderBytes ||
      stored.header_bytes % kContextBlock != 0) {
    return InvalidInput(
        fmt::format("{}: its header is damaged: it claims {} bytes", path, stored.header_bytes));
  }
  return stored.header_bytes;
}

Result<ContextHeader> DecodeHeader(std::span<const std::byte> encoded, const std::string& path) {
  if (StoredChecksum(encoded) != TrueChecksum(encoded)) {
    return InvalidInput(fmt::format("{}: its header is damaged: the checksum does not match", path));
  }
  const auto stored = Load<StoredHeader>(encoded);
  if (stored.metadata_bytes > encoded.size() - sizeof(StoredHeader) - kChecksumBytes ||
      stored.reserved != 0) {
    return InvalidInput(fmt::format("{}: its header is damaged: it claims {} bytes of metadata", path,
                                    stored.metadata_bytes));
  }
  ContextHeader header;
  header.geometry = {.n_layers = stored.n_layers,
                     .n_kv_heads = stored.n_kv_heads,
                     .head_dim = stored.head_dim,
                     .kv_type = stored.kv_type,
                     .page_tokens = stored.page_tokens,
                     .page_bytes = stored.page_bytes,
                     .page_stride = stored.page_stride};
  if (const auto problem = WhatIsWrongWith(header.geometry)) {
    return InvalidInput(fmt::format("{}: its header is damaged: {}", path, *problem));
  }
  header.metadata.assign(reinterpret_cast<const char*>(encoded.data()) + sizeof(StoredHeader),
                         stored.metadata_bytes);
  return header;
}

std::optional<Superblock> DecodeSuperblock(std::span<const std::byte> block, uint64_t slot, uint64_t id) {
  LH_CHECK(block.size() == kContextBlock);
  const auto stored = Load<StoredSuperblock>(block);
  if (stored.magic != kSuperblockMagic || StoredChecksum(block) != TrueChecksum(block) || stored.id != id ||
      stored.sequence % 2 != slot || stored.sequence > kMostSequence) {
    return std::nullopt;
  }
  return Superblock{.sequence = stored.sequence, .newest = stored.newest, .finished = stored.finished};
}

Result<CheckpointHead> DecodeCheckpointHead(std::span<const std::byte> encoded, const CheckpointRef& ref,
                                            uint64_t id, const ContextGeometry& geometry, uint64_t file_bytes,
                                            const std::string& path) {
  const auto damaged = [&](const std::string& problem) {
    return InvalidInput(
        fmt::format("{}: the checkpoint at offset {} {}; the file is damaged", path, ref.offset, problem));
  };
  if (encoded.size() < HeadBytes(0)) return damaged("is too small");
  const auto stored = Load<StoredCheckpoint>(encoded);
  if (TrueChecksum(encoded) != ref.checksum || StoredChecksum(encoded) != ref.checksum) {
    return damaged("does not match its checksum");
  }
  if (stored.magic != kCheckpointMagic) return damaged("does not begin like one");
  if (stored.id != id) return damaged("belongs to another file");
  if (stored.offset != ref.offset) return damaged("was written for another place");
  if (stored.n_sections != (encoded.size() - HeadBytes(0)) / sizeof(StoredSection) ||
      HeadBytes(stored.n_sections) != encoded.size()) {
    return damaged("counts its sections wrongly");
  }
  CheckpointHead head;
  head.sequence = stored.sequence;
  head.offset = stored.offset;
  head.text_tokens_before = stored.text_tokens_before;
  head.text_tokens_after = stored.text_tokens_after;
  head.model_tokens_before = stored.model_tokens_before;
  head.model_tokens_after = stored.model_tokens_after;
  head.previous = stored.previous;
  head.sections.resize(stored.n_sections);
  if (stored.n_sections != 0) {
    std::memcpy(head.sections.data(), encoded.data() + sizeof(stored),
                stored.n_sections * sizeof(StoredSection));
  }
  const auto total = TotalBytes(encoded.size(), head.sections);
  if (total != stored.total_bytes) return damaged("has sections of another size than it says");
  const auto end = CheckedAdd(stored.offset, *total);
  if (!end || *end > file_bytes) {
    return InvalidInput(fmt::format(
        "{} is cut off: the checkpoint at offset {} takes {}, and the file has {} bytes; copy it again", path,
        ref.offset, FormatBytes(*total), file_bytes));
  }
  if (const auto problem = WhatIsWrongWith(head, geometry)) return damaged(*problem);
  return head;
}

}  // namespace longheads
