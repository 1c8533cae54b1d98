// Text to token ids and back: byte-level BPE (GGUF's "gpt2") and SPM with byte fallback (GGUF's "llama").
// File formats are read elsewhere: the vocabulary comes as plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace longheads {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Vocabulary {
  enum class Model { kBpe, kSpm };
  Model model = Model::kBpe;
  std::string pre_tokenizer;        // BPE: "smollm", "llama-bpe", "qwen2", "gpt-2", "default"
  std::vector<std::string> tokens;  // BPE: in the byte-level alphabet; SPM: with U+2581 for a space
  std::vector<TokenType> types;     // empty (all normal), or one per token
  std::vector<float> scores;        // SPM: one per token
  std::vector<std::string> merges;  // BPE: "left right", in order of rank
  TokenId bos = kNoToken, eos = kNoToken, unknown = kNoToken;
  std::vector<TokenId> end_of_generation;  // every id that ends an answer (eos, <|im_end|>, <|eot_id|>)
  bool add_bos = false, add_eos = false, add_space_prefix = true;  // the last: SPM only
};

// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0, end = 0;
};

struct EncodeOptions {
  // Text like "<|im_start|>" becomes the control token instead of plain characters. User-defined tokens are
  // found in any case. In SPM what follows a control token begins with a space anew, as sentencepiece,
  // llama.cpp and Hugging Face's Llama tokenizer have it. (Where a checkpoint's tokenizer_config.json says
  // "legacy": false, Hugging Face puts a space at the start of the text alone; a GGUF file does not say which
  // it was made from.)
  bool parse_special = false;
  // Where control tokens stay text even so: somebody's words inside a template. What encloses a range does
  // not tell in any other way, so the ids are those of one text.
  ByteRange literal = {};
  bool add_special = false;  // BOS and EOS at the ends as the vocabulary asks for them
  bool add_bos = false;      // BOS alone: a prompt is to be continued
  bool goes_on = false;  // the text follows another one: SPM puts no space of its own before its first word
  const CancelToken* cancel = nullptr;  // gives ErrorKind::kCancelled soon after it is raised
};

class Tokenizer {
 public:
  // Refuses by name what it does not know (a pre-tokenizer), and a vocabulary that contradicts itself.
  static Result<std::unique_ptr<const Tokenizer>> Create(Vocabulary vocabulary);
  virtual ~Tokenizer() = default;

  // Invalid UTF-8 becomes U+FFFD (one per maximal ill-formed part, as Unicode recommends). Nothing else of
  // the text is changed: in particular there is no Unicode normalisation, so decoding gives the text back.
  // (Qwen2's tokenizer on Hugging Face composes to NFC first; a caller who wants its ids for decomposed text
  // composes it.) Safe to call from several threads.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text, EncodeOptions options) const = 0;

  // The bytes one token stands for; control tokens give nothing unless `special`. An SPM token's leading
  // space is kept. Ids outside the vocabulary give nothing.
  virtual std::string TokenBytes(TokenId id, bool special) const = 0;

  // The text of a sequence: the tokens' bytes, with ill-formed UTF-8 made U+FFFD, and (SPM) without the space
  // that encoding put in front.
  std::string Decode(std::span<const TokenId> ids, bool special) const;

  // How many bytes of `text` no token stands for. Encode leaves them out (BPE, as Hugging Face does) or makes
  // them the unknown token (SPM), so a caller that must not lose text asks first. Small vocabularies lack a
  // few bytes: SmolLM2's has none for six control characters and for planes 4 to 11, all unassigned.
  virtual Result<size_t> BytesWithoutToken(std::string_view text,
                                           const CancelToken* cancel = nullptr) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  bool IsEndOfGeneration(TokenId id) const;

 protected:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  TokenType Type(TokenId id) const;  // of an id inside the vocabulary
  static tl::unexpected<Error> Stopped() { return MakeError(ErrorKind::kCancelled, "stopped"); }
  // What Encode works on: the text with ill-formed UTF-8 replaced (then it lies in `repaired`), and where in
  // it control tokens stay text.
  struct Input {
    std::string_view text;
    ByteRange literal;
  };
  static Input Prepare(std::string_view text, const EncodeOptions& options, std::string& repaired);
  // What to look at while one word is encoded: only a very long one takes a time in which to be stopped.
  static const CancelToken* WithinWord(std::string_view word, const CancelToken* cancel) {
    return word.size() < 4096 ? nullptr : cancel;
  }
  Vocabulary vocabulary_;
};

// Decodes token by token and holds back the bytes of a character that is not complete yet.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer, bool special = false);
  std::string Push(TokenId id);  // whole characters only; may be empty
  std::string Finish();          // what is left, an incomplete character as U+FFFD

 private:
  const Tokenizer& tokenizer_;
  bool special_;
  bool first_ = true;
  std::string pending_;
};

}  // namespace longheads
