// NeedleBench's multi-needle retrieval (OpenCompass, "parallel"): a needle at each of several depths of one
// text, all asked for in one question. The score is the share of the needles whose keyword the answer has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/task.h"
#include "eval/task_registry.h"

namespace longheads {

struct BenchNeedle {
  std::string sentence;
  std::string question;  // ends in a question mark
  std::string format;    // how an answer begins: "The item hidden on X is ______"
  std::string keyword;   // what an answer must have
};

// Needles of an official file (needles.jsonl): those in English with a keyword and a subject that no earlier
// one has.
Result<std::vector<BenchNeedle>> ReadBenchNeedles(const std::string& path);
// Ours.
std::vector<BenchNeedle> StandardBenchNeedles();

struct NeedleBenchOptions {
  std::vector<int64_t> lengths;
  std::vector<int64_t> depths;  // percent; as many needles
  int64_t n_repeats = 10;
  int64_t buffer = 500;  // tokens of a length for the question and the answer
  uint64_t seed = 0;
  int64_t max_new = 0;  // 0: by the number of needles
};

class NeedleBenchTask : public QuestionTask {
 public:
  // As many needles as depths, at least.
  NeedleBenchTask(Haystack haystack, std::vector<BenchNeedle> needles, NeedleBenchOptions options);

  std::string name() const override { return "needlebench"; }
  MeasureName measure() const override { return {.name = "recall"}; }
  Json Setup() const override;
  const std::vector<Sample>& samples() const override { return samples_; }
  Result<Question> Ask(const Engine& engine, PromptForm form, const Sample& sample,
                       const CancelToken* cancel) const override;
  Score Judge(const Question& question, const std::string& answer) const override;

 private:
  Haystack haystack_;
  std::vector<BenchNeedle> needles_;
  NeedleBenchOptions options_;
  std::string needles_hash_;
  std::vector<Sample> samples_;
};

TaskKind NeedleBenchKind();

}  // namespace longheads
