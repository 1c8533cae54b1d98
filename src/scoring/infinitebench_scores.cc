#include "scoring/infinitebench_scores.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "scoring/code_points.h"
#include "scoring/retrieval_scores.h"

namespace longheads {
namespace {

using View = std::u32string_view;

constexpr View kRetrievalMarks = U"\n:\"'.,?!{}";

std::u32string WithSpacesFor(View text, View characters) {
  std::u32string out(text);
  for (char32_t& c : out) {
    if (characters.find(c) != View::npos) c = U' ';
  }
  return out;
}

std::u32string WithSpaceForEach(View text, View part) {
  std::u32string out;
  for (;;) {
    const std::size_t at = text.find(part);
    out.append(text.substr(0, at));
    if (at == View::npos) return out;
    out.push_back(U' ');
    text.remove_prefix(at + part.size());
  }
}

std::u32string WithSingleSpaces(View text) {
  std::u32string out;
  for (const char32_t c : text) {
    if (c != U' ' || out.empty() || out.back() != U' ') out.push_back(c);
  }
  return out;
}

bool IsAmong(View word, std::span<const std::u32string> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What follows the first of the phrases that occurs, one character left out between.
struct Answer {
  bool found = false;  // a phrase occurs
  bool given = false;  // and at least one character follows it
  View text = {};
};

Answer AnswerAfter(View text, std::span<const View> phrases) {
  for (const View phrase : phrases) {
    const std::size_t at = text.find(phrase);
    if (at == View::npos) continue;
    const std::size_t end = at + phrase.size();
    if (end == text.size()) return {.found = true};
    return {.found = true, .given = true, .text = text.substr(end + 1)};
  }
  return {};
}

// A whole number with an optional sign and underscores between digits, as Python's int() takes it; nothing
// where it does not fit 64 bits.
std::optional<int64_t> WholeNumber(View word) {
  std::string digits;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char32_t c = word[i];
    if (c == U'_') {
      const bool between = i > 0 && i + 1 < word.size() && word[i - 1] >= U'0' && word[i - 1] <= U'9' &&
                           word[i + 1] >= U'0' && word[i + 1] <= U'9';
      if (!between) return std::nullopt;
      continue;
    }
    const bool sign = i == 0 && (c == U'-' || c == U'+');
    if (!sign && (c < U'0' || c > U'9')) return std::nullopt;
    if (c != U'+') digits.push_back(static_cast<char>(c));
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseInteger(std::string_view digits) { return WholeNumber(ToCodePoints(digits)); }

// Digits, and a fraction where a point and a digit follow directly.
std::string FirstNumber(std::string_view text) {
  std::string number = FirstInteger(text);
  if (number.empty()) return number;
  const std::string_view rest = text.substr(text.find(number) + number.size());
  if (!rest.starts_with('.')) return number;
  const std::size_t end = std::min(rest.find_first_not_of("0123456789", 1), rest.size());
  return end > 1 ? number + std::string(rest.substr(0, end)) : number;
}

}  // namespace

bool NamesValue(std::string_view prediction, std::string_view value) {
  const std::u32string text = WithSpacesFor(ToCodePoints(prediction), kRetrievalMarks);
  return IsAmong(ToCodePoints(value), SplitSpaces(text));
}

bool ChoosesOption(std::string_view prediction, char letter, std::string_view option,
                   InfiniteBenchScoring scoring) {
  constexpr View kLetters = U"ABCD";
  constexpr std::array<View, 4> kPhrases = {U"answer is:", U"answer:", U"answer is", U"option is"};
  const auto right = static_cast<char32_t>(letter);
  const std::u32string raw = ToCodePoints(prediction);
  if (raw.empty()) return false;
  if (kLetters.find(raw.front()) != View::npos) return raw.front() == right;

  const std::u32string text = WithSingleSpaces(WithSpacesFor(raw, U"\n\"'.,?!{}"));
  if (const Answer answer = AnswerAfter(text, kPhrases); answer.found) {
    if (answer.text.empty()) return false;
    const std::u32string wanted = ToCodePoints(option);
    if (answer.text.front() == right) return true;
    if (scoring == InfiniteBenchScoring::kInfLlm)
      return wanted.find(answer.text.front()) != std::u32string::npos;
    return answer.text.starts_with(wanted);
  }
  for (const std::u32string& word : SplitSpaces(text)) {
    if (kLetters.find(word) != View::npos) return word.size() == 1 && word.front() == right;
  }
  return false;
}

double CodeDebugScore(std::string_view prediction, char letter, std::string_view function,
                      InfiniteBenchScoring scoring) {
  constexpr std::array<View, 3> kPhrases = {U"answer is:", U"is:", U"answer:"};
  constexpr std::array<View, 2> kMorePhrases = {U"answer is", U"error is"};
  constexpr double kChance = 1.0 / 4;
  const auto right = static_cast<char32_t>(letter);
  const std::u32string raw = ToCodePoints(prediction);
  if (raw.size() >= 2 && raw[0] == right && (raw[1] == U'.' || raw[1] == U':')) return 1;

  std::u32string text = WithSpacesFor(Stripped(raw), U"\n`'\"-*");
  text = WithSingleSpaces(WithSpaceForEach(WithSpaceForEach(text, U"Option"), U"option"));
  const std::u32string name = ToCodePoints(function);
  const auto is_right = [&](const Answer& answer) {
    return answer.given && (answer.text.starts_with(right) || answer.text.starts_with(name));
  };
  const Answer answer = AnswerAfter(text, kPhrases);
  if (scoring == InfiniteBenchScoring::kOfficial || is_right(answer)) return is_right(answer) ? 1 : 0;
  // InfLLM looks on behind what the first search found.
  const Answer second = AnswerAfter(answer.given ? answer.text : View(text), kMorePhrases);
  if (!answer.found && !second.found) return kChance;
  return is_right(second) ? 1 : 0;
}

bool ReturnsInteger(std::string_view prediction, int64_t value) {
  const std::vector<std::u32string> words = SplitSpaces(WithSpacesFor(ToCodePoints(prediction), U"\n.`'\":"));
  return !words.empty() && WholeNumber(words.back()) == value;
}

bool FindsInteger(std::string_view prediction, int64_t label) {
  return ParseInteger(FirstNumber(prediction)) == label;
}

bool FindsDecimal(std::string_view prediction, double label) {
  const std::string number = FirstNumber(prediction);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && !number.empty() && value == label;
}

double LeadingValuesScore(std::string_view prediction, std::span<const int64_t> labels) {
  if (labels.empty()) return 0;
  std::size_t n_right = 0;
  while (n_right < labels.size()) {
    const std::string digits = FirstInteger(prediction);
    if (digits.empty() || ParseInteger(digits) != labels[n_right]) break;
    ++n_right;
    prediction.remove_prefix(prediction.find(digits) + digits.size());
  }
  return static_cast<double>(n_right) / static_cast<double>(labels.size());
}

bool NamesCharacter(std::string_view prediction, std::string_view name) {
  const std::u32string text = Uppered(WithSpacesFor(ToCodePoints(prediction), kRetrievalMarks));
  return IsAmong(ToCodePoints(name), SplitSpaces(text));
}

}  // namespace longheads
