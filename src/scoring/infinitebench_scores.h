// How InfiniteBench's tasks read an answer out of a prediction; each score is in [0, 1]. Pass keys and
// numbers are FirstInteger (retrieval_scores.h), En.QA and Zh.QA F1 (token_f1.h), En.Sum RougeLsum (rouge.h).
//
// The forms are the official ones with what is odd in them, because the published figures depend on it; each
// says what that is. In one thing they differ: where the official code would throw (an empty prediction of a
// choice, "3.5" where an integer is sought) the answer is wrong here; and digits are 0-9, of no other script.
// InfLLM, whose harness ESA used, reads two tasks in another way: kInfLlm.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace longheads {

enum class InfiniteBenchScoring { kOfficial, kInfLlm };

// Retrieve.KV: the value is a whole word once newlines and :"'.,?!{} have become spaces.
bool NamesValue(std::string_view prediction, std::string_view value);

// En.MC. A first character of A-D is the choice, also when it begins a word ("Because" chooses B). Else what
// stands one character behind the first of "answer is:", "answer:", "answer is" and "option is" that occurs
// must begin with the letter or with the option's text; else the first word out of A-D decides (as does "AB",
// always wrongly). kInfLlm compares behind those phrases with any *character* of the option's text instead of
// the text.
bool ChoosesOption(std::string_view prediction, char letter, std::string_view option,
                   InfiniteBenchScoring scoring);

// Code.Debug. "B." or "B:" at the beginning, or behind the first of "answer is:", "is:" and "answer:" that
// occurs the letter or the function's name; a bare "B" is wrong. kInfLlm also takes "answer is" and "error
// is", and where none of the five occurs it draws a letter from a generator seeded with the function's name;
// such a draw counts as its expectation here, 1/4.
double CodeDebugScore(std::string_view prediction, char letter, std::string_view function,
                      InfiniteBenchScoring scoring);

// Code.Run: the last word is the integer, once newlines and .`'": have become spaces.
bool ReturnsInteger(std::string_view prediction, int64_t value);

// Math.Find: the first number, digits with a decimal fraction or without, equals the label. A sign is no part
// of it.
bool FindsInteger(std::string_view prediction, int64_t label);
bool FindsDecimal(std::string_view prediction, double label);

// Math.Calc: the share of the labels before the first that is wrong. Numbers are runs of digits without their
// sign, so that a negative label is never right.
double LeadingValuesScore(std::string_view prediction, std::span<const int64_t> labels);

// En.Dia: the name is a word of the prediction in upper case, after the same characters as in NamesValue have
// become spaces. A name of several words is never found.
bool NamesCharacter(std::string_view prediction, std::string_view name);

}  // namespace longheads
