#include "tests/default_model/task_on_default_model.h"

#include <gtest/gtest.h>

#include "eval/task_registry.h"
#include "eval/task_run.h"
#include "tests/default_model/default_model.h"

namespace longheads {

std::vector<TaskRecord> RunOnDefaultModel(const DefaultModelTask& run) {
  Result<std::unique_ptr<Task>> task = MakeTask(*FindTaskKind(run.kind), run.options);
  EXPECT_TRUE(task) << task.error().message;
  if (!task) return {};
  const TaskHooks hooks{.load = [&](const std::string& spec) -> Result<std::unique_ptr<Engine>> {
                          return LoadDefaultModel(spec, run.compute);
                        },
                        .engine_options = {.model_path = DefaultModelPath(), .compute = run.compute}};
  std::vector<TaskRecord> records;
  const Status status =
      RunTask({.attention = run.attention, .form = run.form, .out_dir = run.out_dir}, **task, hooks, records);
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_EQ(records.size(), (*task)->samples().size() * run.attention.size());
  for (const TaskRecord& record : records) EXPECT_EQ(record.failed, "") << record.sample.id;
  return records;
}

}  // namespace longheads
