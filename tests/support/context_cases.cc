#include "tests/support/context_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "formats/context_layout.h"
#include "tests/support/sample_context.h"
#include "tests/support/written_files.h"

namespace longheads {
namespace {

using Bytes = std::vector<std::byte>;

// Places of fields, as docs/context-file.md has them.
constexpr uint64_t kByteOrderAt = 8, kVersionAt = 12, kHeaderBytesAt = 16, kMetadataBytesAt = 24,
                   kLayersAt = 32, kHeadsAt = 36, kPageTokensAt = 48, kReservedAt = 52, kPageBytesAt = 56,
                   kPageStrideAt = 64;
constexpr uint64_t kSequenceAt = 16, kNewestAt = 24, kFinishedAt = 48;  // of a superblock
constexpr uint64_t kIdAt = 8, kOffsetAt = 24, kTextBeforeAt = 32, kTextAfterAt = 40, kModelBeforeAt = 48,
                   kModelAfterAt = 56, kPreviousAt = 64, kTotalAt = 88, kSectionsAt = 96, kTableAt = 104;
constexpr uint64_t kSectionBytes = 32, kHeadBytesWithoutSections = 112;
constexpr uint64_t kSlots = kContextBlock;  // the superblocks of a file whose header is one block

template <typename T = uint64_t>
T Get(const Bytes& bytes, uint64_t at) {
  LH_CHECK(at <= bytes.size() && sizeof(T) <= bytes.size() - at);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}
template <typename T = uint64_t>
void Set(Bytes& bytes, uint64_t at, T value) {
  LH_CHECK(at <= bytes.size() && sizeof(T) <= bytes.size() - at);
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}
bool Fits(const Bytes& bytes, uint64_t at, uint64_t size) {
  return at <= bytes.size() && size <= bytes.size() - at;
}
uint64_t Of(const Bytes& bytes, uint64_t at, uint64_t size) {
  return Checksum(std::span(bytes).subspan(at, size));
}

// ---- Repairing ----

class Repair {
 public:
  explicit Repair(Bytes& bytes) : bytes_(bytes) {}

  void Run() {
    if (!Fits(bytes_, 0, kContextBlock)) return;
    const auto header_bytes = Get(bytes_, kHeaderBytesAt);
    if (header_bytes < kContextBlock || header_bytes % kContextBlock != 0 ||
        !Fits(bytes_, header_bytes, 2 * kContextBlock)) {
      return;
    }
    id_ = Of(bytes_, 0, header_bytes - 8);
    Set(bytes_, header_bytes - 8, id_);
    for (uint64_t slot = 0; slot < 2; ++slot) {
      const uint64_t at = header_bytes + slot * kContextBlock;
      if (Get(bytes_, at) == 0) continue;  // never written
      Set(bytes_, at + kIdAt, id_);
      FixChain(at + kNewestAt);
      FixChain(at + kFinishedAt);
      Set(bytes_, at + kContextBlock - 8, Of(bytes_, at, kContextBlock - 8));
    }
  }

 private:
  // Of the checkpoint that the reference at `ref` names, and all before it, oldest first.
  void FixChain(uint64_t ref) {
    struct Head {
      uint64_t ref, offset, bytes;  // as found: mending what overlaps may change them
    };
    std::vector<Head> heads;
    while (Fits(bytes_, ref, 24)) {
      const Head head{ref, Get(bytes_, ref), Get(bytes_, ref + 8)};
      if (head.offset == 0 || head.bytes < kHeadBytesWithoutSections ||
          !Fits(bytes_, head.offset, head.bytes))
        break;
      heads.push_back(head);
      if (fixed_.contains(head.offset)) break;
      fixed_[head.offset] = 0;  // a circle ends here
      ref = head.offset + kPreviousAt;
    }
    for (; !heads.empty(); heads.pop_back()) {
      const Head& head = heads.back();
      if (fixed_[head.offset] == 0) fixed_[head.offset] = FixCheckpoint(head.offset, head.bytes);
      Set(bytes_, head.ref + 16, fixed_[head.offset]);
    }
  }

