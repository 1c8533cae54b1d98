// A subcommand of `longheads eval` for each experiment that is a task (eval/task_registry.h).
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "eval/task_registry.h"
#include "eval/task_run.h"
#include "program/eval_command.h"
#include "program/eval_options.h"
#include "program/eval_task_report.h"

namespace longheads {
namespace {

struct TaskCommandOptions {
  EvalOptions eval;
  TaskOptions::Values values;
  TaskRunOptions run;
  std::string shard = "1/1";
};

Result<int> RunTaskCommand(const TaskKind& kind, TaskCommandOptions options) {
  options.run.attention = ListSpecs(options.eval);
  options.run.backend = options.eval.model.backend;
  options.run.rope = options.eval.model.rope.Text();
  LH_ASSIGN(options.run.shard, ParseShard(options.shard));
  LH_ASSIGN(const std::unique_ptr<Task> task, MakeTask(kind, options.values));
  TaskReport report;
  std::vector<TaskRecord> records;
  const Status status = RunTask(options.run, *task, report.Hooks(options.eval.model, *task), records);
  report.FinishProgress();
  return FinishEval(status, DescribeTaskRun(*task, records, MethodsOf(*task, options.run)), records,
                    options.run.out_dir);
}

void AddTaskOptions(CLI::App& app, const TaskKind& kind, TaskCommandOptions& options) {
  AddModelOptions(app, options.eval.model, /*with_attention=*/false);
  AddAttentionOption(app, options.eval);
  for (const TaskOption& option : kind.options) {
    app.add_option_function<std::string>(
           "--" + option.name,
           [&options, name = option.name](const std::string& value) { options.values[name] = value; },
           option.meaning)
        ->type_name(option.type)
        ->default_str(option.standard)
        ->group(kExperimentGroup);
  }
  app.add_option(
         "--form", options.run.form,
         "of the prompt: plain: a completion; chat: a question in the model's chat template; auto: chat "
         "where the model has one")
      ->type_name("auto|plain|chat")
      ->check(CLI::IsMember({"auto", "plain", "chat"}))
      ->capture_default_str()
      ->group(kExperimentGroup);
  AddPartOptions(app, options.shard, options.run.retry_failed);
  AddOutOption(app, options.run.out_dir, kind.name);
  app.footer(kind.notes);
}

}  // namespace

void AddTaskCommands(CLI::App& eval, Command& command) {
  for (const TaskKind& kind : TaskKinds()) {
    CLI::App* const app = eval.add_subcommand(kind.name, kind.summary);
    const auto options = std::make_shared<TaskCommandOptions>();
    AddTaskOptions(*app, kind, *options);
    app->callback([&kind, options, &command] {
      command = [&kind, options] { return RunTaskCommand(kind, *options); };
    });
  }
}

}  // namespace longheads
