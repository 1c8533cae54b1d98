// What a run of a task says: samples as they come on stderr, and its table.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "eval/task_run.h"
#include "program/eval_options.h"

namespace longheads {

class TaskReport {
 public:
  // `pace` hears of every sample that is run and does not fail; may be null.
  explicit TaskReport(EvalPace* pace = nullptr) : pace_(pace) {}

  // `model` must outlive the hooks.
  TaskHooks Hooks(const ModelOptions& model, const Task& task);
  void FinishProgress() { progress_.Finish(); }

 private:
  void PrintSample(const TaskRecord& record, bool from_file, const TaskProgress& progress);

  EvalPace* pace_;
  CaseProgress progress_;
};

// The setup in a line, and the table; empty where nothing was found.
std::string DescribeTaskRun(const Task& task, std::span<const TaskRecord> records,
                            const std::vector<std::string>& attention);

}  // namespace longheads
