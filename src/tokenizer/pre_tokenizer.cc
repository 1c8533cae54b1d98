#include "tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "base/check.h"

namespace longheads {
namespace {

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string Pcre2Message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// White_Space as Unicode defines it and Oniguruma's \s has it. PCRE2's own \s would add U+180E.
#define LH_SPACE R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"

// GPT-2's expression; the published vocabularies were all made with this text or a variation of it.
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" LH_SPACE
                              "\\p{L}\\p{N}]+|[" LH_SPACE "]+(?![^" LH_SPACE "])|[" LH_SPACE "]+";
// Llama 3 and Qwen2 differ in how many digits go together.
#define LH_LLAMA_3(digits)                                                              \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" LH_SPACE \
  "\\p{L}\\p{N}]+[\\r\\n]*|[" LH_SPACE "]*[\\r\\n]+|[" LH_SPACE "]+(?![^" LH_SPACE "])|[" LH_SPACE "]+"
constexpr const char* kLlama3 = LH_LLAMA_3("\\p{N}{1,3}");
constexpr const char* kQwen2 = LH_LLAMA_3("\\p{N}");
constexpr const char* kOneDigit = "\\p{N}";
constexpr const char* kDigits = "\\p{N}+";
constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";
constexpr const char* kPunctuation = R"([\p{P}$+<=>^~|]+)";

constexpr const char* kSmollmPatterns[] = {kOneDigit, kGpt2};
constexpr const char* kLlama3Patterns[] = {kLlama3};
constexpr const char* kQwen2Patterns[] = {kQwen2};
constexpr const char* kGpt2Patterns[] = {kGpt2};
constexpr const char* kDefaultPatterns[] = {kPunctuation, kGpt2, kDigits, kThreeDigits};

struct Kind {
  std::string_view name;
  std::span<const char* const> patterns;
  bool ignores_merges;
};
constexpr Kind kKinds[] = {
    {"smollm", kSmollmPatterns, false},   {"llama-bpe", kLlama3Patterns, true},
    {"qwen2", kQwen2Patterns, false},     {"gpt-2", kGpt2Patterns, false},
    {"default", kDefaultPatterns, false}, {"", kDefaultPatterns, false},
};

}  // namespace

struct PreTokenizer::Scratch {
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context{pcre2_match_context_create(nullptr)};
};

class PreTokenizer::Pattern {
 public:
  // The texts are our own, so one that does not compile is our own mistake.
  static Pattern Compile(const char* text) {
    int error = 0;
    PCRE2_SIZE error_offset = 0;
    Pattern pattern;
    pattern.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_USE_OFFSET_LIMIT, &error, &error_offset,
                                      nullptr));
    LH_CHECK(pattern.code_ != nullptr);
    // Where there is no executable memory the interpreter does the same work, only slower.
    pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE);
    return pattern;
  }

  // Hands over what matches in `text` and what lies between the matches.
  template <typename TakePiece>
  Status Split(std::string_view text, const CancelToken* cancel, Scratch& scratch,
               const TakePiece& take) const {
    size_t piece_start = 0;
    size_t offset = 0;
    size_t last_start = 0;  // where a match may begin at the latest
    while (offset < text.size()) {
      if (offset >= last_start) {
        if (Cancelled(cancel)) return MakeError(ErrorKind::kCancelled, "stopped");
        last_start = offset + kWindow;
      }
      pcre2_set_offset_limit(scratch.context.get(), last_start);  // `take` may have set its own
      const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset,
                                 PCRE2_NO_UTF_CHECK, scratch.data.get(), scratch.context.get());
      if (rc == PCRE2_ERROR_NOMATCH) {
        offset = last_start + 1;
        while (offset < text.size() && (static_cast<uint8_t>(text[offset]) & 0xC0) == 0x80) ++offset;
        continue;
      }
      if (rc < 0) {
        return MakeError(
            rc == PCRE2_ERROR_NOMEMORY ? ErrorKind::kOutOfMemory : ErrorKind::kUnsupported,
            fmt::format("the pre-tokenizer's regular expression failed at byte {} of a text of {}: "
                        "{}; split the text into smaller parts",
                        offset, text.size(), Pcre2Message(rc)));
      }
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data.get());
      const size_t begin = bounds[0];
      const size_t end = bounds[1];  // copies: `take` may match with the same scratch
      LH_CHECK(end > begin && begin >= piece_start);
      if (begin > piece_start) LH_TRY(take(text.substr(piece_start, begin - piece_start)));
      LH_TRY(take(text.substr(begin, end - begin)));
      piece_start = offset = end;
    }
    if (piece_start < text.size()) return take(text.substr(piece_start));
    return {};
  }

 private:
  // An expression that matches nowhere is looked for this many bytes far before the next look at `cancel`.
  static constexpr size_t kWindow = 1 << 18;

  std::unique_ptr<pcre2_code, CodeDeleter> code_;
};

PreTokenizer::PreTokenizer(std::vector<Pattern> patterns, bool ignores_merges)
    : patterns_(std::move(patterns)), ignores_merges_(ignores_merges) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name != name) continue;
    std::vector<Pattern> patterns;
    for (const char* text : kind.patterns) {
      patterns.push_back(Pattern::Compile(text));
    }
    return PreTokenizer(std::move(patterns), kind.ignores_merges);
  }
  return Unsupported(fmt::format(
      "the pre-tokenizer \"{}\" is not known here; known are smollm, llama-bpe, qwen2, gpt-2 and default",
      name));
}

Status PreTokenizer::Split(std::string_view text, const CancelToken* cancel, const Take& take) const {
  Scratch scratch;
  if (scratch.data == nullptr || scratch.context == nullptr) {
    return MakeError(ErrorKind::kOutOfMemory, "no memory is left to split a text into words");
  }
  // A run of spaces may be walked back one by one: linear in the text, yet above PCRE2's fixed limit.
  pcre2_set_match_limit(scratch.context.get(), UINT32_MAX);
  return SplitFrom(0, text, cancel, scratch, take);
}

// Each expression splits what the one before it left whole. Piece by piece, so that no list of words lies in
// memory.
Status PreTokenizer::SplitFrom(size_t pattern, std::string_view text, const CancelToken* cancel,
                               Scratch& scratch, const Take& take) const {
  if (pattern + 1 == patterns_.size()) return patterns_[pattern].Split(text, cancel, scratch, take);
  return patterns_[pattern].Split(text, cancel, scratch, [&](std::string_view piece) {
    return SplitFrom(pattern + 1, piece, cancel, scratch, take);
  });
}

}  // namespace longheads
