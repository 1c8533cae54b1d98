#include "scoring/longbench_scores.h"

#include <algorithm>
#include <vector>

#include "scoring/code_points.h"
#include "scoring/edit_ratio.h"
#include "scoring/rouge.h"
#include "scoring/token_f1.h"

namespace longheads {
namespace {

bool Occurs(std::string_view part, std::string_view text) {
  return text.find(part) != std::string_view::npos;
}

double ShareOfNumbersEqualTo(std::u32string_view number, std::string_view prediction) {
  const std::vector<std::u32string> numbers = DigitRuns(ToCodePoints(prediction));
  if (numbers.empty()) return 0;
  const auto n_right = std::count(numbers.begin(), numbers.end(), number);
  return static_cast<double>(n_right) / static_cast<double>(numbers.size());
}

std::string_view WithoutLeadingNewlines(std::string_view text) {
  const std::size_t begin = text.find_first_not_of('\n');
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view FirstLineOfCode(std::string_view prediction) {
  for (std::string_view left = WithoutLeadingNewlines(prediction);;) {
    const std::size_t end = left.find('\n');
    const std::string_view line = left.substr(0, end);
    if (!Occurs("`", line) && !Occurs("#", line) && !Occurs("//", line)) return line;
    if (end == std::string_view::npos) return {};
    left.remove_prefix(end + 1);
  }
}

double ScoreAgainst(LongBenchMetric metric, std::string_view prediction, std::string_view answer,
                    std::span<const std::string> classes, LongBenchScoring scoring) {
  switch (metric) {
    case LongBenchMetric::kQaF1:
      return QaF1(prediction, answer);
    case LongBenchMetric::kRougeL:
      return RougeL(prediction, answer);
    case LongBenchMetric::kClassification:
      return ClassificationScore(prediction, answer, classes, scoring);
    case LongBenchMetric::kCount:
      return CountScore(prediction, answer);
    case LongBenchMetric::kPassageRetrieval:
      return PassageRetrievalScore(prediction, answer);
    case LongBenchMetric::kCodeSimilarity:
      return CodeSimilarityScore(prediction, answer, scoring);
  }
  return 0;
}

}  // namespace

double ClassificationScore(std::string_view prediction, std::string_view answer,
                           std::span<const std::string> classes, LongBenchScoring scoring) {
  std::vector<std::string_view> matches;
  for (const std::string& name : classes) {
    if (Occurs(name, prediction)) matches.push_back(name);
  }
  for (std::size_t i = 0; i < matches.size();) {
    const bool part_of_answer = matches[i] != answer && Occurs(matches[i], answer);
    if (part_of_answer) matches.erase(matches.begin() + static_cast<std::ptrdiff_t>(i));
    if (!part_of_answer || scoring == LongBenchScoring::kOfficial) ++i;
  }
  const bool found = std::find(matches.begin(), matches.end(), answer) != matches.end();
  return found ? 1.0 / static_cast<double>(matches.size()) : 0.0;
}

double CountScore(std::string_view prediction, std::string_view answer) {
  return ShareOfNumbersEqualTo(ToCodePoints(answer), prediction);
}

double PassageRetrievalScore(std::string_view prediction, std::string_view answer) {
  constexpr std::u32string_view kBefore = U"Paragraph ";
  const std::u32string text = ToCodePoints(answer);
  for (std::size_t at = text.find(kBefore); at != std::u32string::npos; at = text.find(kBefore, at + 1)) {
    std::size_t end = at + kBefore.size();
    while (end < text.size() && IsDecimalDigit(text[end])) ++end;
    const std::size_t begin = at + kBefore.size();
    if (end > begin)
      return ShareOfNumbersEqualTo(std::u32string_view(text).substr(begin, end - begin), prediction);
  }
  return 0;
}

double CodeSimilarityScore(std::string_view prediction, std::string_view answer, LongBenchScoring scoring) {
  const EditRatio ratio =
      scoring == LongBenchScoring::kOfficial ? EditRatio::kMatchingBlocks : EditRatio::kIndel;
  return FuzzyPercent(FirstLineOfCode(prediction), answer, ratio) / 100.0;
}

std::string_view FirstLine(std::string_view prediction) {
  prediction = WithoutLeadingNewlines(prediction);
  return prediction.substr(0, prediction.find('\n'));
}

double LongBenchScore(LongBenchMetric metric, std::string_view prediction,
                      std::span<const std::string> answers, std::span<const std::string> classes,
                      LongBenchScoring scoring) {
  double best = 0;
  for (const std::string& answer : answers) {
    best = std::max(best, ScoreAgainst(metric, prediction, answer, classes, scoring));
  }
  return best;
}

}  // namespace longheads
