#include "tokenizer/bpe.h"

#include <fmt/core.h>

#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "tokenizer/utf8.h"

namespace longheads {
namespace {

// The byte-level alphabet: GPT-2 gives every byte a printable character, so that tokens can be written as
// text. Bytes that are printable in Latin-1 stand for themselves, the others follow from U+0100 in order.
struct ByteAlphabet {
  std::array<std::string, 256> characters;                // byte -> its character, in UTF-8
  std::unordered_map<std::string_view, uint8_t> letters;  // and back
  ByteAlphabet() {
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      AppendUtf8(printable ? static_cast<char32_t>(byte) : next++, characters[byte]);
    }
    for (int byte = 0; byte < 256; ++byte) letters.emplace(characters[byte], static_cast<uint8_t>(byte));
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

// The bytes that a text in the alphabet stands for; none where a character is not of the alphabet.
std::optional<std::string> BytesOfAlphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const std::string_view character = text.substr(0, NextUtf8(text).bytes);
    const auto letter = Alphabet().letters.find(character);
    if (letter == Alphabet().letters.end()) return std::nullopt;
    bytes.push_back(static_cast<char>(letter->second));
    text.remove_prefix(character.size());
  }
  return bytes;
}

uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// One token of a word while it merges; a linked list, since merging takes from the middle.
struct Symbol {
  TokenId id;  // kNoToken: merged into its left neighbour
  int32_t previous, next;
};

struct Candidate {
  uint32_t rank;
  int32_t left;  // index of the left symbol
  TokenId left_id, right_id;
};
struct LaterMerge {  // the lowest rank first, and the leftmost of equal ones
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

// Longer words are rare, and a cache of them would grow with the text.
constexpr size_t kMaxCachedWordBytes = 64;
constexpr size_t kMaxCachedWords = 1 << 16;

}  // namespace

// The words met in one call, and where in its output their tokens are.
class BpeTokenizer::WordCache {
 public:
  // Appends the tokens of a word that was met before.
  bool Take(std::string_view word, std::vector<TokenId>& ids) const {
    const auto found = ranges_.find(word);
    if (found == ranges_.end()) return false;
    for (size_t i = 0; i < found->second.count; ++i) {
      const TokenId id = ids[found->second.begin + i];  // a copy: `ids` moves as it grows
      ids.push_back(id);
    }
    return true;
  }
  void Put(std::string_view word, size_t begin, size_t count) {
    if (word.size() <= kMaxCachedWordBytes && ranges_.size() < kMaxCachedWords)
      ranges_[word] = {begin, count};
  }

 private:
  struct Range {
    size_t begin, count;
  };
  std::unordered_map<std::string_view, Range> ranges_;
};

size_t BpeTokenizer::PairHash::operator()(uint64_t pair) const {
  pair *= 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio: spreads close ids over the high bits
  return static_cast<size_t>(pair ^ pair >> 32);
}

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary, PreTokenizer pre_tokenizer)
    : Tokenizer(std::move(vocabulary)), pre_tokenizer_(std::move(pre_tokenizer)) {
  byte_tokens_.fill(kNoToken);
}

Result<std::unique_ptr<const Tokenizer>> BpeTokenizer::Create(Vocabulary vocabulary) {
  LH_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::Create(vocabulary.pre_tokenizer));
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(vocabulary), std::move(pre_tokenizer)));
  LH_TRY(tokenizer->ReadMerges());
  const Vocabulary& v = tokenizer->vocabulary_;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = tokenizer->Type(id);
    if (type == TokenType::kUserDefined) tokenizer->specials_.AddUserDefined(v.tokens[i], id);
    if (type == TokenType::kControl || type == TokenType::kUnknown)
      tokenizer->specials_.AddControl(v.tokens[i], id);
    if (tokenizer->pre_tokenizer_.ignores_merges() && type == TokenType::kNormal) {
      const std::optional<std::string> bytes = BytesOfAlphabet(v.tokens[i]);
      if (bytes) tokenizer->whole_words_.emplace(*bytes, id);
    }
  }
  return std::unique_ptr<const Tokenizer>(std::move(tokenizer));
}

