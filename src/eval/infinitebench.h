// InfiniteBench (Zhang et al. 2024): its 12 tasks, what a line of their files becomes, and how an answer is
// judged. Prompts and texts come from the official files; how prompts are cut is prompt_cut.h's, and how
// samples run benchmark_task.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "eval/benchmark_item.h"
#include "scoring/infinitebench_scores.h"

namespace longheads {

enum class InfiniteBenchMetric {
  kFirstInteger,
  kValue,
  kOption,
  kCodeDebug,
  kFirstNumber,
  kReturnedInteger,
  kLeadingValues,
  kCharacter,
  kQaF1,
  kChineseQaF1,
  kRougeLsum
};

struct InfiniteBenchDataset {
  std::string_view name;   // of the file
  std::string_view label;  // in the papers
  InfiniteBenchMetric metric;
  int64_t max_new;         // the official harness's; InfLLM's are in its dataset2maxlen.json
  bool in_papers = false;  // one of the six that InfLLM and ESA report
};

std::span<const InfiniteBenchDataset> InfiniteBenchDatasets();
const InfiniteBenchDataset* FindInfiniteBench(std::string_view name);  // null where there is none

// The members "context" (or "content"), "input", "answer", and "options" where there is a choice. Fields of
// prompts, as both harnesses name them: context, input, question (the input), OPTION_A .. OPTION_D, func and
// func_call (of code_run), key (of kv_retrieval, in quotes), prefix and prompt (of math_find: which number is
// asked for).
Result<BenchmarkItem> ReadInfiniteBench(const InfiniteBenchDataset& dataset,
                                        const nlohmann::ordered_json& line);

// In [0, 1].
double JudgeInfiniteBench(const InfiniteBenchDataset& dataset, const nlohmann::ordered_json& references,
                          std::string_view answer, InfiniteBenchScoring scoring);

}  // namespace longheads
