#include "eval/task_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <new>
#include <optional>

#include "base/memory.h"
#include "base/seconds.h"
#include "engine/esa_compression.h"
#include "eval/experiment.h"

namespace longheads {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostShards = 10000;

// What the run has cost so far, and by that what is left.
class TimeLeft {
 public:
  void Expect(const Sample& sample) { left_ += Work(sample); }
  void Spend(const Sample& sample, double seconds) {
    left_ -= Work(sample);
    done_ += Work(sample);
    seconds_ += seconds;
  }
  double seconds() const { return done_ == 0 ? -1 : seconds_ / done_ * left_; }

 private:
  static double Work(const Sample& sample) {
    return static_cast<double>(std::max<int64_t>(1, sample.tokens));
  }
  double left_ = 0, done_ = 0, seconds_ = 0;
};

// Everything of one run that its samples share.
struct Run {
  const TaskRunOptions& options;
  Task& task;
  const TaskHooks& hooks;
  std::vector<std::string> attention;
  std::vector<const Sample*> samples;  // of this shard
  CaseLog<TaskRecord> log;
  PromptForm form = PromptForm::kPlain;
  ModelSetup model;
  Provenance by = {};
  std::map<std::string, std::string> esa_compressions = {};  // by method; of those that have one
  TimeLeft time_left;

  TaskSetup Setup(const std::string& spec) const;
  const TaskRecord* Done(const std::string& fingerprint, const Sample& sample) const;
  Status CheckMethods();
  void ExpectWork();
  Result<SampleOutcome> Measure(Engine& engine, PromptReader& reader, const std::string& spec,
                                const Sample& sample);
  Status RunMethod(const std::string& spec);
};

std::vector<const Sample*> SamplesOf(const Task& task, const Shard& shard) {
  std::vector<const Sample*> samples;
  int64_t document = -1;
  const std::string* before = nullptr;
  for (const Sample& sample : task.samples()) {
    const bool goes_on = before != nullptr && !before->empty() && *before == sample.document;
    if (!goes_on) ++document;
    before = &sample.document;
    if (shard.Has(document)) samples.push_back(&sample);
  }
  return samples;
}

TaskSetup Run::Setup(const std::string& spec) const {
  TaskSetup setup{.model = model, .attention = spec, .task = task.name(), .options = task.Setup()};
  if (task.has_form()) setup.options["form"] = PromptFormName(form);
  if (task.measures_cost()) {
    setup.options["kv_ram"] = hooks.engine_options.kv_ram;
    setup.options["threads"] = by.threads;
    setup.options["machine"] = by.machine;
  }
  const auto compression = esa_compressions.find(spec);
  if (compression != esa_compressions.end()) setup.options[kEsaCompressionOption] = compression->second;
  return setup;
}

// Null where the sample is to be run.
const TaskRecord* Run::Done(const std::string& fingerprint, const Sample& sample) const {
  const TaskRecord* const found = log.Find(fingerprint, "", sample);
  return found != nullptr && !found->failed.empty() && options.retry_failed ? nullptr : found;
}

// Loads the model once with every method: what is wrong with one of them shows before hours of work.
Status Run::CheckMethods() {
  bool first = true;
  for (const std::string& spec : attention) {
    LH_ASSIGN(const std::unique_ptr<Engine> engine, hooks.load(spec));
    LH_ASSIGN(const std::string compression, EsaCompressionOf(*engine));
    if (!compression.empty()) esa_compressions[spec] = compression;
    if (!first) continue;
    first = false;
    LH_ASSIGN(model, ModelSetupOf(*engine, options.backend, options.rope));
    by = ProvenanceOf(*engine);
    if (task.has_form()) {
      LH_ASSIGN(form, ResolvePromptForm(options.form, *engine));
    }
    LH_TRY(task.Check(*engine, form, hooks.cancel));
  }
  return {};
}

void Run::ExpectWork() {
  for (const std::string& spec : attention) {
    const std::string fingerprint = Setup(spec).Fingerprint();
    for (const Sample* sample : samples) {
      if (Done(fingerprint, *sample) == nullptr) time_left.Expect(*sample);
    }
  }
}

Result<SampleOutcome> Run::Measure(Engine& engine, PromptReader& reader, const std::string& spec,
                                   const Sample& sample) try {
  const TaskContext context{.engine = engine,
                            .reader = reader,
                            .form = form,
                            .load = hooks.load,
                            .engine_options = hooks.engine_options,
                            .cancel = hooks.cancel,
                            .on_prefill = [&](int64_t n_tokens) {
                              return hooks.on_prefill ? hooks.on_prefill(spec, sample, n_tokens)
                                                      : std::function<void(double)>();
                            }};
  return task.Measure(context, sample);
} catch (const std::bad_alloc&) {
  return MakeError(ErrorKind::kOutOfMemory, "out of memory");
}

Status Run::RunMethod(const std::string& spec) {
  const TaskSetup setup = Setup(spec);
  const std::string fingerprint = setup.Fingerprint();
  std::vector<const Sample*> left;
  for (const Sample* sample : samples) {
    if (const TaskRecord* const done = Done(fingerprint, *sample)) {
      log.AddFound(*done);
    } else {
      left.push_back(sample);
    }
  }
  if (left.empty()) return {};
  std::unique_ptr<Engine> engine;
  std::optional<PromptReader> reader;
  for (const Sample* sample : left) {
    if (Cancelled(hooks.cancel)) return Interrupted();
    // An engine keeps buffers and pages for what comes next: where memory is measured, each sample has its
    // own.
    if (!engine || task.measures_cost()) {
      reader.reset();
      engine.reset();
      ReturnFreeMemory();
      LH_ASSIGN(engine, hooks.load(spec));
      reader.emplace(*engine, /*share=*/true);
      if (sample == left.front() && hooks.on_method) hooks.on_method(*engine, spec);
    }
    const Clock::time_point start = Clock::now();
    Result<SampleOutcome> measured = Measure(*engine, *reader, spec, *sample);
    if (!measured && measured.error().kind == ErrorKind::kCancelled) return Interrupted();
    if (!measured) reader->Forget();  // frees what it kept, should memory have been short
    TaskRecord record{.setup = setup,
                      .fingerprint = fingerprint,
                      .sample = *sample,
                      .measure = task.measure(),
                      .seconds = SecondsSince(start),
                      .by = by,
                      .time = fmt::format("{:%Y-%m-%d %H:%M:%S}+0000", fmt::gmtime(std::time(nullptr)))};
    if (measured && !std::isfinite(measured->score)) {
      record.failed = "its score is no number";
    } else if (measured) {
      record.measured = std::move(*measured);
      record.sample.cell.update(record.measured.cell);
    } else {
      record.failed = measured.error().message;
    }
    time_left.Spend(*sample, record.seconds);
    LH_TRY(log.AddRun(record));
  }
  return {};
}

// Files may hold records of programs that wrote something else.
Status ExportAll(const Task& task, const std::string& directory, std::span<const TaskRecord> records) try {
  return task.Export(directory, records);
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(fmt::format("{}: what else belongs to the results of {} cannot be written: {}",
                                  directory, task.name(), error.what()));
}

}  // namespace

