#include "program/eval_suite_command.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/progress.h"
#include "eval/ablation.h"
#include "eval/task_registry.h"
#include "eval/task_run.h"
#include "formats/input_file.h"
#include "program/eval_command.h"
#include "program/eval_options.h"
#include "program/eval_task_report.h"

namespace longheads {
namespace {

const std::map<std::string, SuiteExperiment>& Experiments() {
  static const std::map<std::string, SuiteExperiment> experiments = {{"passkey", PasskeyExperiment()},
                                                                     {"ppl", PplExperiment()}};
  return experiments;
}

struct SuiteCommandOptions {
  std::string file;
  std::string out_dir;
  std::string shard = "1/1";
  bool retry_failed = false;
  int threads = 0;
};

struct NamedStep {
  std::string name;
  SuiteStep step;
};

// What the steps of a run share.
struct SuiteRun {
  const SuiteCommandOptions& options;
  SuiteStepOptions shared;
  EvalPace pace = {};
  std::vector<NamedStep> steps = {};

  ModelOptions Model(const SuiteModel& model) const {
    ModelOptions m;
    m.model = model.file;
    m.compute = model.compute;
    m.kv_type = model.kv_type;
    m.kv_ram = model.kv_ram;
    m.kv_disk = model.kv_disk;
    m.kv_disk_max = model.kv_disk_max;
    m.kv_blocks = model.kv_blocks;
    m.rope = model.rope;
    m.threads = options.threads;
    return m;
  }
  // `file`: the model's.
  Status AddStep(const SuiteModel& suite_model, const std::string& file, const SuiteTask& suite_task);
  Result<SuiteStep> TaskStep(const ModelOptions& model, const SuiteTask& suite_task) const;
  Result<int> RunSteps();
  std::string TimeLeft(std::size_t step) const;
};

// `variants`: of an ablation.
Result<int> RunTaskStep(const ModelOptions& model, const TaskRunOptions& options, Task& task,
                        std::span<const AblationVariant> variants, EvalPace* pace) {
  TaskReport report(pace);
  std::vector<TaskRecord> records;
  const Status status = RunTask(options, task, report.Hooks(model, task), records);
  report.FinishProgress();
  std::string table = DescribeTaskRun(task, records, MethodsOf(task, options));
  if (!records.empty() && !variants.empty()) table = AblationTable(records, variants);
  return FinishEval(status, table, records, options.out_dir);
}

// "ruler on model.gguf, --kv-ram 64m": what tells a step from the others.
std::string StepName(const SuiteTask& task, const std::string& file, const ModelOptions& model) {
  std::string name = fmt::format("{}{} on {}", task.variants.empty() ? "" : "ablation of ", task.name, file);
  if (model.kv_ram != "0") name += ", --kv-ram " + model.kv_ram;
  if (model.kv_disk) name += ", --kv-disk " + *model.kv_disk;
  if (model.kv_blocks != 0) name += fmt::format(", --kv-blocks {}", model.kv_blocks);
  if (!model.rope.Text().empty()) name += ", " + model.rope.Text();
  return name;
}

Result<SuiteStep> SuiteRun::TaskStep(const ModelOptions& model, const SuiteTask& suite_task) const {
  LH_ASSIGN(std::unique_ptr<Task> made, MakeTask(*FindTaskKind(suite_task.name), suite_task.options));
  const std::shared_ptr<Task> task = std::move(made);
  const TaskRunOptions run{.attention = suite_task.attention,
                           .form = suite_task.form,
                           .out_dir = shared.out_dir,
                           .backend = model.backend,
                           .rope = model.rope.Text(),
                           .shard = shared.shard,
                           .retry_failed = shared.retry_failed,
                           .keep_going = true};
  double tokens = 0;
  for (const Sample& sample : task->samples()) tokens += static_cast<double>(sample.tokens);
  tokens *= static_cast<double>(run.attention.size()) / static_cast<double>(shared.shard.count);
  return SuiteStep{.run = [model, run, task, variants = suite_task.variants,
                           pace = shared.pace] { return RunTaskStep(model, run, *task, variants, pace); },
                   .tokens = tokens};
}

Status SuiteRun::AddStep(const SuiteModel& suite_model, const std::string& file,
                         const SuiteTask& suite_task) {
  const ModelOptions model = Model(suite_model);
  const auto experiment = Experiments().find(suite_task.name);
  LH_ASSIGN(SuiteStep step, experiment == Experiments().end()
                                ? TaskStep(model, suite_task)
                                : experiment->second.make(model, suite_task, shared));
  steps.push_back({.name = StepName(suite_task, file, model), .step = std::move(step)});
  return {};
}

// Of the steps from this one on, at the pace so far; empty where there is none yet, or nothing is known of
// what is left.
std::string SuiteRun::TimeLeft(std::size_t step) const {
  double tokens = 0;
  std::size_t n_unknown = 0;
  for (std::size_t i = step; i < steps.size(); ++i) {
    tokens += steps[i].step.tokens;
    if (steps[i].step.tokens == 0) ++n_unknown;
  }
  if (pace.tokens == 0 || tokens == 0) return "";
  return fmt::format(
      "; at this pace {} for what is left, less what is there already{}",
      FormatDuration(pace.seconds / pace.tokens * tokens),
      n_unknown == 0 ? "" : fmt::format(" ({} steps of unknown length not counted)", n_unknown));
}

// Goes on with the others where a step cannot run, and says in the end that some could not.
Result<int> SuiteRun::RunSteps() {
  std::size_t n_failed = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Note("step {} of {}: {}{}\n", i + 1, steps.size(), steps[i].name, TimeLeft(i));
    const Result<int> done = steps[i].step.run();
    if (done) continue;
    if (done.error().kind == ErrorKind::kCancelled) {
      return MakeError(ErrorKind::kCancelled,
                       fmt::format("interrupted in step {} of {}; the same command goes on from there", i + 1,
                                   steps.size()));
    }
    Note("{}: {}\n", steps[i].name, done.error().message);
    ++n_failed;
  }
  if (n_failed == 0) return 0;
  return InvalidInput(
      fmt::format("{} of {} steps could not run (what is wrong is said above); the same command "
                  "runs them again",
                  n_failed, steps.size()));
}

Result<int> RunSuiteCommand(const SuiteCommandOptions& options) {
  SuiteExtras extras;
  for (const auto& [name, experiment] : Experiments()) extras[name] = experiment.options;
  LH_ASSIGN(const std::string json, ReadUtf8File(options.file));
  LH_ASSIGN(const Suite suite, ParseSuite(json, options.file, extras));
  LH_ASSIGN(const Shard shard, ParseShard(options.shard));
  SuiteRun run{.options = options,
               .shared = {.out_dir = options.out_dir.empty() ? suite.out_dir : options.out_dir,
                          .shard = shard,
                          .retry_failed = options.retry_failed}};
  run.shared.pace = &run.pace;
  if (run.shared.out_dir.empty()) {
    return InvalidInput(fmt::format(
        "{}: 'out' is missing, and so is --out: a suite keeps its results in a folder", options.file));
  }
  // All are made before the first one runs: what is wrong with the last shows now.
  const auto wrong = [&](const std::string& place, const Error& error) {
    return MakeError(error.kind, fmt::format("{}: {}: {}", options.file, place, error.message));
  };
  for (std::size_t i = 0; i < suite.models.size(); ++i) {
    const SuiteModel& model = suite.models[i];
    const auto checked = OverflowOptionsOf(run.Model(model));
    if (!checked) return wrong(fmt::format("models[{}]", i), checked.error());
    for (const SuiteTask& task : suite.tasks) {
      const Status added = run.AddStep(model, checked->model_path, task);
      if (!added) return wrong(task.place, added.error());
    }
  }
  return run.RunSteps();
}

}  // namespace

