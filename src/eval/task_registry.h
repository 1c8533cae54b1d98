// The experiments that are tasks (task.h), by name: what they are for, their options, and how they are made.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/task.h"
#include "eval/task_options.h"

namespace longheads {

struct TaskKind {
  std::string name;     // of the command, in a suite, and of the files
  std::string summary;  // one line
  std::vector<TaskOption> options;
  std::string notes;  // for --help, with an example
  Result<std::unique_ptr<Task>> (*make)(TaskOptions& options);
};

std::span<const TaskKind> TaskKinds();
const TaskKind* FindTaskKind(std::string_view name);  // null where there is none

// The task with these options, as typed. Refused: options that it does not have, and what it says of them.
Result<std::unique_ptr<Task>> MakeTask(const TaskKind& kind, TaskOptions::Values given);

}  // namespace longheads
