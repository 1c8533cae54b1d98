// SPM (GGUF's "llama"), after sentencepiece's BPE model: in a text whose spaces became U+2581, the adjacent
// pair whose union is the token of highest score merges until none is left; characters without a token become
// their bytes, <0xXX>. Ids equal sentencepiece's.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace longheads {

class SpmTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<const Tokenizer>> Create(Vocabulary vocabulary);

  Result<std::vector<TokenId>> Encode(std::string_view text, EncodeOptions options) const override;
  std::string TokenBytes(TokenId id, bool special) const override;
  Result<size_t> BytesWithoutToken(std::string_view text, const CancelToken* cancel) const override;

 private:
  explicit SpmTokenizer(Vocabulary vocabulary);
  Status ReadTokens();
  Status EncodeSegment(std::string_view text, bool goes_on, const CancelToken* cancel,
                       std::vector<TokenId>& ids) const;
  Status EncodePieces(std::string_view text, const CancelToken* cancel, std::vector<TokenId>& ids) const;
  Status MergePieces(std::string_view text, const CancelToken* cancel, std::vector<TokenId>& ids) const;
  bool HasByteTokens(std::string_view character) const;

  std::unordered_map<std::string_view, TokenId>
      pieces_;  // normal and user-defined; views of vocabulary_.tokens
  std::array<TokenId, 256> byte_tokens_;
  size_t longest_piece_ = 0;             // bytes
  bool pieces_end_before_space_ = true;  // no piece holds a space after another character
  TokenTrie user_defined_;               // looked for in the normalised text
  TokenTrie control_;                    // looked for in the text as given
};

}  // namespace longheads
