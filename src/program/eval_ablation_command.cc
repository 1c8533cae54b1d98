// `longheads eval ablation`: a task on LongHeads' variants.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/output.h"
#include "eval/ablation.h"
#include "eval/task_registry.h"
#include "eval/task_run.h"
#include "program/eval_command.h"
#include "program/eval_options.h"
#include "program/eval_task_report.h"

namespace longheads {
namespace {

struct AblationCommandOptions {
  ModelOptions model;
  AblationBase base{.rest = "begin=window"};
  std::string task = "needle";
  std::vector<std::string> settings;  // NAME=VALUE
  TaskRunOptions run;
  std::string shard = "1/1";
};

Result<TaskOptions::Values> ParseSettings(const std::vector<std::string>& settings) {
  TaskOptions::Values values;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidInput(fmt::format("--set is '{}', but must be NAME=VALUE, as in lengths=4k,8k", setting));
    }
    values[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return values;
}

Result<int> RunAblationCommand(AblationCommandOptions options) {
  const TaskKind* const kind = FindTaskKind(options.task);
  if (kind == nullptr) {
    return InvalidInput(
        fmt::format("--task is '{}', which is no task: 'longheads eval --help' lists them", options.task));
  }
  LH_ASSIGN(const std::vector<AblationVariant> variants, AblationVariants(options.base));
  LH_ASSIGN(const TaskOptions::Values values, ParseSettings(options.settings));
  LH_ASSIGN(const std::unique_ptr<Task> task, MakeTask(*kind, values));
  LH_ASSIGN(options.run.shard, ParseShard(options.shard));
  int64_t longest = 0;
  for (const Sample& sample : task->samples()) {
    longest = std::max(longest, sample.longest > 0 ? sample.longest : sample.tokens);
  }
  if (longest > 0 && longest <= options.base.window) {
    Note(
        "warning: no text is longer than the base's window of {} tokens: it chooses nothing there, nor do "
        "variants "
        "of as many chunks; name longer texts with --set lengths=\n",
        options.base.window);
  }
  for (const AblationVariant& variant : variants) options.run.attention.push_back(variant.attention);
  options.run.backend = options.model.backend;
  options.run.rope = options.model.rope.Text();
  TaskReport report;
  std::vector<TaskRecord> records;
  const Status status = RunTask(options.run, *task, report.Hooks(options.model, *task), records);
  report.FinishProgress();
  return FinishEval(status, records.empty() ? "" : AblationTable(records, variants), records,
                    options.run.out_dir);
}

}  // namespace

void AddAblationCommand(CLI::App& eval, Command& command) {
  CLI::App* const app = eval.add_subcommand(
      "ablation", "A task on variants of LongHeads' choice of chunks (LongHeads, Table 4)");
  const auto options = std::make_shared<AblationCommandOptions>();
  AddModelOptions(*app, options->model, /*with_attention=*/false);
  const auto add = [&](const std::string& name, auto& value, const std::string& meaning, const char* type) {
    return app->add_option(name, value, meaning)->type_name(type)->group(kExperimentGroup);
  };
  add("--task", options->task, "the task that is run on all variants", "NAME")->capture_default_str();
  add("--set", options->settings, "an option of the task, without --; repeat it for several", "NAME=VALUE")
      ->allow_extra_args(false);
  add("--chunk", options->base.chunk, "chunk length l of the base, in tokens", "N")->capture_default_str();
  add("--window", options->base.window, "attention window A = K l of the base, in tokens", "N")
      ->capture_default_str();
  add("--base", options->base.rest, "further options of the base, as --attn longheads takes them", "OPTIONS")
      ->capture_default_str();
  add("--form", options->run.form, "of the prompt", "auto|plain|chat")
      ->check(CLI::IsMember({"auto", "plain", "chat"}))
      ->capture_default_str();
  AddPartOptions(*app, options->shard, options->run.retry_failed);
  app->add_option("--out", options->run.out_dir, "keep DIR/TASK.jsonl and DIR/TASK.csv, of the task")
      ->type_name("DIR")
      ->group("Output");
  app->footer(
      "Variants: the base; chunks at random, all or all but the first and previous; the worst instead of the "
      "best; "
      "without\nthe first; one choice for all heads, for all layers, for both; half and a quarter as many "
      "chunks; "
      "chunks twice and half\nas long in the same window. Fix Head and the like are not defined in the "
      "paper: "
      "docs/methods/longheads.md says what\nthey mean here. Lengths must lie beyond where the base begins to "
      "choose, or all variants are alike.\n\nExample:\n  longheads eval ablation --task ruler --set "
      "tasks=niah_single_1 --set lengths=8k --set samples=20 --out results");
  app->callback([options, &command] { command = [options] { return RunAblationCommand(*options); }; });
}

}  // namespace longheads
