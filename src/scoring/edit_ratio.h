// How alike two strings are, as fuzzywuzzy's `ratio` says it for LongBench's code completion. That function
// computes one of two different numbers, depending on whether the optional package python-Levenshtein is
// installed:
// - with it, 2 LCS / (|a| + |b|), which is 1 - distance / (|a| + |b|) for the distance of insertions and
// deletions
//   (rapidfuzz's `ratio` is this number);
// - without it, difflib's, Ratcliff and Obershelp's: 2 M / (|a| + |b|), M the total length of the blocks
// found by
//   taking the longest common block and going on to its left and right. It is never the larger, and it
//   depends on which string is the first.
// LongBench's and InfLLM's lists of requirements name fuzzywuzzy alone, so the published figures are
// difflib's unless somebody's machine had the other package. Lengths are in code points.
#pragma once

#include <string_view>

namespace longheads {

double IndelRatio(std::string_view a, std::string_view b);  // [0, 1]; 1 for two empty strings
double MatchingBlocksRatio(std::string_view a,
                           std::string_view b);  // with difflib's "autojunk", from 200 on in b

enum class EditRatio { kIndel, kMatchingBlocks };

// fuzzywuzzy's `ratio`: whole percents, halves to the even one; 100 for equal strings, else 0 where one is
// empty.
int FuzzyPercent(std::string_view a, std::string_view b, EditRatio ratio);

}  // namespace longheads