  uint64_t FixCheckpoint(uint64_t offset, uint64_t head_bytes) {
    Set(bytes_, offset + kIdAt, id_);
    uint64_t content = offset + head_bytes;
    for (uint64_t at = offset + kTableAt; at + kSectionBytes + 8 <= offset + head_bytes;
         at += kSectionBytes) {
      const auto size = Get(bytes_, at + 16);
      if (!Fits(bytes_, content, size)) break;
      if (Get<uint32_t>(bytes_, at) == static_cast<uint32_t>(SectionKind::kPages)) FixPages(content, size);
      Set(bytes_, at + 24, Of(bytes_, content, size));
      content += size;
    }
    const uint64_t checksum = Of(bytes_, offset, head_bytes - 8);
    Set(bytes_, offset + head_bytes - 8, checksum);
    return checksum;
  }

  void FixPages(uint64_t content, uint64_t size) {
    const auto page_bytes = Get(bytes_, kPageBytesAt);
    for (uint64_t at = content; at + 24 <= content + size; at += 24) {
      const auto page = Get(bytes_, at + 8);
      if (Fits(bytes_, page, page_bytes)) Set(bytes_, at + 16, Of(bytes_, page, page_bytes));
    }
  }

  Bytes& bytes_;
  uint64_t id_ = 0;
  std::map<uint64_t, uint64_t> fixed_;  // checkpoint -> its checksum
};

// ---- Cases ----

class CaseList {
 public:
  explicit CaseList(Bytes whole) : whole_(std::move(whole)) {
    newest_ = Get(whole_, kSlots + kFinishedAt);
    oldest_ = Get(whole_, newest_ + kPreviousAt);
    LH_CHECK(oldest_ != 0 && Get(whole_, oldest_ + kPreviousAt) == 0);
  }

  void Opens(std::string name, Bytes bytes) { cases_.push_back({std::move(name), std::move(bytes), ""}); }
  void Refused(std::string name, Bytes bytes, std::string words) {
    cases_.push_back({std::move(name), std::move(bytes), std::move(words)});
  }
  // The whole file, changed; all checksums then match.
  void Lies(std::string name, const std::function<void(Bytes&)>& change, std::string words) {
    Bytes bytes = whole_;
    change(bytes);
    RepairContextChecksums(bytes);
    Refused(std::move(name), std::move(bytes), std::move(words));
  }
  template <typename T>
  void LiesAt(std::string name, uint64_t at, T value, std::string words) {
    Lies(
        std::move(name), [&](Bytes& bytes) { Set<T>(bytes, at, value); }, std::move(words));
  }
  // In both superblocks, in both references.
  void LiesInSuperblocks(std::string name, uint64_t field, uint64_t value, std::string words) {
    Lies(
        std::move(name),
        [&](Bytes& bytes) {
          for (const uint64_t slot : {kSlots, kSlots + kContextBlock}) {
            Set(bytes, slot + kNewestAt + field, value);
            Set(bytes, slot + kFinishedAt + field, value);
          }
        },
        std::move(words));
  }

  const Bytes& whole() const { return whole_; }
  uint64_t newest() const { return newest_; }
  uint64_t oldest() const { return oldest_; }
  // The entry of the newest checkpoint's section i: tokens, phases, pages, states of layer 0 and 1.
  uint64_t Entry(uint64_t i) const { return newest_ + kTableAt + i * kSectionBytes; }
  uint64_t Content(uint64_t i) const {
    uint64_t at = newest_ + kHeadBytesWithoutSections + Get(whole_, newest_ + kSectionsAt) * kSectionBytes;
    for (uint64_t before = 0; before < i; ++before) at += Get(whole_, Entry(before) + 16);
    return at;
  }
  std::vector<ContextCase> Take() { return std::move(cases_); }

