// A made-up text with pages and states of its own: written into a context file commit by commit, and
// compared with what is found there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/context_reader.h"
#include "formats/context_writer.h"

namespace longheads {

class SampleContext {
 public:
  // Pages of 4 tokens and 100 bytes, in 2 layers of one head; every third token is followed by an inserted
  // one.
  static ContextHeader Header();
  static uint64_t ModelTokens(uint64_t n_tokens) { return n_tokens + n_tokens / 3; }

  // Texts of another seed differ in everything but their header.
  explicit SampleContext(int seed = 0) : seed_(seed) {}

  // Writes the pages of tokens [begin, end) and commits them. Layer 0 adds to its state, layer 1 replaces it.
  Status Commit(ContextWriter& writer, uint64_t begin, uint64_t end) const;
  // Commits [ends[i - 1], ends[i]) for i from `first` on.
  Status CommitAll(ContextWriter& writer, const std::vector<uint64_t>& ends, std::size_t first = 0) const;

  // A whole file at `path`, or an error.
  Status Write(const std::string& path, const std::vector<uint64_t>& ends) const;

  // In which way this is not the text that was committed at `ends`; empty where it is. Reads all states and
  // pages.
  std::string Difference(const ContextContents& contents, const RawFile& file,
                         const std::vector<uint64_t>& ends) const;
  std::string Difference(const ContextReader& reader, const std::vector<uint64_t>& ends) const {
    return Difference(reader.contents(), reader.file(), ends);
  }

  std::vector<int32_t> Tokens(uint64_t begin, uint64_t end) const;
  std::vector<uint8_t> Phases(uint64_t begin, uint64_t end) const;
  // A page that holds `n` of its tokens.
  std::vector<std::byte> Page(uint32_t layer, uint64_t page, uint64_t n) const;
  std::vector<std::byte> State(uint32_t layer, uint64_t begin, uint64_t end) const;

 private:
  int seed_;
};

}  // namespace longheads
