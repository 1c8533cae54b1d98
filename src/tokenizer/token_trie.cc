#include "tokenizer/token_trie.h"

namespace longheads {

void TokenTrie::Add(std::string_view text, TokenId id) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [edge, is_new] = edges_.try_emplace(Edge(node, byte), static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(kNoToken);
    node = edge->second;
  }
  begins_[static_cast<uint8_t>(text[0])] = true;
  if (ids_[node] == kNoToken) ids_[node] = id;
}

TokenTrie::Match TokenTrie::Find(std::string_view text, size_t from, const CancelToken* cancel) const {
  if (ids_.size() == 1) return {};
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<uint8_t>(text[begin])]) continue;
    if (Cancelled(cancel)) return {};
    Match longest;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto edge = edges_.find(Edge(node, text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (ids_[node] != kNoToken) longest = {begin, i + 1, ids_[node]};
    }
    if (longest.id != kNoToken) return longest;
  }
  return {};
}

}  // namespace longheads
