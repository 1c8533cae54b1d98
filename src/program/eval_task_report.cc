#include "program/eval_task_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"

namespace longheads {
namespace {

std::string Describe(const std::string& attention, const Sample& sample) {
  return fmt::format("{}, {}", attention, sample.id);
}

std::string ScoreText(const TaskRecord& r) {
  if (!r.failed.empty()) return "failed: " + r.failed;
  std::string text = r.measure.unit == "share"
                         ? fmt::format("{} {:.3g}", r.measure.name, r.measured.score)
                         : fmt::format("{} {:.5g} {}", r.measure.name, r.measured.score, r.measure.unit);
  constexpr std::size_t kMostBytes = 120;
  if (!r.measured.answer.empty()) {
    const std::string quoted = QuoteAnswer(r.measured.answer);
    text += ", answer " + (quoted.size() <= kMostBytes ? quoted : quoted.substr(0, kMostBytes) + "...");
  }
  return text;
}

}  // namespace

TaskHooks TaskReport::Hooks(const ModelOptions& model, const Task& task) {
  int64_t longest = 0;
  for (const Sample& sample : task.samples()) {
    longest = std::max(longest, sample.longest > 0 ? sample.longest : sample.tokens);
  }
  return {
      .load = Loader(model),
      // Where no model is found, loading it says so.
      .engine_options = EngineOptionsOf(model).value_or(EngineOptions{}),
      .on_method = [longest](const Engine& engine,
                             const std::string& attention) { AnnounceMethod(engine, attention, longest); },
      .on_prefill = [this](
                        const std::string& attention, const Sample& sample,
                        int64_t n_tokens) { return progress_.Start(Describe(attention, sample), n_tokens); },
      .on_sample = [this](const TaskRecord& record, bool from_file,
                          const TaskProgress& progress) { PrintSample(record, from_file, progress); },
      .cancel = &InterruptToken()};
}

void TaskReport::PrintSample(const TaskRecord& r, bool from_file, const TaskProgress& progress) {
  progress_.Finish();
  std::string how = "done before";
  if (!from_file) {
    if (pace_ != nullptr && r.failed.empty()) pace_->Add(r.seconds, r.sample.tokens);
    how = fmt::format("{:.1f} s", r.seconds);
    if (r.measured.shared > 0) {
      how += fmt::format(" ({} of {} tokens read before)", r.measured.shared, r.measured.tokens);
    }
    if (progress.seconds_left > 0) how += fmt::format(", {} left", FormatDuration(progress.seconds_left));
  }
  Note("[{}/{}] {}: {}; {}\n", progress.done, progress.total, Describe(r.setup.attention, r.sample),
       ScoreText(r), how);
}

std::string DescribeTaskRun(const Task& task, std::span<const TaskRecord> records,
                            const std::vector<std::string>& attention) {
  if (records.empty()) return "";
  const TaskSetup& setup = records[0].setup;
  const MeasureName measure = task.measure();
  return fmt::format("{}: {}{} (95% interval), {}, compute {}, kv {}\n{}", setup.task, measure.name,
                     measure.unit == "share" ? " in percent" : ", " + measure.unit, setup.model.model,
                     setup.model.compute, setup.model.kv, TaskTable(records, attention, task.shown()));
}

}  // namespace longheads
