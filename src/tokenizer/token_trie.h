// Finds tokens that are matched in the text itself (control and user-defined tokens): leftmost first, and the
// longest of those that begin there.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace longheads {

class TokenTrie {
 public:
  struct Match {
    size_t begin = std::string_view::npos;  // npos: there is none
    size_t end = std::string_view::npos;
    TokenId id = kNoToken;
  };

  // Of equal texts the first one stays; an empty text is ignored.
  void AddControl(std::string_view text, TokenId id) { Add(text, id, /*control=*/true); }
  void AddUserDefined(std::string_view text, TokenId id) { Add(text, id, /*control=*/false); }

  // The first match at or after `from`, where a control token shares no byte with `literal`. None that counts
  // where `cancel` was raised meanwhile.
  Match Find(std::string_view text, size_t from, ByteRange literal, const CancelToken* cancel) const;

 private:
  static uint64_t Edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

  struct Node {
    TokenId id = kNoToken;
    bool control = false;
  };

  void Add(std::string_view text, TokenId id, bool control);

  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<Node> nodes_ = {{}};  // node 0 is the root
  std::array<bool, 256> begins_{};  // which bytes lead away from the root
  bool only_control_ = true;
};

}  // namespace longheads