void AddSuiteCommand(CLI::App& eval, Command& command) {
  CLI::App* const app =
      eval.add_subcommand("suite", "Runs models x methods x tasks x lengths, as a JSON file says them");
  const auto options = std::make_shared<SuiteCommandOptions>();
  app->add_option("file", options->file, "the suite")->required()->type_name("FILE.json");
  app->add_option("--out", options->out_dir, "keep the results in DIR, in the place of the file's 'out'")
      ->type_name("DIR");
  AddPartOptions(*app, options->shard, options->retry_failed);
  app->add_option("-t,--threads", options->threads, "threads; 0: the physical cores this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->footer(
      "The file is an object (docs/eval-suite.md):\n"
      "  models   list of GGUF files, or of {\"file\", \"compute\", \"kv-type\", \"kv-ram\", ...}; without "
      "it, "
      "the default model\n"
      "  methods  list of methods as --attn takes them; without it, full and auto\n"
      "  lengths  for every task that has lengths and no own ones\n"
      "  tasks    list of names, or of {\"task\": name, its options without --, \"methods\", \"form\"}\n"
      "           or {\"task\": \"ablation\", \"of\": one of these, \"chunk\", \"window\", \"base\"}\n"
      "  out      folder of the results\n\n"
      "The same command goes on where it was stopped.\n\nExample:\n  longheads eval suite "
      "examples/suite.json --out "
      "results");
  app->callback([options, &command] { command = [options] { return RunSuiteCommand(*options); }; });
}

}  // namespace longheads
