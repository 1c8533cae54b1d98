// What `longheads eval suite` runs: a step is one task on one model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/model_options.h"
#include "eval/suite.h"

namespace longheads {

// Runs a step that was checked; 0, or the Error that ended it.
using SuiteStep = std::function<Result<int>()>;

// The experiments that are no tasks, for a suite: their options, and how a step is made of them. Options are
// checked when it is made.
struct SuiteExperiment {
  std::vector<TaskOption> options;
  Result<SuiteStep> (*make)(const ModelOptions& model, const SuiteTask& task, const std::string& out_dir);
};
SuiteExperiment PasskeyExperiment();
SuiteExperiment PplExperiment();

}  // namespace longheads