Status BpeTokenizer::ReadMerges() {
  if (vocabulary_.merges.size() > std::numeric_limits<uint32_t>::max()) {
    return InvalidInput("the vocabulary lists more merges than can be counted");
  }
  std::unordered_map<std::string_view, TokenId> ids;
  ids.reserve(vocabulary_.tokens.size());
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    ids.emplace(vocabulary_.tokens[i], static_cast<TokenId>(i));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto token = ids.find(Alphabet().characters[byte]);
    if (token != ids.end()) byte_tokens_[byte] = token->second;
  }
  merges_.reserve(vocabulary_.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const std::string_view text = vocabulary_.merges[rank];
    const size_t space = text.find(' ');
    const auto refuse = [&](std::string_view why) {
      return InvalidInput(fmt::format("merge {} of the vocabulary, \"{}\", {}", rank, text, why));
    };
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return refuse("is not two tokens with one space between them");
    }
    const auto left = ids.find(text.substr(0, space));
    const auto right = ids.find(text.substr(space + 1));
    joined.assign(text.substr(0, space)).append(text.substr(space + 1));
    const auto result = ids.find(joined);
    if (left == ids.end() || right == ids.end() || result == ids.end()) {
      return refuse("names a token that the vocabulary does not have");
    }
    merges_[PairKey(left->second, right->second)] = {static_cast<uint32_t>(rank), result->second};
  }
  return {};
}

const BpeTokenizer::Merge* BpeTokenizer::FindMerge(TokenId left, TokenId right) const {
  const auto merge = merges_.find(PairKey(left, right));
  return merge == merges_.end() ? nullptr : &merge->second;
}

Status BpeTokenizer::EncodeWord(std::string_view word, const CancelToken* cancel,
                                std::vector<TokenId>& ids) const {
  cancel = WithinWord(word, cancel);
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char byte : word) {
    if (Cancelled(cancel)) return Stopped();
    const TokenId id = byte_tokens_[static_cast<uint8_t>(byte)];
    const auto index = static_cast<int32_t>(symbols.size());
    if (id != kNoToken) symbols.push_back({id, index - 1, index + 1});
  }
  if (symbols.empty()) return {};
  symbols.back().next = -1;

  std::priority_queue<Candidate, std::vector<Candidate>, LaterMerge> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const TokenId left_id = symbols[left].id;
    const TokenId right_id = symbols[symbols[left].next].id;
    if (const Merge* merge = FindMerge(left_id, right_id)) queue.push({merge->rank, left, left_id, right_id});
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) {
    if (Cancelled(cancel)) return Stopped();
    consider(i);
  }

  while (!queue.empty()) {
    if (Cancelled(cancel)) return Stopped();
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next < 0) continue;  // one of the two has merged with another since
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = FindMerge(best.left_id, best.right_id)->result;
    right.id = kNoToken;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
  return {};
}

Status BpeTokenizer::EncodeText(std::string_view text, const CancelToken* cancel, WordCache& cache,
                                std::vector<TokenId>& ids) const {
  return pre_tokenizer_.Split(text, cancel, [&](std::string_view word) -> Status {
    if (word.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      return Unsupported(
          fmt::format("one word of the text has {} bytes; words above 2 GiB cannot be encoded", word.size()));
    }
    if (cache.Take(word, ids)) return {};
    const size_t begin = ids.size();
    const auto whole = whole_words_.empty() ? whole_words_.end() : whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) {
      ids.push_back(whole->second);
    } else {
      LH_TRY(EncodeWord(word, cancel, ids));
    }
    cache.Put(word, begin, ids.size() - begin);
    return {};
  });
}

Result<std::vector<TokenId>> BpeTokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  const Input input = Prepare(text, options, repaired);
  text = input.text;
  std::vector<TokenId> ids;
  if ((options.add_special || options.add_bos) && vocabulary_.add_bos) ids.push_back(vocabulary_.bos);
  WordCache cache;
  for (size_t from = 0; from < text.size();) {
    const TokenTrie::Match match = specials_.Find(text, from, input.literal, options.cancel);
    LH_TRY(EncodeText(text.substr(from, match.begin - from), options.cancel, cache, ids));
    if (match.id == kNoToken) break;
    ids.push_back(match.id);
    from = match.end;
  }
  if (Cancelled(options.cancel)) return Stopped();  // what ended early is not the whole
  if (options.add_special && vocabulary_.add_eos) ids.push_back(vocabulary_.eos);
  return ids;
}

std::string BpeTokenizer::TokenBytes(TokenId id, bool special) const {
  if (id < 0 || static_cast<size_t>(id) >= vocabulary_.tokens.size()) return {};
  const std::string& text = vocabulary_.tokens[id];
  switch (Type(id)) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return special ? text : std::string();
    case TokenType::kUserDefined:
      return text;
    default:
      // A token that is not written in the alphabet stands for its own text, as in `tokenizers`.
      return BytesOfAlphabet(text).value_or(text);
  }
}

Result<size_t> BpeTokenizer::BytesWithoutToken(std::string_view text, const CancelToken* cancel) const {
  std::string repaired;
  if (!IsWellFormedUtf8(text)) text = repaired = ReplaceIllFormedUtf8(text);
  size_t count = 0;
  for (const char byte : text) {
    if (Cancelled(cancel)) return Stopped();
    count += byte_tokens_[static_cast<uint8_t>(byte)] == kNoToken;
  }
  return count;
}

}  // namespace longheads
