// Policy states as bytes, little-endian, so that a text can be put away and gone on with exactly: what a
// state's Save and Restore are written with, and how the parts of saves come together again. Where the bytes
// are kept, and that they come back unharmed, is another's business; but no bytes at all do harm here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/policy.h"
#include "attention/shared_blocks.h"
#include "base/result.h"

namespace longheads {

// One save of a state. Both parts begin with the state's Layout (8 bytes of length, and the text), `added`
// goes on with the tokens `from` and `n` that it is of, `latest` with `n` (8 bytes each); the rest is the
// state's own.
struct SavedState {
  std::vector<std::byte> added;   // what grew since the save before: of all saves, in their order
  std::vector<std::byte> latest;  // the small rest, which changes: of the newest save alone

  bool operator==(const SavedState&) const = default;
};

class StateWriter {
 public:
  void Int(int64_t value) { Append(&value, sizeof value); }
  // Without how many they are.
  void Ints(std::span<const int32_t> values) { Append(values.data(), values.size_bytes()); }
  void Floats(std::span<const float> values) { Append(values.data(), values.size_bytes()); }
  void Text(std::string_view text);

  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  void Append(const void* data, std::size_t n);

  std::vector<std::byte> bytes_;
};

// Reads what a writer wrote. The first thing that does not fit makes it fail: what it gives from there on is
// 0, or left as it was, so that one look at its error in the end is enough.
class StateReader {
 public:
  explicit StateReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // In [least, most]: else it fails, and this is `least`.
  int64_t Int(int64_t least, int64_t most);
  void Ints(std::span<int32_t> values) { Copy(values.data(), values.size_bytes()); }
  void Floats(std::span<float> values) { Copy(values.data(), values.size_bytes()); }
  std::string_view Text();

  // Whether so many elements of so many bytes are there; it fails where not. To be asked before room is made.
  bool Has(int64_t n, int64_t element_bytes);
  void Fail(std::string why);
  // That everything was read.
  void Finish();

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  void Copy(void* to, std::size_t n);

  std::span<const std::byte> bytes_;  // those to come
  std::string error_;
};

// Vectors of `floats` as a state keeps them: `together` of them in a block.
struct VectorBlocks {
  int64_t together;
  int64_t floats;

  int64_t BlocksFor(int64_t n) const { return (n + together - 1) / together; }
  void Write(const SharedBlocks& blocks, int64_t begin, int64_t end, StateWriter& out) const;
  // [begin, end) as written, of which [0, begin) are there; later ones go.
  void Read(StateReader& in, int64_t begin, int64_t end, SharedBlocks& blocks) const;
};

// The state of n tokens. Tokens [0, from) are as they were when it was last saved: `from` is the least number
// of tokens that the sequence held since then, 0 for all of it.
SavedState SaveState(const PolicyState& state, int64_t from, int64_t n);

// The state that saves are of: `added` of each, the oldest first, and `latest` of the newest. `fresh` is of
// the same policy and has seen no token. Refused, with a sentence, is what was saved under other sizes or by
// another program, is not of n tokens, lacks something or has too much.
Result<std::unique_ptr<PolicyState>> RestoreState(const PolicyState& fresh,
                                                  std::span<const std::span<const std::byte>> added,
                                                  std::span<const std::byte> latest, int64_t n);

}  // namespace longheads
