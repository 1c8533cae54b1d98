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

class PreTokenizer::Pattern {
 public:
  // The texts are our own, so one that does not compile is our own mistake.
  static Pattern Compile(const char* text) {
    int error = 0;
    PCRE2_SIZE error_offset = 0;
    Pattern pattern;
    pattern.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_UCP, &error, &error_offset, nullptr));
    LH_CHECK(pattern.code_ != nullptr);
    // Where there is no executable memory the interpreter does the same work, only slower.
    pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE);
    return pattern;
  }

  // Appends to `pieces` what matches in `text` and what lies between the matches.
  Status Split(std::string_view text, pcre2_match_data* data, pcre2_match_context* context,
               std::vector<std::string_view>& pieces) const {
    size_t piece_start = 0;
    size_t offset = 0;
    while (offset < text.size()) {
      const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset,
                                 PCRE2_NO_UTF_CHECK, data, context);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        return MakeError(
            rc == PCRE2_ERROR_NOMEMORY ? ErrorKind::kOutOfMemory : ErrorKind::kUnsupported,
            fmt::format("the pre-tokenizer's regular expression failed at byte {} of a text of {}: "
                        "{}; split the text into smaller parts",
                        offset, text.size(), Pcre2Message(rc)));
      }
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
      LH_CHECK(bounds[1] > bounds[0] && bounds[0] >= piece_start);
      if (bounds[0] > piece_start) pieces.push_back(text.substr(piece_start, bounds[0] - piece_start));
      pieces.push_back(text.substr(bounds[0], bounds[1] - bounds[0]));
      piece_start = offset = bounds[1];
    }
    if (piece_start < text.size()) pieces.push_back(text.substr(piece_start));
    return {};
  }

 private:
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

Status PreTokenizer::Split(std::string_view text, std::vector<std::string_view>& words) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, MatchContextDeleter> context(
      pcre2_match_context_create(nullptr));
  if (data == nullptr || context == nullptr) {
    return MakeError(ErrorKind::kOutOfMemory, "no memory is left to split a text into words");
  }
  // A run of spaces may be walked back one by one: linear in the text, yet above PCRE2's fixed limit.
  pcre2_set_match_limit(context.get(), UINT32_MAX);

  std::vector<std::string_view> pieces = {text};
  std::vector<std::string_view> next;
  for (const Pattern& pattern : patterns_) {
    next.clear();
    for (const std::string_view piece : pieces) LH_TRY(pattern.Split(piece, data.get(), context.get(), next));
    pieces.swap(next);
  }
  words.insert(words.end(), pieces.begin(), pieces.end());
  return {};
}

}  // namespace longheads