 private:
  Bytes whole_;
  uint64_t newest_ = 0;
  uint64_t oldest_ = 0;
  std::vector<ContextCase> cases_;
};

Bytes Changed(Bytes bytes, uint64_t at, uint64_t value) {
  Set(bytes, at, value);
  return bytes;
}

void AddOtherFiles(CaseList& list) {
  list.Refused("no-bytes", {}, "is empty (0 bytes)");
  const std::string_view text = "Once upon a time there was a file.";
  const auto words = std::as_bytes(std::span(text));
  list.Refused("text", {words.begin(), words.end()}, "is not a context file");
  list.Refused("zeros", Bytes(5000), "is not a context file");
  list.Refused("line-ends-changed", Changed(list.whole(), 5, 0), "is not a context file");
}

void AddBadHeaders(CaseList& list) {
  list.LiesAt<uint32_t>("other-byte-order", kByteOrderAt, 0x04030201, "another byte order");
  list.LiesAt<uint32_t>("newer-version", kVersionAt, 2, "newer than the 1 that this program reads");
  list.LiesAt<uint32_t>("newest-version", kVersionAt, ~0u, "newer than the 1 that this program reads");
  list.LiesAt<uint32_t>("older-version", kVersionAt, 0, "no longer read");
  for (const uint64_t size : {uint64_t{0}, uint64_t{5000}, uint64_t{1} << 40, ~uint64_t{0}}) {
    list.LiesAt(fmt::format("header-of-{}", size), kHeaderBytesAt, size, "its header is damaged: it claims");
  }
  list.LiesAt("header-longer-than-the-file", kHeaderBytesAt, uint64_t{1} << 20, "is cut off");
  list.LiesAt("metadata-too-long", kMetadataBytesAt, uint64_t{4096 - 72 - 8 + 1}, "bytes of metadata");
  list.LiesAt("metadata-huge", kMetadataBytesAt, ~uint64_t{0}, "bytes of metadata");
  list.LiesAt<uint32_t>("reserved-used", kReservedAt, 1, "header is damaged");
  list.LiesAt<uint32_t>("no-layers", kLayersAt, 0, "0 layers are impossible");
  list.LiesAt<uint32_t>("many-layers", kLayersAt, ~0u, "layers are impossible");
  list.LiesAt<uint32_t>("no-heads", kHeadsAt, 0, "0 key/value heads are impossible");
  list.LiesAt<uint32_t>("many-heads", kHeadsAt, ~0u, "key/value heads are impossible");
  list.LiesAt<uint32_t>("no-tokens-in-a-page", kPageTokensAt, 0, "pages of 0 tokens are impossible");
  list.LiesAt("page-of-no-bytes", kPageBytesAt, uint64_t{0}, "pages of 0 bytes");
  list.LiesAt("page-beyond-its-stride", kPageBytesAt, uint64_t{4097}, "are impossible");
  list.LiesAt("stride-too-large", kPageStrideAt, uint64_t{8192}, "are impossible");
  list.LiesAt("stride-huge", kPageStrideAt, ~uint64_t{0}, "are impossible");
  list.Refused("header-checksum", Changed(list.whole(), 200, 7), "its header is damaged: the checksum");
}

void AddBadSuperblocks(CaseList& list) {
  Bytes bytes = list.whole();
  Set(bytes, kSlots, uint64_t{0});
  list.Opens("first-superblock-damaged", bytes);
  Set(bytes, kSlots + kContextBlock, uint64_t{0});
  list.Refused("both-superblocks-damaged", bytes, "both superblocks are damaged");
  bytes = list.whole();
  Set(bytes, kSlots + kContextBlock, uint64_t{0});
  list.Opens("second-superblock-damaged", bytes);
  bytes = list.whole();
  std::swap_ranges(bytes.begin() + kSlots, bytes.begin() + kSlots + kContextBlock,
                   bytes.begin() + kSlots + kContextBlock);
  list.Refused("superblocks-swapped", bytes, "both superblocks are damaged");
  bytes = list.whole();
  for (uint64_t slot = 0; slot < 2; ++slot)
    Set(bytes, kSlots + slot * kContextBlock + kSequenceAt, kMostSequence - slot);
  RepairContextChecksums(bytes);
  list.Opens("superblocks-at-the-highest-number", bytes);
  list.LiesInSuperblocks("nothing-finished", 0, 0, "holds no finished text");
  list.LiesInSuperblocks("checkpoint-off-its-block", 0, list.newest() + 8, "lies where none can be");
  list.LiesInSuperblocks("checkpoint-in-the-header", 0, kContextBlock, "lies where none can be");
  list.LiesInSuperblocks("checkpoint-beyond-the-end", 0, uint64_t{1} << 62, "is cut off");
  list.LiesInSuperblocks("head-too-small", 8, 40, "is too small");
  list.LiesInSuperblocks("head-beyond-the-end", 8, ~uint64_t{0}, "is cut off");
  list.LiesInSuperblocks("head-longer", 8, Get(list.whole(), kSlots + kNewestAt + 8) + 32,
                         "counts its sections wrongly");
  bytes = list.whole();
  for (const uint64_t slot :
       {kSlots, kSlots + kContextBlock}) {  // of the newest checkpoint, the older one's place
    Set(bytes, slot + kFinishedAt, list.oldest());
    Set(bytes, slot + kContextBlock - 8, Of(bytes, slot, kContextBlock - 8));
  }
  list.Refused("checkpoint-at-another-place", bytes, "does not match its checksum");
  list.Lies(
      "newest-before-finished",
      [&](Bytes& changed) {
        for (const uint64_t slot : {kSlots, kSlots + kContextBlock}) {
          Set(changed, slot + kNewestAt, list.oldest());
        }
      },
      "newest checkpoint is older than the finished one");
  bytes = list.whole();
  Set(bytes, list.newest() + kTextAfterAt, uint64_t{3});
  list.Refused("checkpoint-checksum", bytes, "does not match its checksum");
}

void AddBadCheckpoints(CaseList& list) {
  const uint64_t at = list.newest();
  list.LiesAt("checkpoint-magic", at, uint64_t{0}, "does not begin like one");
  list.LiesAt("checkpoint-elsewhere", at + kOffsetAt, list.oldest(), "was written for another place");
  list.LiesAt("sections-huge", at + kSectionsAt, ~uint64_t{0}, "counts its sections wrongly");
  list.LiesAt("sections-fewer", at + kSectionsAt, uint64_t{4}, "counts its sections wrongly");
  list.LiesAt("total-other", at + kTotalAt, uint64_t{4096 * 50}, "of another size than it says");
  list.LiesAt("tokens-huge", at + kTextAfterAt, uint64_t{1} << 62, "counts its tokens wrongly");
  list.LiesAt("tokens-fewer", at + kTextAfterAt, uint64_t{0}, "counts its tokens wrongly");
  list.LiesAt("model-tokens-huge", at + kModelAfterAt, ~uint64_t{0}, "counts its tokens wrongly");
  list.LiesAt("model-tokens-fewer", at + kModelAfterAt, uint64_t{0}, "counts its tokens wrongly");
  list.LiesAt("model-tokens-more", at + kModelAfterAt, uint64_t{1} << 39, "its page table lacks pages");
  list.LiesAt("tokens-more", at + kTextAfterAt, uint64_t{8}, "another number of them than it says");
  list.LiesAt("sequence-other", at + kSequenceAt, uint64_t{3}, "is not the one before its successor");
  list.Lies(
      "before-other",
      [&](Bytes& bytes) {
        Set(bytes, at + kTextBeforeAt, Get(bytes, at + kTextBeforeAt) - 1);
        Set(bytes, at + kTextAfterAt, Get(bytes, at + kTextAfterAt) - 1);
      },
      "is not the one before its successor");
  list.LiesAt("model-before-other", at + kModelBeforeAt, uint64_t{3}, "is not the one before its successor");
  list.LiesAt("chain-lost", at + kPreviousAt, uint64_t{0}, "has lost those before it");
  list.LiesAt("chain-in-a-circle", list.oldest() + kPreviousAt, list.newest(), "the file is damaged");
  list.Lies(
      "first-does-not-begin",
      [&](Bytes& bytes) {
        const uint64_t first = list.oldest();
        Set(bytes, first + kTextBeforeAt, uint64_t{1});
        Set(bytes, first + kTextAfterAt, uint64_t{2});
        Set(bytes, at + kTextBeforeAt, uint64_t{2});
        Set(bytes, at + kTextAfterAt, Get(bytes, at + kTextAfterAt) + 1);
      },
      "has lost those before it");
}

void AddBadSections(CaseList& list) {
  list.LiesAt<uint32_t>("section-unknown", list.Entry(3), 5, "is of an unknown kind");
  list.LiesAt<uint32_t>("section-kind-0", list.Entry(3), 0, "is of an unknown kind");
  list.LiesAt<uint32_t>("section-kind-huge", list.Entry(3), ~0u, "is of an unknown kind");
  list.LiesAt<uint32_t>("section-layer", list.Entry(3) + 4, 2, "of a layer that does not exist");
  list.LiesAt<uint32_t>("tokens-with-a-layer", list.Entry(0) + 4, 1, "of a layer that does not exist");
  list.LiesAt<uint32_t>("section-flags", list.Entry(4) + 8, 3, "has unknown flags");
  list.LiesAt<uint32_t>("tokens-with-flags", list.Entry(0) + 8, 1, "has unknown flags");
  list.LiesAt<uint32_t>("section-reserved", list.Entry(3) + 12, 1, "has unknown flags");
  list.LiesAt<uint32_t>("no-pages", list.Entry(2), static_cast<uint32_t>(SectionKind::kState),
                        "lacks its tokens, phases or pages");
  list.Lies(
      "phases-twice",
      [&](Bytes& bytes) {
        const uint64_t of_phases = Get(bytes, list.Entry(1) + 16);
        const uint64_t of_state = Get(bytes, list.Entry(3) + 16);
        Set(bytes, list.Entry(3), static_cast<uint32_t>(SectionKind::kPhases));
        Set(bytes, list.Entry(3) + 16, of_phases);
        Set(bytes, list.Entry(4) + 16, Get(bytes, list.Entry(4) + 16) + of_state - of_phases);
      },
      "two sections of one kind");
  list.LiesAt("section-huge", list.Entry(4) + 16, uint64_t{1} << 63, "of another size than it says");
  list.LiesAt("section-overflows", list.Entry(4) + 16, ~uint64_t{0}, "of another size than it says");
  list.Lies(
      "section-beyond-the-end",
      [&](Bytes& bytes) {
        Set(bytes, list.Entry(4) + 16, Get(bytes, list.Entry(4) + 16) + (uint64_t{1} << 40));
        Set(bytes, list.newest() + kTotalAt, Get(bytes, list.newest() + kTotalAt) + (uint64_t{1} << 40));
      },
      "is cut off");
  const auto moves = [&](uint64_t from, uint64_t to, uint64_t n) {
    return [=, &list](Bytes& bytes) {
      Set(bytes, list.Entry(from) + 16, Get(bytes, list.Entry(from) + 16) - n);
      Set(bytes, list.Entry(to) + 16, Get(bytes, list.Entry(to) + 16) + n);
    };
  };
  list.Lies("phases-fewer", moves(1, 2, 1), "of phases has another number");
  list.Lies("pages-end-inside", moves(2, 3, 1), "ends inside an entry");
  list.Lies("pages-fewer", moves(2, 3, 24), "its page table lacks pages");
  const uint64_t entries = list.Content(2);
  list.LiesAt("slot-beyond", entries, uint64_t{1} << 40, "names a page that cannot be");
  list.LiesAt("slot-twice", entries + 2 * 24, Get(list.whole(), entries + 3 * 24),
              "its page table lacks pages");
  list.LiesAt("page-at-0", entries + 8, uint64_t{0}, "names a page that cannot be");
  list.LiesAt("page-off-its-block", entries + 8, Get(list.whole(), entries + 8) + 8,
              "names a page that cannot be");
  list.LiesAt("page-in-its-checkpoint", entries + 8, list.newest(), "names a page that cannot be");
  list.LiesAt("page-beyond", entries + 8, ~uint64_t{4095}, "names a page that cannot be");
  for (const auto& [section, words] :
       {std::pair{0, "the tokens of"}, std::pair{1, "the phases of"}, std::pair{2, "the page table of"}}) {
    Bytes bytes = list.whole();
    bytes[list.Content(static_cast<uint64_t>(section))] ^= std::byte{1};
    list.Refused(fmt::format("section-{}-checksum", section), std::move(bytes), words);
  }
}

void AddCutFiles(CaseList& list) {
  const Bytes& whole = list.whole();
  for (const uint64_t size :
       {uint64_t{8}, uint64_t{100}, kContextBlock, 2 * kContextBlock, 3 * kContextBlock - 1}) {
    list.Refused(fmt::format("cut-at-{}", size),
                 {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}, "cut off");
  }
  for (uint64_t size = 3 * kContextBlock; size < whole.size(); size += kContextBlock) {
    list.Refused(fmt::format("cut-at-{}", size),
                 {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}, "cut off");
  }
  list.Refused("cut-by-a-byte", {whole.begin(), whole.end() - 1}, "cut off");
}

// Writes a file of this name, and gives its bytes.
Bytes Made(const std::string& folder, const std::function<Status(const std::string& path)>& write) {
  const std::filesystem::path inside = std::filesystem::path(folder) / "context-cases";
  std::filesystem::create_directory(inside);
  const Status status = write((inside / "a").string());
  LH_CHECK(status.has_value());
  FolderImage image = ReadFolder(inside.string());
  LH_CHECK(image.size() == 1);
  std::filesystem::remove_all(inside);
  return std::move(image.begin()->second);
}

}  // namespace

std::vector<ContextCase> ContextCases(const std::string& folder) {
  const SampleContext sample;
  // The newest checkpoint writes an open page again.
  CaseList list(Made(folder, [&](const std::string& path) { return sample.Write(path, {1, 6}); }));
  list.Opens("whole", list.whole());
  Bytes longer = list.whole();
  longer.resize(longer.size() + 5000, std::byte{1});
  list.Opens("longer", std::move(longer));
  list.Opens("one-commit", Made(folder, [&](const std::string& path) { return sample.Write(path, {5}); }));
  list.Opens("no-tokens", Made(folder, [&](const std::string& path) { return sample.Write(path, {0}); }));
  list.Opens("many-commits", Made(folder, [&](const std::string& path) {
               return sample.Write(path, {1, 2, 3, 4, 6, 9, 9, 20});
             }));
  list.Opens("append-interrupted", Made(folder, [&](const std::string& path) -> Status {
               LH_TRY(sample.Write(path, {4}));
               LH_ASSIGN(auto append, ContextWriter::Append(path, ContextWriter::From::kFinished, false));
               return sample.CommitAll(*append.writer, {4, 7}, 1);
             }));
  list.Refused("not-finished",
               Made(folder,
                    [&](const std::string& path) -> Status {
                      LH_ASSIGN(auto writer, ContextWriter::Create(path, SampleContext::Header(), {}));
                      return sample.CommitAll(*writer, {4, 7});
                    }),
               "holds no finished text");
  list.Refused("begun",
               Made(folder,
                    [&](const std::string& path) -> Status {
                      LH_ASSIGN(auto writer, ContextWriter::Create(path, SampleContext::Header(), {}));
                      // As a kill leaves it: the writer would take it along.
                      std::filesystem::copy_file(ContextWriter::PartialPath(path), path);
                      return {};
                    }),
               "holds no finished text");
  AddOtherFiles(list);
  AddBadHeaders(list);
  AddBadSuperblocks(list);
  AddBadCheckpoints(list);
  AddBadSections(list);
  AddCutFiles(list);
  return list.Take();
}

void RepairContextChecksums(std::vector<std::byte>& bytes) { Repair(bytes).Run(); }

// Pairs of u16 numbers: so many bytes that follow, and then so many zeros.
std::vector<std::byte> SqueezeZeros(std::span<const std::byte> bytes) {
  constexpr std::size_t kMost = 0xFFFF;
  constexpr std::size_t kWorthIt = 16;
  Bytes squeezed;
  while (!bytes.empty()) {
    std::size_t n = 0;  // bytes, the last `zeros` of which are zeros
    std::size_t zeros = 0;
    while (n < bytes.size() && n < kMost && zeros < kWorthIt)
      zeros = bytes[n++] == std::byte{0} ? zeros + 1 : 0;
    if (zeros < kWorthIt) zeros = 0;
    n -= zeros;
    while (zeros > 0 && n + zeros < bytes.size() && zeros < kMost && bytes[n + zeros] == std::byte{0})
      ++zeros;
    for (const std::size_t number : {n, zeros}) {
      squeezed.push_back(static_cast<std::byte>(number & 0xFF));
      squeezed.push_back(static_cast<std::byte>(number >> 8));
    }
    squeezed.insert(squeezed.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes = bytes.subspan(n + zeros);
  }
  return squeezed;
}

std::vector<std::byte> ExpandZeros(std::span<const std::byte> squeezed) {
  constexpr std::size_t kMost = 1 << 20;
  Bytes bytes;
  while (squeezed.size() >= 4 && bytes.size() < kMost) {
    const auto number = [&](std::size_t at) {
      return static_cast<std::size_t>(squeezed[at]) | static_cast<std::size_t>(squeezed[at + 1]) << 8;
    };
    const std::size_t n = std::min(number(0), squeezed.size() - 4);
    const std::size_t zeros = number(2);
    const auto literal = squeezed.subspan(4, n);
    bytes.insert(bytes.end(), literal.begin(), literal.end());
    bytes.resize(bytes.size() + zeros);
    squeezed = squeezed.subspan(4 + n);
  }
  return bytes;
}

}  // namespace longheads
