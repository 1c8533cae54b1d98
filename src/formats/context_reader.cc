#include "formats/context_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "base/memory.h"
#include "formats/context_writer.h"

namespace longheads {
namespace {

constexpr std::size_t kMostSentences = 100;

// Sentences of several threads, in the order of what they speak of.
class Findings {
 public:
  void Add(uint64_t place, std::string sentence) {
    const std::lock_guard lock(mutex_);
    found_.emplace_back(place, std::move(sentence));
    // Which are kept must not depend on which thread was first.
    std::sort(found_.begin(), found_.end());
    if (found_.size() > kMostSentences) found_.pop_back();
  }
  std::vector<std::string> Take() {
    std::vector<std::string> sentences;
    for (auto& [place, sentence] : found_) sentences.push_back(std::move(sentence));
    return sentences;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, std::string>> found_;
};

}  // namespace

Result<ContextReader> ContextReader::Open(const std::string& path, Options options) {
  LH_ASSIGN(RawFile file, OpenFile(path, options.direct));
  return FromFile(std::move(file), options.which);
}

Result<RawFile> ContextReader::OpenFile(const std::string& path, bool direct) {
  Result<RawFile> file = RawFile::Open(path, {.mode = RawFile::Mode::kRead, .direct = direct});
  if (file) return file;
  const std::string partial = ContextWriter::PartialPath(path);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown) && std::filesystem::exists(partial, unknown)) {
    return InvalidInput(fmt::format(
        "{}: there is no finished text yet, but {}: if its writer was interrupted, the same command again "
        "goes on with it",
        path, partial));
  }
  return file;
}

Result<ContextReader> ContextReader::FromFile(RawFile file, Which which) {
  LH_ASSIGN(ContextFrame frame, ReadContextFrame(file));
  const CheckpointRef ref = which == Which::kFinished ? frame.superblock.finished : frame.superblock.newest;
  if (!ref.exists()) {
    return InvalidInput(fmt::format(
        "{} holds no finished text: its writer was interrupted; let it finish first", file.path()));
  }
  LH_ASSIGN(ContextChain chain, ReadContextContents(file, frame, ref));
  return ContextReader(std::move(file), std::move(frame), std::move(chain));
}

Result<uint64_t> ContextReader::FinishedTokens() const {
  if (!has_unfinished()) return contents().tokens.size();
  const CheckpointRef& finished = frame_.superblock.finished;
  if (!finished.exists()) return 0;
  LH_ASSIGN(const ContextChain chain, ReadContextContents(file_, frame_, finished));
  return chain.contents.tokens.size();
}

Result<std::vector<std::string>> ContextReader::Verify(ThreadPool& pool, const Progress& progress) const {
  const ContextGeometry& geometry = header().geometry;
  Findings findings;
  for (uint64_t slot = 0; slot < 2; ++slot) {
    if (frame_.superblocks[slot]) continue;
    findings.Add(0, fmt::format("{}: superblock {} is damaged; the other one serves", file_.path(), slot));
  }
  const auto check_layer = [&](int64_t layer, int) {
    for (const ContextStatePart& part : contents().states[static_cast<std::size_t>(layer)]) {
      const auto state = ReadState(part);
      if (!state) findings.Add(part.offset, fmt::format("{} (layer {})", state.error().message, layer));
    }
  };
  pool.Run(static_cast<int64_t>(contents().states.size()), check_layer);

  // Without pages nothing shows that the file is as large as one.
  if (contents().pages.empty()) return findings.Take();
  // In the order of the disk, some at a time so that the caller hears of it.
  const std::vector<ContextPage>& pages = contents().pages;
  std::vector<uint64_t> order(pages.size());
  for (uint64_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](uint64_t a, uint64_t b) { return pages[a].offset < pages[b].offset; });
  std::vector<AlignedMemory> buffers;
  for (int thread = 0; thread < pool.n_threads(); ++thread)
    buffers.push_back(AllocateAligned(geometry.page_stride, kDirectAlignment));
  const auto check_page = [&](uint64_t slot, int thread) {
    const std::span bytes(buffers[static_cast<std::size_t>(thread)].get(), geometry.page_stride);
    const ContextPage& page = pages[slot];
    const Status read = file_.PRead(page.offset, bytes);
    if (read && Checksum(bytes.first(geometry.page_bytes)) == page.checksum) return;
    const uint64_t head = slot % geometry.heads();
    findings.Add(page.offset,
                 fmt::format("{}: page {} of layer {}, head {} at offset {}: {}", file_.path(),
                             slot / geometry.heads(), head / geometry.n_kv_heads, head % geometry.n_kv_heads,
                             page.offset, read ? "does not match its checksum" : read.error().message));
  };
  constexpr uint64_t kPagesPerReport = 1024;
  for (uint64_t begin = 0; begin < order.size(); begin += kPagesPerReport) {
    if (progress && !progress(begin, order.size())) {
      return MakeError(ErrorKind::kCancelled, fmt::format("{}: the check was stopped", file_.path()));
    }
    const uint64_t n = std::min<uint64_t>(kPagesPerReport, order.size() - begin);
    pool.Run(static_cast<int64_t>(n),
             [&](int64_t i, int thread) { check_page(order[begin + static_cast<uint64_t>(i)], thread); });
  }
  if (progress) progress(order.size(), order.size());
  return findings.Take();
}

}  // namespace longheads
