// The scores of LongBench's English tasks, each in [0, 1]; the benchmark's figures are their means over
// samples, times 100. QA F1 and ROUGE-L are in token_f1.h and rouge.h.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace longheads {

// Where the official code does something else than what it says, kOfficial does what it does, so that a
// figure can stand beside a published one, and kCanonical what it says. It makes a difference to
// classification and to code similarity, nowhere else.
enum class LongBenchScoring { kCanonical, kOfficial };

// trec. The classes whose name occurs in the prediction are its matches; those whose name is contained in the
// answer's are dropped ("Date" where the answer is "Birth Date"), and the score is 1 / (number left) if the
// answer is among them. The official loop deletes from the list that it goes through, so it looks at none
// that follows directly on a deleted one (kOfficial).
double ClassificationScore(std::string_view prediction, std::string_view answer,
                           std::span<const std::string> classes,
                           LongBenchScoring scoring = LongBenchScoring::kCanonical);

// passage_count. The share of the numbers in the prediction that are written as the answer is: "05" is not
// "5". 0 where there is none.
double CountScore(std::string_view prediction, std::string_view answer);

// passage_retrieval_en. The same for the number in the answer, which reads "Paragraph 12".
double PassageRetrievalScore(std::string_view prediction, std::string_view answer);

// lcc, repobench-p. The first line of the prediction (newlines before it aside) that holds no backtick, # or
// // is compared with the answer by fuzzywuzzy's `ratio` in whole percents; without such a line the empty
// string is. By kOfficial the ratio is the one that the official list of requirements installs
// (edit_ratio.h).
double CodeSimilarityScore(std::string_view prediction, std::string_view answer,
                           LongBenchScoring scoring = LongBenchScoring::kCanonical);

enum class LongBenchMetric { kQaF1, kRougeL, kClassification, kCount, kPassageRetrieval, kCodeSimilarity };

// Of trec, triviaqa and samsum only the first line of the prediction counts, newlines before it aside.
std::string_view FirstLine(std::string_view prediction);

// The best score over the answers. `classes` are for kClassification.
double LongBenchScore(LongBenchMetric metric, std::string_view prediction,
                      std::span<const std::string> answers, std::span<const std::string> classes = {},
                      LongBenchScoring scoring = LongBenchScoring::kCanonical);

}  // namespace longheads
