#include "tokenizer/token_trie.h"

namespace longheads {

void TokenTrie::Add(std::string_view text, TokenId id, bool control) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [edge, is_new] = edges_.try_emplace(Edge(node, byte), static_cast<uint32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({});
    node = edge->second;
  }
  begins_[static_cast<uint8_t>(text[0])] = true;
  if (!control) only_control_ = false;
  if (nodes_[node].id == kNoToken) nodes_[node] = {id, control};
}

TokenTrie::Match TokenTrie::Find(std::string_view text, size_t from, ByteRange literal,
                                 const CancelToken* cancel) const {
  if (nodes_.size() == 1) return {};
  // Where there are only control tokens, a user's text is passed over at once.
  const auto skip = [&](size_t at) {
    return only_control_ && at >= literal.begin && at < literal.end ? literal.end : at;
  };
  for (size_t begin = skip(from); begin < text.size(); begin = skip(begin + 1)) {
    while (begin < text.size() && !begins_[static_cast<uint8_t>(text[begin])]) ++begin;
    if (Cancelled(cancel)) return {};
    Match longest;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto edge = edges_.find(Edge(node, text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (nodes_[node].id == kNoToken) continue;
      const bool reaches_literal = i + 1 > literal.begin && begin < literal.end;
      if (!nodes_[node].control || !reaches_literal) longest = {begin, i + 1, nodes_[node].id};
    }
    if (longest.id != kNoToken) return longest;
  }
  return {};
}

}  // namespace longheads