Result<Shard> ParseShard(const std::string& text) {
  const auto number = [](std::string_view digits) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : 0;
  };
  const std::size_t slash = std::min(text.find('/'), text.size());
  const Shard shard{.index = number(std::string_view(text).substr(0, slash)),
                    .count = number(std::string_view(text).substr(std::min(slash + 1, text.size())))};
  if (shard.index >= 1 && shard.index <= shard.count && shard.count <= kMostShards) return shard;
  return InvalidInput(fmt::format(
      "--shard is '{}', but must be i/n with i from 1 to n and n at most {}, as in 2/4", text, kMostShards));
}

std::string TaskJournalName(const std::string& task, const Shard& shard) {
  return shard.count == 1 ? task : fmt::format("{}-{}of{}", task, shard.index, shard.count);
}

std::vector<std::string> MethodsOf(const Task& task, const TaskRunOptions& options) {
  std::vector<std::string> methods = task.methods().empty() ? options.attention : task.methods();
  DropRepeats(methods);
  return methods;
}

Status RunTask(const TaskRunOptions& options, Task& task, const TaskHooks& hooks,
               std::vector<TaskRecord>& records) {
  if (MethodsOf(task, options).empty()) {
    return InvalidInput("--attn names no method: 'longheads methods' lists them");
  }
  std::vector<std::string> attention = MethodsOf(task, options);
  std::vector<const Sample*> samples = SamplesOf(task, options.shard);
  const int64_t total = static_cast<int64_t>(attention.size() * samples.size());
  const auto on_case = [&](Run& run) {
    return [&](const TaskRecord& record, bool from_file, int64_t done, int64_t n_cases) {
      if (!hooks.on_sample) return;
      hooks.on_sample(record, from_file,
                      {.done = done, .total = n_cases, .seconds_left = run.time_left.seconds()});
    };
  };
  CaseLog<TaskRecord>::OnCase hear;
  Run run{.options = options,
          .task = task,
          .hooks = hooks,
          .attention = std::move(attention),
          .samples = std::move(samples),
          .log = {records, total, hear},
          .model = {},
          .time_left = {}};
  hear = on_case(run);
  LH_TRY(run.CheckMethods());
  if (!options.out_dir.empty()) {
    LH_ASSIGN(TaskJournal journal,
              OpenTaskJournal(options.out_dir, TaskJournalName(task.name(), options.shard)));
    run.log.KeepIn(std::move(journal));
  }
  run.ExpectWork();
  Status status;
  for (const std::string& spec : run.attention) {
    status = run.RunMethod(spec);
    if (!status) break;
  }
  // However the run ended: what is done is written everywhere.
  const Status exported = options.out_dir.empty() ? Status() : ExportAll(task, options.out_dir, records);
  const Status finished = run.log.Finish(status);
  return finished ? exported : finished;
}

}  // namespace longheads
