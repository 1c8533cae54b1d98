// ROUGE-L at the level of summaries, in the two definitions that the benchmarks use; they differ in more than
// rounding, and neither is the other's approximation.
#pragma once

#include <string_view>

namespace longheads {

// LongBench's: F as the Python package `rouge` (1.0.1) computes it. Sentences end at a full stop ("3.5" is
// cut in two), words are what white space parts, and everything is counted as *sets* of words: for each
// sentence of the reference, the words of its longest common subsequences with all sentences of the
// prediction are added to one set, whose size over the number of different words on each side is recall and
// precision. 1e-8 stands in F's denominator. A sentence of white space alone has one word, the empty one,
// which matches its like. Where the package throws (a side without any sentence) LongBench counts 0, as here.
// The package also throws where a sentence is longer than Python's limit of recursion, about a thousand words
// of both sides together; then LongBench counts 0 and this function does not.
double RougeL(std::string_view prediction, std::string_view reference);

// InfiniteBench's (En.Sum): rougeLsum's F of the package `rouge-score` (0.1.2) without stemming, as
// `evaluate` calls it. Sentences are lines, tokens runs of a-z and 0-9 after lower-casing, each counted as
// often as it occurs.
double RougeLsum(std::string_view prediction, std::string_view reference);

}  // namespace longheads
