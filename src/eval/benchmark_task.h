// Runs a benchmark that comes as JSONL files and formats of prompts. What its lines hold and how it judges is
// each benchmark's (longbench.h, infinitebench.h), and so are the options of its command (longbench_task.h,
// infinitebench_task.h).
//
// Questions to one text stand together, in the place of the first of them, and the text is read once for all.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/benchmark_item.h"
#include "eval/prompt_cut.h"
#include "eval/task.h"
#include "eval/task_options.h"
#include "formats/line_file.h"

namespace longheads {

struct BenchmarkDataset {
  std::string file;  // without ".jsonl"; in samples' ids
  std::string name;  // in cells and for `judge`
  LineFile lines;
  std::string prompt;  // its format
  int64_t max_new = 0;
  bool plain = false;  // without a chat template in any case
  std::vector<std::string> stops = {};
};

struct Benchmark {
  std::string name;
  Json setup;  // Task::Setup
  CutRule cut = CutRule::kNone;
  int64_t limit = 0;  // tokens, for `cut`
  std::function<Result<BenchmarkItem>(const BenchmarkDataset& dataset, const Json& line)> read;
  // In [0, 1].
  std::function<double(std::string_view dataset, const Json& references, const std::string& answer)> judge;
};

class BenchmarkTask : public QuestionTask {
 public:
  // Reads every line once, the first `most_samples` of each data set. A line that is damaged is a sample that
  // fails when it is asked; a file without lines is an error, and so is a format of prompts that asks for a
  // field there is not.
  static Result<std::unique_ptr<BenchmarkTask>> Create(Benchmark benchmark,
                                                       std::vector<BenchmarkDataset> datasets,
                                                       int64_t most_samples);

  std::string name() const override { return benchmark_.name; }
  MeasureName measure() const override { return {.name = "score"}; }
  Json Setup() const override { return benchmark_.setup; }
  const std::vector<Sample>& samples() const override { return samples_; }
  Result<Question> Ask(const Engine& engine, PromptForm form, const Sample& sample,
                       const CancelToken* cancel) const override;
  Score Judge(const Question& question, const std::string& answer) const override;

 private:
  struct Place {
    std::size_t dataset;
    int64_t line;
    bool shares_text = false;  // with another sample of the run
  };

  BenchmarkTask(Benchmark benchmark, std::vector<BenchmarkDataset> datasets)
      : benchmark_(std::move(benchmark)), datasets_(std::move(datasets)) {}
  Result<BenchmarkItem> Read(const Place& place) const;
  Result<Sample> SampleOf(const Place& place, const BenchmarkItem& item) const;
  Status AddSamples(std::size_t dataset, int64_t most);

  Benchmark benchmark_;
  std::vector<BenchmarkDataset> datasets_;
  std::vector<Sample> samples_;
  std::map<std::string, Place> places_;  // by sample id
};

// What --tasks names: "all", or names out of `known`, each once.
std::vector<std::string> ChosenDatasets(TaskOptions& options, const std::vector<std::string>& known);

}  // namespace longheads
