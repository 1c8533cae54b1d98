// What retrieval tasks look for in an answer: its first integer (pass keys), key phrases (needles), the
// listed numbers (Counting-Stars).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longheads {

// The first run of the digits 0-9, as written ("a 07, 8" -> "07"); empty where there is none. A sign is no
// part of it.
std::string FirstInteger(std::string_view text);

enum class LetterCase { kDistinguished, kIgnored };

// The share of the phrases that occur in the prediction, in [0, 1]; there must be one at least. NeedleBench's
// score of a sample (times 100) distinguishes case, RULER's and ours of a single needle do not.
double ShareContained(std::string_view prediction, std::span<const std::string> phrases,
                      LetterCase letter_case);

// Counting-Stars: the share of the numbers that stand in the answer's list, repeated ones counted each. The
// list runs from the first '[' (from the beginning where the prompt opened it already, as ESA's does) to the
// next ']', or to the end of a list that was cut off. Only its first m entries count, m the number of
// references, so a list of every number there is gains nothing.
double CountingStarsRecall(std::string_view prediction, std::span<const int64_t> references);

}  // namespace longheads
