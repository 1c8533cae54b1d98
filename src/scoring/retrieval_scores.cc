#include "scoring/retrieval_scores.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/check.h"
#include "scoring/code_points.h"

namespace longheads {
namespace {

constexpr std::string_view kDigits = "0123456789";

}  // namespace

std::string FirstInteger(std::string_view text) {
  const std::size_t begin = text.find_first_of(kDigits);
  if (begin == std::string_view::npos) return {};
  const std::size_t end = text.find_first_not_of(kDigits, begin);
  return std::string(text.substr(begin, end == std::string_view::npos ? end : end - begin));
}

double ShareContained(std::string_view prediction, std::span<const std::string> phrases,
                      LetterCase letter_case) {
  LH_CHECK(!phrases.empty());
  const auto form = [letter_case](std::string_view text) {
    const std::u32string code_points = ToCodePoints(text);
    return letter_case == LetterCase::kIgnored ? Lowered(code_points) : code_points;
  };
  const std::u32string text = form(prediction);
  const auto n_found = std::count_if(phrases.begin(), phrases.end(),
                                     [&](const std::string& phrase) { return Contains(text, form(phrase)); });
  return static_cast<double>(n_found) / static_cast<double>(phrases.size());
}

double CountingStarsRecall(std::string_view prediction, std::span<const int64_t> references) {
  LH_CHECK(!references.empty());
  const std::size_t open = prediction.find('[');
  if (open != std::string_view::npos) prediction.remove_prefix(open + 1);
  prediction = prediction.substr(0, prediction.find(']'));

  std::set<int64_t> listed;
  for (std::size_t n_read = 0; n_read < references.size(); ++n_read) {
    const std::string digits = FirstInteger(prediction);
    if (digits.empty()) break;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc()) listed.insert(number);  // one that does not fit is no reference
    prediction.remove_prefix(prediction.find(digits) + digits.size());
  }
  const auto n_found = std::count_if(references.begin(), references.end(),
                                     [&](int64_t reference) { return listed.contains(reference); });
  return static_cast<double>(n_found) / static_cast<double>(references.size());
}

}  // namespace longheads
