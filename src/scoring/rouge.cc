#include "scoring/rouge.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "scoring/code_points.h"
#include "scoring/lcs.h"

namespace longheads {
namespace {

using Sentence = std::vector<uint32_t>;  // numbers of words

// Equal words get equal numbers.
class Vocabulary {
 public:
  uint32_t NumberOf(const std::u32string& word) {
    return numbers_.try_emplace(word, static_cast<uint32_t>(numbers_.size())).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  std::unordered_map<std::u32string, uint32_t> numbers_;
};

std::vector<Sentence> SentencesAtStops(std::string_view text, Vocabulary& vocabulary) {
  std::vector<Sentence> sentences;
  for (const std::u32string& part : SplitAt(ToCodePoints(text), U'.')) {
    if (part.empty()) continue;
    Sentence& sentence = sentences.emplace_back();
    for (const std::u32string& word : SplitSpaces(part)) sentence.push_back(vocabulary.NumberOf(word));
    if (sentence.empty()) sentence.push_back(vocabulary.NumberOf(U""));
  }
  return sentences;
}

std::vector<Sentence> SentencesAtLines(std::string_view text, Vocabulary& vocabulary) {
  std::vector<Sentence> sentences;
  for (const std::u32string& line : SplitAt(ToCodePoints(text), U'\n')) {
    if (line.empty()) continue;
    Sentence& sentence = sentences.emplace_back();
    std::u32string token;
    const auto end_token = [&] {
      if (!token.empty()) sentence.push_back(vocabulary.NumberOf(token));
      token.clear();
    };
    for (const char32_t c : Lowered(line)) {
      if ((c >= U'a' && c <= U'z') || (c >= U'0' && c <= U'9')) {
        token.push_back(c);
      } else {
        end_token();
      }
    }
    end_token();
  }
  return sentences;
}

// Places in `reference` of one longest common subsequence, the one that is read from the end by taking equal
// words where both end in one, and else dropping the last word of `reference` if `drops_reference` says so of
// the lengths without it and without the other's.
template <typename DropsReference>
std::vector<std::size_t> CommonPlaces(const Sentence& reference, const Sentence& prediction,
                                      const DropsReference& drops_reference) {
  const LcsTable table(reference, prediction);
  std::vector<std::size_t> places;
  std::size_t i = reference.size();
  std::size_t j = prediction.size();
  while (i > 0 && j > 0) {
    if (reference[i - 1] == prediction[j - 1]) {
      places.push_back(--i);
      --j;
    } else if (drops_reference(table.at(i - 1, j), table.at(i, j - 1))) {
      --i;
    } else {
      --j;
    }
  }
  return places;
}

std::size_t DifferentWords(std::span<const Sentence> sentences) {
  std::unordered_set<uint32_t> words;
  for (const Sentence& sentence : sentences) words.insert(sentence.begin(), sentence.end());
  return words.size();
}

}  // namespace

double RougeL(std::string_view prediction, std::string_view reference) {
  Vocabulary vocabulary;
  const std::vector<Sentence> predicted = SentencesAtStops(prediction, vocabulary);
  const std::vector<Sentence> expected = SentencesAtStops(reference, vocabulary);
  if (predicted.empty() || expected.empty()) return 0;

  std::unordered_set<uint32_t> common;
  for (const Sentence& sentence : expected) {
    for (const Sentence& other : predicted) {
      const auto shorter_reference = [](uint32_t without_ours, uint32_t without_theirs) {
        return without_ours > without_theirs;
      };
      for (const std::size_t place : CommonPlaces(sentence, other, shorter_reference)) {
        common.insert(sentence[place]);
      }
    }
  }
  const auto n_common = static_cast<double>(common.size());
  const double recall = n_common / static_cast<double>(DifferentWords(expected));
  const double precision = n_common / static_cast<double>(DifferentWords(predicted));
  return 2 * (precision * recall / (precision + recall + 1e-8));
}

double RougeLsum(std::string_view prediction, std::string_view reference) {
  Vocabulary vocabulary;
  const std::vector<Sentence> predicted = SentencesAtLines(prediction, vocabulary);
  const std::vector<Sentence> expected = SentencesAtLines(reference, vocabulary);
  std::vector<int64_t> left_predicted(vocabulary.size(), 0);
  std::vector<int64_t> left_expected(vocabulary.size(), 0);
  int64_t n_predicted = 0;
  int64_t n_expected = 0;
  for (const Sentence& sentence : predicted) {
    for (const uint32_t token : sentence) ++left_predicted[token], ++n_predicted;
  }
  for (const Sentence& sentence : expected) {
    for (const uint32_t token : sentence) ++left_expected[token], ++n_expected;
  }
  if (n_predicted == 0 || n_expected == 0) return 0;

  int64_t hits = 0;
  for (const Sentence& sentence : expected) {
    std::set<std::size_t> places;
    for (const Sentence& other : predicted) {
      const auto unless_shorter_prediction = [](uint32_t without_ours, uint32_t without_theirs) {
        return without_ours >= without_theirs;
      };
      for (const std::size_t place : CommonPlaces(sentence, other, unless_shorter_prediction))
        places.insert(place);
    }
    for (const std::size_t place : places) {
      const uint32_t token = sentence[place];
      if (left_predicted[token] == 0 || left_expected[token] == 0) continue;
      --left_predicted[token];
      --left_expected[token];
      ++hits;
    }
  }
  const double precision = static_cast<double>(hits) / static_cast<double>(n_predicted);
  const double recall = static_cast<double>(hits) / static_cast<double>(n_expected);
  return hits == 0 ? 0 : 2 * precision * recall / (precision + recall);
}

}  // namespace longheads
