#include "tokenizer/spm.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "tokenizer/utf8.h"

namespace longheads {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which stands for a space inside tokens

// Ends early where `cancel` is raised.
void AppendReplacing(std::string_view text, std::string_view from, std::string_view to, std::string& out,
                     const CancelToken* cancel = nullptr) {
  while (!Cancelled(cancel)) {
    const size_t found = text.find(from);
    out.append(text.substr(0, found));
    if (found == std::string_view::npos) return;
    out.append(to);
    text.remove_prefix(found + from.size());
  }
}

size_t SpacesAtStart(std::string_view text) {  // in bytes
  size_t bytes = 0;
  while (text.substr(bytes).starts_with(kSpace)) bytes += kSpace.size();
  return bytes;
}

// Whether a space follows another character.
bool HoldsInnerSpace(std::string_view text) {
  return text.find(kSpace, SpacesAtStart(text)) != std::string_view::npos;
}

// The byte that "<0xXX>" names.
std::optional<uint8_t> ByteOfToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  return byte;
}

// A piece while it merges; a linked list over the text, since merging takes from the middle.
struct Symbol {
  size_t begin, size;  // size 0: merged into its left neighbour
  int32_t previous, next;
};

struct Candidate {
  float score;
  int32_t left, right;  // symbols
  size_t size;          // of both when the candidate was made: another sum means that one has merged since
};
struct LaterMerge {  // the highest score first, and the leftmost of equal ones
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }
};

}  // namespace

SpmTokenizer::SpmTokenizer(Vocabulary vocabulary) : Tokenizer(std::move(vocabulary)) {
  byte_tokens_.fill(kNoToken);
}

Result<std::unique_ptr<const Tokenizer>> SpmTokenizer::Create(Vocabulary vocabulary) {
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    return InvalidInput(
        fmt::format("the vocabulary has {} tokens but {} scores; SPM needs one score per token",
                    vocabulary.tokens.size(), vocabulary.scores.size()));
  }
  std::unique_ptr<SpmTokenizer> tokenizer(new SpmTokenizer(std::move(vocabulary)));
  LH_TRY(tokenizer->ReadTokens());
  return std::unique_ptr<const Tokenizer>(std::move(tokenizer));
}

Status SpmTokenizer::ReadTokens() {
  size_t n_byte_tokens = 0;
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const std::string_view text = vocabulary_.tokens[i];
    const auto id = static_cast<TokenId>(i);
    if (std::isnan(vocabulary_.scores[i])) {
      return InvalidInput(fmt::format("the score of token {} of the vocabulary is not a number", i));
    }
    switch (Type(id)) {
      case TokenType::kControl:
      case TokenType::kUnknown:
        control_.AddControl(text, id);
        break;
      case TokenType::kByte: {
        const std::optional<uint8_t> byte = ByteOfToken(text);
        if (!byte) {
          return InvalidInput(fmt::format(
              "token {} of the vocabulary, \"{}\", is marked as a byte but is not of the form <0xXX>", i,
              text));
        }
        if (byte_tokens_[*byte] == kNoToken) {
          byte_tokens_[*byte] = id;
          ++n_byte_tokens;
        }
        break;
      }
      case TokenType::kUserDefined:
        user_defined_.AddUserDefined(text, id);
        pieces_.emplace(text, id);
        break;
      case TokenType::kNormal: {
        pieces_.emplace(text, id);
        longest_piece_ = std::max(longest_piece_, text.size());
        if (HoldsInnerSpace(text)) pieces_end_before_space_ = false;
        break;
      }
      case TokenType::kUnused:
        break;
    }
  }
  if (n_byte_tokens < byte_tokens_.size() && vocabulary_.unknown == kNoToken) {
    return InvalidInput(fmt::format(
        "the vocabulary has {} of the 256 byte tokens and no unknown token, so that some texts could "
        "not be encoded",
        n_byte_tokens));
  }
  return {};
}

bool SpmTokenizer::HasByteTokens(std::string_view character) const {
  for (const char byte : character) {
    if (byte_tokens_[static_cast<uint8_t>(byte)] == kNoToken) return false;
  }
  return true;
}

