// LongBench (Bai et al. 2023): its 16 English data sets and the 13 of LongBench-E, what a line of their files
// becomes and how an answer is judged. Prompts, lengths of answers and texts come from the official files;
// how prompts are cut is prompt_cut.h's, and how samples run benchmark_task.h's.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "eval/benchmark_item.h"
#include "scoring/longbench_scores.h"

namespace longheads {

struct LongBenchDataset {
  std::string_view name;   // of the file: "qasper", and "qasper_e" in LongBench-E
  std::string_view label;  // in the papers' tables
  LongBenchMetric metric;
  bool in_e = true;
  // Of the answer only the first line counts.
  bool first_line = false;
  // Asked without a chat template in any case.
  bool plain = false;
};

std::span<const LongBenchDataset> LongBenchDatasets();         // in the order of LongHeads' table 2
const LongBenchDataset* FindLongBench(std::string_view name);  // null where there is none

// "0-4k", "4-8k" or "8k+" words: the classes that LongBench-E's results are given for.
std::string_view LongBenchLengthClass(int64_t n_words);

// The members "input", "context", "answers", "all_classes"; with `by_length` also "length", and the cell says
// its class.
Result<BenchmarkItem> ReadLongBench(const nlohmann::ordered_json& line, bool by_length);

// In [0, 1].
double JudgeLongBench(const LongBenchDataset& dataset, const nlohmann::ordered_json& references,
                      std::string_view answer, LongBenchScoring scoring);

}  // namespace longheads
