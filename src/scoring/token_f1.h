// F1 of bags of tokens: what question answering is scored by in LongBench and in InfiniteBench (En.QA,
// Zh.QA). The normal form is SQuAD's: lower case, ASCII punctuation dropped, the articles a, an and the
// dropped, white space parts the tokens.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longheads {

// Tokens of the normal form. Punctuation is dropped before words are looked at, so "it's" is "its", "a-b" is
// "ab", and "A." is an article.
std::vector<std::u32string> AnswerTokens(std::string_view text);

// One character one token; Chinese punctuation is dropped besides, articles are not.
std::vector<std::u32string> ChineseAnswerTokens(std::string_view text);

// In [0, 1]; 0 where the bags share no token, also where both are empty (two answers of "the" score 0,
// officially too).
double BagF1(std::span<const std::u32string> prediction, std::span<const std::u32string> reference);

double QaF1(std::string_view prediction, std::string_view reference);
double ChineseQaF1(std::string_view prediction, std::string_view reference);

}  // namespace longheads
