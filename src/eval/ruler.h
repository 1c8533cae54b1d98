// RULER (Hsieh et al. 2024). Reads the official generator's files as they are; and makes those tasks itself
// whose haystack needs no text: keys with numbers in repeated sentences (niah_single_1) and among many others
// of their kind (niah_multikey_2, niah_multikey_3), and chains of names in repeated sentences (vt).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"
#include "eval/task_registry.h"
#include "formats/line_file.h"

namespace longheads {

// One of the thirteen tasks.
struct RulerTaskInfo {
  std::string_view name;
  int64_t max_new;  // official
  bool any;         // one of the references is enough (the questions); else the share of them that is there
  bool generated;   // can be made here
};
const RulerTaskInfo* FindRulerTask(std::string_view name);

// A task as it is made here: lines, one or some of which are asked for.
struct RulerPrompt {
  std::string text = {};  // the lines, with what comes before them
  std::string question = {};
  std::string answer_begin = {};
  std::vector<std::string> values = {};  // what an answer must contain
  std::vector<int64_t> places = {};      // of the lines that are asked for: how many others come before each
};
// `n_lines` besides those asked for; the same seed gives the same keys, values and depths whatever n_lines.
RulerPrompt MakeRulerPrompt(std::string_view task, int64_t n_lines, uint64_t seed, int64_t length,
                            int64_t repeat);

struct RulerOptions {
  std::string data;  // a folder of official files; empty: made here
  std::vector<std::string> tasks;
  std::vector<int64_t> lengths;
  int64_t n_repeats = 10;  // of each made task and length; of files, all lines where it is 0
  uint64_t seed = 0;
};

class RulerTask : public QuestionTask {
 public:
  static Result<std::unique_ptr<Task>> Make(RulerOptions options);

  std::string name() const override { return "ruler"; }
  MeasureName measure() const override { return {.name = "accuracy"}; }
  Json Setup() const override;
  const std::vector<Sample>& samples() const override { return samples_; }
  Status Check(const Engine& engine, PromptForm form, const CancelToken* cancel) const override;
  Result<Question> Ask(const Engine& engine, PromptForm form, const Sample& sample,
                       const CancelToken* cancel) const override;
  Score Judge(const Question& question, const std::string& answer) const override;

 private:
  // Where a sample comes from, by Sample::number.
  struct Source {
    const RulerTaskInfo* task;
    int64_t length;
    int64_t index;  // line of the file, or repeat
    std::size_t file = 0;
  };

  Status AddFile(const RulerTaskInfo& task, int64_t length);
  void AddGenerated(const RulerTaskInfo& task, int64_t length);
  Result<Question> Read(const Source& source) const;
  Result<Question> Generate(const Engine& engine, PromptForm form, const Source& source,
                            const CancelToken* cancel) const;

  RulerOptions options_;
  std::vector<LineFile> files_;
  std::vector<Source> sources_;
  std::vector<Sample> samples_;
};

TaskKind RulerKind();

}  // namespace longheads
