#include "tokenizer/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "tokenizer/bpe.h"
#include "tokenizer/spm.h"
#include "tokenizer/utf8.h"

namespace longheads {
namespace {

Status CheckId(std::string_view name, TokenId id, size_t n_tokens, bool required) {
  if (id == kNoToken && !required) return {};
  if (id == kNoToken) {
    return InvalidInput(
        fmt::format("the vocabulary asks for the {} token at every text but names none", name));
  }
  if (id < 0 || static_cast<size_t>(id) >= n_tokens) {
    return InvalidInput(fmt::format("the vocabulary gives the {} token the id {}, but has only {} tokens",
                                    name, id, n_tokens));
  }
  return {};
}

Status Check(const Vocabulary& vocabulary) {
  const size_t n_tokens = vocabulary.tokens.size();
  if (n_tokens == 0) return InvalidInput("the vocabulary has no tokens");
  if (n_tokens > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return InvalidInput(fmt::format("the vocabulary has {} tokens, more than ids can number", n_tokens));
  }
  if (!vocabulary.types.empty() && vocabulary.types.size() != n_tokens) {
    return InvalidInput(
        fmt::format("the vocabulary has {} tokens but {} token types", n_tokens, vocabulary.types.size()));
  }
  for (size_t i = 0; i < vocabulary.types.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    if (type < TokenType::kNormal || type > TokenType::kByte) {
      return InvalidInput(fmt::format("token {} of the vocabulary has the type {}; types go from 1 to 6", i,
                                      static_cast<int>(type)));
    }
  }
  LH_TRY(CheckId("begin-of-sequence", vocabulary.bos, n_tokens, vocabulary.add_bos));
  LH_TRY(CheckId("end-of-sequence", vocabulary.eos, n_tokens, vocabulary.add_eos));
  LH_TRY(CheckId("unknown", vocabulary.unknown, n_tokens, false));
  for (const TokenId id : vocabulary.end_of_generation) {
    LH_TRY(CheckId("end-of-generation", id, n_tokens, false));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> Tokenizer::Create(Vocabulary vocabulary) {
  LH_TRY(Check(vocabulary));
  if (vocabulary.model == Vocabulary::Model::kSpm) return SpmTokenizer::Create(std::move(vocabulary));
  return BpeTokenizer::Create(std::move(vocabulary));
}

TokenType Tokenizer::Type(TokenId id) const {
  return vocabulary_.types.empty() ? TokenType::kNormal : vocabulary_.types[id];
}

Tokenizer::Input Tokenizer::Prepare(std::string_view text, const EncodeOptions& options,
                                    std::string& repaired) {
  ByteRange literal = options.parse_special ? options.literal : ByteRange{0, text.size()};
  LH_CHECK(literal.begin <= literal.end && literal.end <= text.size());
  if (IsWellFormedUtf8(text)) return {text, literal};
  const size_t length = literal.end - literal.begin;
  repaired = ReplaceIllFormedUtf8(text.substr(0, literal.begin));
  const size_t begin = repaired.size();
  repaired += ReplaceIllFormedUtf8(text.substr(literal.begin, length));
  const size_t end = repaired.size();
  repaired += ReplaceIllFormedUtf8(text.substr(literal.end));
  return {repaired, {begin, end}};
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  if (id == kNoToken) return false;
  const std::vector<TokenId>& ids = vocabulary_.end_of_generation;
  return id == vocabulary_.eos || std::find(ids.begin(), ids.end(), id) != ids.end();
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool special) const {
  StreamingDecoder decoder(*this, special);
  std::string text;
  for (const TokenId id : ids) text += decoder.Push(id);
  return text += decoder.Finish();
}

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, bool special)
    : tokenizer_(tokenizer), special_(special) {}

std::string StreamingDecoder::Push(TokenId id) {
  const std::string bytes = tokenizer_.TokenBytes(id, special_);
  if (bytes.empty()) return {};
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  const bool has_prefix = first_ && vocabulary.model == Vocabulary::Model::kSpm &&
                          vocabulary.add_space_prefix && bytes.starts_with(' ');
  first_ = false;
  pending_.append(bytes, has_prefix ? 1 : 0);
  const size_t complete = CompleteUtf8Bytes(pending_);
  std::string text = ReplaceIllFormedUtf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamingDecoder::Finish() {
  std::string text = ReplaceIllFormedUtf8(pending_);
  pending_.clear();
  first_ = true;
  return text;
}

}  // namespace longheads
