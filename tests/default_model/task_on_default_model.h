// Runs an experiment of eval/task_registry.h on the default model. What its records must say is the tests'.
#pragma once

#include <string>
#include <vector>

#include "eval/task_options.h"
#include "eval/task_record.h"

namespace longheads {

struct DefaultModelTask {
  std::string kind;
  TaskOptions::Values options = {};
  std::vector<std::string> attention = {"longheads"};
  std::string form = "auto";
  std::string compute = "f32";
  std::string out_dir = {};  // empty: nothing is kept
};

// The records of all its samples with every method, in their order. A sample that failed, or was left out,
// fails the test.
std::vector<TaskRecord> RunOnDefaultModel(const DefaultModelTask& run);

}  // namespace longheads