Status SpmTokenizer::MergePieces(std::string_view text, const CancelToken* cancel,
                                 std::vector<TokenId>& ids) const {
  cancel = WithinWord(text, cancel);
  std::vector<Symbol> symbols;
  for (size_t begin = 0; begin < text.size();) {
    if (Cancelled(cancel)) return Stopped();
    if (symbols.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      return Unsupported(
          "a part of the text without a space has more than 2^31 characters, which SPM cannot encode");
    }
    const size_t size = NextUtf8(text.substr(begin)).bytes;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({begin, size, index - 1, index + 1});
    begin += size;
  }
  if (symbols.empty()) return {};
  symbols.back().next = -1;

  std::priority_queue<Candidate, std::vector<Candidate>, LaterMerge> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const size_t size = symbols[left].size + symbols[right].size;
    if (size > longest_piece_) return;  // keeps the look-up short in a long text
    const auto piece = pieces_.find(text.substr(symbols[left].begin, size));
    if (piece != pieces_.end()) queue.push({vocabulary_.scores[piece->second], left, right, size});
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) {
    if (Cancelled(cancel)) return Stopped();
    consider(i, i + 1);
  }

  while (!queue.empty()) {
    if (Cancelled(cancel)) return Stopped();
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) continue;
    left.size = best.size;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }

  bool after_unknown = false;  // a run of unknown characters is one unknown token
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    if (Cancelled(cancel)) return Stopped();
    const std::string_view symbol = text.substr(symbols[i].begin, symbols[i].size);
    const auto piece = pieces_.find(symbol);
    const bool is_unknown = piece == pieces_.end() && !HasByteTokens(symbol);
    if (piece != pieces_.end()) {
      ids.push_back(piece->second);
    } else if (!is_unknown) {
      for (const char byte : symbol) ids.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    } else if (!after_unknown) {
      ids.push_back(vocabulary_.unknown);
    }
    after_unknown = is_unknown;
  }
  return {};
}

// A text without user-defined tokens. Where no piece reaches over the start of a word, neither does a merge:
// the words are encoded one by one, in memory that does not grow with the text.
Status SpmTokenizer::EncodePieces(std::string_view text, const CancelToken* cancel,
                                  std::vector<TokenId>& ids) const {
  size_t begin = 0;
  while (pieces_end_before_space_) {
    if (Cancelled(cancel)) return Stopped();
    const size_t end = text.find(kSpace, begin + SpacesAtStart(text.substr(begin)));
    if (end == std::string_view::npos) break;
    LH_TRY(MergePieces(text.substr(begin, end - begin), cancel, ids));
    begin = end;
  }
  return MergePieces(text.substr(begin), cancel, ids);
}

// A text between control tokens: each begins anew with the space prefix, unless it `goes_on` from another.
Status SpmTokenizer::EncodeSegment(std::string_view text, bool goes_on, const CancelToken* cancel,
                                   std::vector<TokenId>& ids) const {
  if (text.empty()) return {};
  std::string normalised;
  normalised.reserve(text.size() + text.size() / 2);
  if (vocabulary_.add_space_prefix && !goes_on) normalised.append(kSpace);
  AppendReplacing(text, " ", kSpace, normalised, cancel);
  for (size_t from = 0; from < normalised.size();) {
    const TokenTrie::Match match = user_defined_.Find(normalised, from, /*literal=*/{}, cancel);
    LH_TRY(EncodePieces(std::string_view(normalised).substr(from, match.begin - from), cancel, ids));
    if (match.id == kNoToken) break;
    ids.push_back(match.id);
    from = match.end;
  }
  return {};
}

Result<std::vector<TokenId>> SpmTokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  const Input input = Prepare(text, options, repaired);
  text = input.text;
  std::vector<TokenId> ids;
  if ((options.add_special || options.add_bos) && vocabulary_.add_bos) ids.push_back(vocabulary_.bos);
  for (size_t from = 0; from < text.size();) {
    const TokenTrie::Match match = control_.Find(text, from, input.literal, options.cancel);
    LH_TRY(EncodeSegment(text.substr(from, match.begin - from), options.goes_on && from == 0, options.cancel,
                         ids));
    if (match.id == kNoToken) break;
    ids.push_back(match.id);
    from = match.end;
  }
  if (Cancelled(options.cancel)) return Stopped();  // what ended early is not the whole
  if (options.add_special && vocabulary_.add_eos) ids.push_back(vocabulary_.eos);
  return ids;
}

std::string SpmTokenizer::TokenBytes(TokenId id, bool special) const {
  if (id < 0 || static_cast<size_t>(id) >= vocabulary_.tokens.size()) return {};
  const std::string& text = vocabulary_.tokens[id];
  switch (Type(id)) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return special ? text : std::string();
    case TokenType::kByte:
      return std::string(1, static_cast<char>(*ByteOfToken(text)));
    default: {
      std::string bytes;
      AppendReplacing(text, kSpace, " ", bytes);
      return bytes;
    }
  }
}

Result<size_t> SpmTokenizer::BytesWithoutToken(std::string_view text, const CancelToken* cancel) const {
  std::string repaired;
  if (!IsWellFormedUtf8(text)) text = repaired = ReplaceIllFormedUtf8(text);
  size_t count = 0;
  while (!text.empty()) {
    if (Cancelled(cancel)) return Stopped();
    const std::string_view character = text.substr(0, NextUtf8(text).bytes);
    const std::string_view piece = character == " " ? kSpace : character;
    if (!pieces_.contains(piece) && !HasByteTokens(piece)) count += character.size();
    text.remove_prefix(character.size());
  }
  return count;
}

}  // namespace longheads
