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
  void Add(std::string_view text, TokenId id);

  // The first match at or after `from`; none that counts where `cancel` was raised meanwhile.
  Match Find(std::string_view text, size_t from, const CancelToken* cancel) const;

 private:
  static uint64_t Edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<TokenId> ids_ = {kNoToken};  // one per node; node 0 is the root
  std::array<bool, 256> begins_{};         // which bytes lead away from the root
};

}  // namespace longheads
