#include "scoring/token_f1.h"

#include <cstdint>
#include <unordered_map>

#include "scoring/code_points.h"

namespace longheads {
namespace {

bool IsArticle(std::u32string_view word) { return word == U"a" || word == U"an" || word == U"the"; }

// Every whole run of word characters that is an article becomes a space.
std::u32string WithoutArticles(std::u32string_view text) {
  std::u32string out;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && IsWord(text[end])) ++end;
    if (end == begin) {
      out.push_back(text[begin++]);
      continue;
    }
    const std::u32string_view word = text.substr(begin, end - begin);
    if (IsArticle(word)) {
      out.push_back(U' ');
    } else {
      out.append(word);
    }
    begin = end;
  }
  return out;
}

// The list that both benchmarks' scorers drop beside ASCII's.
bool IsChinesePunctuation(char32_t c) {
  constexpr std::u32string_view kListed =
      U"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘"
      U"〙〚〛"
      U"〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.";
  return kListed.find(c) != std::u32string_view::npos;
}

}  // namespace

std::vector<std::u32string> AnswerTokens(std::string_view text) {
  std::u32string kept;
  for (const char32_t c : Lowered(ToCodePoints(text))) {
    if (!IsAsciiPunctuation(c)) kept.push_back(c);
  }
  return SplitSpaces(WithoutArticles(kept));
}

std::vector<std::u32string> ChineseAnswerTokens(std::string_view text) {
  std::vector<std::u32string> tokens;
  for (const char32_t c : Lowered(ToCodePoints(text))) {
    if (!IsAsciiPunctuation(c) && !IsChinesePunctuation(c) && !IsSpace(c)) tokens.emplace_back(1, c);
  }
  return tokens;
}

double BagF1(std::span<const std::u32string> prediction, std::span<const std::u32string> reference) {
  std::unordered_map<std::u32string, int64_t> left;
  for (const std::u32string& token : reference) ++left[token];
  int64_t n_same = 0;
  for (const std::u32string& token : prediction) {
    const auto found = left.find(token);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++n_same;
  }
  if (n_same == 0) return 0;
  const double precision = static_cast<double>(n_same) / static_cast<double>(prediction.size());
  const double recall = static_cast<double>(n_same) / static_cast<double>(reference.size());
  return 2 * precision * recall / (precision + recall);
}

double QaF1(std::string_view prediction, std::string_view reference) {
  return BagF1(AnswerTokens(prediction), AnswerTokens(reference));
}

double ChineseQaF1(std::string_view prediction, std::string_view reference) {
  return BagF1(ChineseAnswerTokens(prediction), ChineseAnswerTokens(reference));
}

}  // namespace longheads
