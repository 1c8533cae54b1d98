// What `longheads eval suite` runs: a step is one task on one model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/model_options.h"
#include "eval/suite.h"
#include "eval/task_run.h"
#include "program/eval_options.h"

namespace longheads {

struct SuiteStep {
  // Runs the step, which was checked; 0, or the Error that ended it.
  std::function<Result<int>()> run;
  double tokens = 0;  // about so many are read if nothing is there yet; 0: not known
};

// What all steps of a suite go by.
struct SuiteStepOptions {
  std::string out_dir;
  Shard shard = {};
  bool retry_failed = false;
  EvalPace* pace = nullptr;  // hears of every sample that is run and does not fail
};

// The experiments that are no tasks, for a suite: their options, and how a step is made of them. Options are
// checked when it is made.
struct SuiteExperiment {
  std::vector<TaskOption> options;
  Result<SuiteStep> (*make)(const ModelOptions& model, const SuiteTask& task,
                            const SuiteStepOptions& options);
};
SuiteExperiment PasskeyExperiment();
SuiteExperiment PplExperiment();

}  // namespace longheads
