#include "tests/support/sample_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/checksum.h"

namespace longheads {
namespace {

constexpr uint32_t kPageTokens = 4;
constexpr uint32_t kLayers = 2;
constexpr uint64_t kPageBytes = 100;

uint64_t Mixed(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t x =
      a * 0x9e3779b97f4a7c15 + b * 0xbf58476d1ce4e5b9 + c * 0x94d049bb133111eb + d * 0xd6e8feb86659fd93;
  x ^= x >> 31;
  x *= 0x94d049bb133111eb;
  return x ^ x >> 29;
}

std::vector<std::byte> Bytes(std::size_t size, uint64_t a, uint64_t b, uint64_t c) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(Mixed(a, b, c, i));
  return bytes;
}

uint64_t TokensInPage(uint64_t page, uint64_t n_tokens) {
  return std::min<uint64_t>(kPageTokens, n_tokens - page * kPageTokens);
}

}  // namespace

ContextHeader SampleContext::Header() {
  return {.geometry = {.n_layers = kLayers,
                       .n_kv_heads = 1,
                       .head_dim = 6,
                       .kv_type = 1,
                       .page_tokens = kPageTokens,
                       .page_bytes = kPageBytes,
                       .page_stride = kContextBlock},
          .metadata = R"({"model":"sample","attention":"full"})"};
}

std::vector<int32_t> SampleContext::Tokens(uint64_t begin, uint64_t end) const {
  std::vector<int32_t> tokens;
  for (uint64_t i = begin; i < end; ++i) {
    tokens.push_back(static_cast<int32_t>(Mixed(1, i, static_cast<uint64_t>(seed_), 0) % 50000));
  }
  return tokens;
}

std::vector<uint8_t> SampleContext::Phases(uint64_t begin, uint64_t end) const {
  std::vector<uint8_t> phases;
  for (uint64_t i = begin; i < end; ++i) phases.push_back(i % 5 == 4 ? 1 : 0);
  return phases;
}

std::vector<std::byte> SampleContext::Page(uint32_t layer, uint64_t page, uint64_t n) const {
  return Bytes(kPageBytes, 2 + layer, page, n + 100 * static_cast<uint64_t>(seed_));
}

std::vector<std::byte> SampleContext::State(uint32_t layer, uint64_t begin, uint64_t end) const {
  return Bytes(7 + 3 * layer + (end - begin), 10 + layer, begin, end + 100 * static_cast<uint64_t>(seed_));
}

Status SampleContext::Commit(ContextWriter& writer, uint64_t begin, uint64_t end) const {
  const uint64_t before = ModelTokens(begin);
  const uint64_t after = ModelTokens(end);
  const uint64_t first = before / kPageTokens;
  const uint64_t n_pages = after > before ? writer.header().geometry.PagesFor(after) - first : 0;
  const uint64_t offset = writer.AllotPages(n_pages * kLayers);
  std::vector<ContextPageUpdate> pages;
  for (uint64_t page = first; page < first + n_pages; ++page) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const std::vector<std::byte> bytes = Page(layer, page, TokensInPage(page, after));
      const uint64_t at = offset + pages.size() * kContextBlock;
      LH_TRY(writer.file().PWrite(at, bytes));
      pages.push_back(
          {.layer = layer, .kv_head = 0, .page = page, .offset = at, .checksum = Checksum(bytes)});
    }
  }
  const std::vector<int32_t> tokens = Tokens(begin, end);
  const std::vector<uint8_t> phases = Phases(begin, end);
  const auto states = [&](const ContextStateSink& take) -> Status {
    LH_TRY(take({.layer = 0, .bytes = State(0, begin, end)}));
    return take({.layer = 1, .replaces_earlier = true, .bytes = State(1, begin, end)});
  };
  return writer.Commit(
      {.tokens = tokens, .phases = phases, .model_tokens = after, .pages = pages, .states = states});
}

Status SampleContext::CommitAll(ContextWriter& writer, const std::vector<uint64_t>& ends,
                                std::size_t first) const {
  for (std::size_t i = first; i < ends.size(); ++i) LH_TRY(Commit(writer, i == 0 ? 0 : ends[i - 1], ends[i]));
  return {};
}

Status SampleContext::Write(const std::string& path, const std::vector<uint64_t>& ends) const {
  LH_ASSIGN(auto writer, ContextWriter::Create(path, Header(), {}));
  LH_TRY(CommitAll(*writer, ends));
  return writer->Finish();
}

std::string SampleContext::Difference(const ContextContents& contents, const RawFile& file,
                                      const std::vector<uint64_t>& ends) const {
  const uint64_t n = ends.empty() ? 0 : ends.back();
  const uint64_t n_model = ModelTokens(n);
  if (contents.tokens != Tokens(0, n))
    return fmt::format("other tokens ({}, not {})", contents.tokens.size(), n);
  if (contents.phases != Phases(0, n)) return "other phases";
  if (contents.model_tokens != n_model) return "another count of the model's tokens";
  const ContextGeometry geometry = Header().geometry;
  if (contents.pages.size() != geometry.PagesFor(n_model) * kLayers) return "another number of pages";
  for (uint64_t page = 0; page < geometry.PagesFor(n_model); ++page) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const ContextPage& found = contents.page(geometry, layer, 0, page);
      std::vector<std::byte> bytes(kPageBytes);
      if (!file.PRead(found.offset, bytes)) return fmt::format("page {} cannot be read", page);
      if (bytes != Page(layer, page, TokensInPage(page, n_model)))
        return fmt::format("another page {}", page);
      if (Checksum(bytes) != found.checksum) return "another checksum of a page";
    }
  }
  std::vector<std::vector<std::vector<std::byte>>> states(kLayers);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    states[0].push_back(State(0, begin, ends[i]));
    states[1] = {State(1, begin, ends[i])};
  }
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    if (contents.states[layer].size() != states[layer].size()) return "another number of states";
    for (std::size_t i = 0; i < states[layer].size(); ++i) {
      const auto state = ReadStatePart(file, contents.states[layer][i]);
      if (!state || *state != states[layer][i]) return fmt::format("another state of layer {}", layer);
    }
  }
  return "";
}

}  // namespace longheads
