// Byte-level BPE (GGUF's "gpt2"), after the tokenizer published with GPT-2: a text is cut into words, and
// inside each word the adjacent pair of lowest rank merges until none is left. Ids equal Hugging Face's
// `tokenizers`.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

class BpeTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<const Tokenizer>> Create(Vocabulary vocabulary);

  Result<std::vector<TokenId>> Encode(std::string_view text, EncodeOptions options) const override;
  std::string TokenBytes(TokenId id, bool special) const override;
  Result<size_t> BytesWithoutToken(std::string_view text, const CancelToken* cancel) const override;

 private:
  struct Merge {
    uint32_t rank;
    TokenId result;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const;
  };
  class WordCache;

  BpeTokenizer(Vocabulary vocabulary, PreTokenizer pre_tokenizer);
  Status ReadMerges();
  Status EncodeText(std::string_view text, const CancelToken* cancel, WordCache& cache,
                    std::vector<TokenId>& ids) const;
  Status EncodeWord(std::string_view word, const CancelToken* cancel, std::vector<TokenId>& ids) const;
  const Merge* FindMerge(TokenId left, TokenId right) const;

  PreTokenizer pre_tokenizer_;
  std::array<TokenId, 256> byte_tokens_;  // kNoToken: the vocabulary has no token for this byte
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
  std::unordered_map<std::string, TokenId> whole_words_;  // only where merges are ignored
  TokenTrie specials_;                                    // user-defined and control tokens
};

}  // namespace longheads
