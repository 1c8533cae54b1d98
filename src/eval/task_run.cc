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
  void Drop(const Sample& sample) { left_ -= Work(sample); }
  double seconds() const { return done_ == 0 ? -1 : seconds_ / done_ * left_; }

 private:
  static double Work(const Sample& sample) {
    return static_cast<double>(std::max<int64_t>(1, sample.tokens));
  }
  double left_ = 0, done_ = 0, seconds_ = 0;
};

struct MeasuredMethod {
  std::string attention;
  std::string esa_compression = {};   // empty where it has none
  std::optional<Error> refused = {};  // why it cannot be loaded
};

// Everything of one run that its samples share.
struct Run {
  const TaskRunOptions& options;
  Task& task;
  const TaskHooks& hooks;
  std::vector<MeasuredMethod> methods;
  std::vector<const Sample*> samples;  // of this shard
  CaseLog<TaskRecord> log;
  PromptForm form = PromptForm::kPlain;
  ModelSetup model;
  Provenance by = {};
  TimeLeft time_left;

  TaskSetup Setup(const MeasuredMethod& method) const;
  const TaskRecord* Done(const std::string& fingerprint, const Sample& sample) const;
  TaskRecord Record(const TaskSetup& setup, const std::string& fingerprint, const Sample& sample) const;
  Status CheckMethods();
  Status CheckModel(const Engine& engine);
  void ExpectWork();
  Result<SampleOutcome> Measure(Engine& engine, PromptReader& reader, const std::string& spec,
                                const Sample& sample);
  Status FailSamples(const TaskSetup& setup, std::span<const Sample* const> left, const Error& reason);
  Status RunSamples(const TaskSetup& setup, std::span<const Sample* const> left);
  Status RunMethod(const MeasuredMethod& method);
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

TaskSetup Run::Setup(const MeasuredMethod& method) const {
  TaskSetup setup{
      .model = model, .attention = method.attention, .task = task.name(), .options = task.Setup()};
  if (task.has_form()) setup.options["form"] = PromptFormName(form);
  if (task.measures_cost()) {
    setup.options["kv_ram"] = hooks.engine_options.kv_ram;
    if (hooks.engine_options.kv_ram > 0) {
      setup.options["kv_disk"] = hooks.engine_options.kv_disk;
      setup.options["kv_blocks"] = hooks.engine_options.block_parts;
    }
    setup.options["threads"] = by.threads;
    setup.options["program"] = by.program;
    setup.options["machine"] = by.machine;
  }
  if (!method.esa_compression.empty()) setup.options[kEsaCompressionOption] = method.esa_compression;
  return setup;
}

// Null where the sample is to be run.
const TaskRecord* Run::Done(const std::string& fingerprint, const Sample& sample) const {
  const TaskRecord* const found = log.Find(fingerprint, "", sample);
  return found != nullptr && !found->failed.empty() && options.retry_failed ? nullptr : found;
}

// Of a sample that nothing has come of yet.
TaskRecord Run::Record(const TaskSetup& setup, const std::string& fingerprint, const Sample& sample) const {
  return {.setup = setup,
          .fingerprint = fingerprint,
          .sample = sample,
          .measure = task.measure(),
          .by = by,
          .time = fmt::format("{:%Y-%m-%d %H:%M:%S}+0000", fmt::gmtime(std::time(nullptr)))};
}

// Loads the model once with every method: what is wrong with one of them shows before hours of work, or, for
// who keeps going, is remembered.
Status Run::CheckMethods() {
  bool checked = false;
  for (MeasuredMethod& method : methods) {
    const Result<std::unique_ptr<Engine>> engine = hooks.load(method.attention);
    const Result<std::string> compression =
        engine ? EsaCompressionOf(**engine) : tl::unexpected<Error>(engine.error());
    if (!compression && options.keep_going) {
      method.refused = compression.error();
      continue;
    }
    LH_ASSIGN(method.esa_compression, compression);
    if (!checked) LH_TRY(CheckModel(**engine));
    checked = true;
  }
  // Without a model nothing is known that a record could say.
  if (!checked) return tl::unexpected<Error>(*methods.front().refused);
  return {};
}

// What is the same for all methods.
Status Run::CheckModel(const Engine& engine) {
  LH_ASSIGN(model, ModelSetupOf(engine, options.backend, options.rope));
  by = ProvenanceOf(engine);
  if (task.has_form()) {
    LH_ASSIGN(form, ResolvePromptForm(options.form, engine));
  }
  return task.Check(engine, form, hooks.cancel);
}

void Run::ExpectWork() {
  for (const MeasuredMethod& method : methods) {
    const std::string fingerprint = Setup(method).Fingerprint();
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

Status Run::FailSamples(const TaskSetup& setup, std::span<const Sample* const> left, const Error& reason) {
  const std::string fingerprint = setup.Fingerprint();
  for (const Sample* sample : left) {
    TaskRecord record = Record(setup, fingerprint, *sample);
    record.failed = reason.message;
    time_left.Drop(*sample);
    LH_TRY(log.AddRun(record));
  }
  return {};
}

Status Run::RunSamples(const TaskSetup& setup, std::span<const Sample* const> left) {
  const std::string& spec = setup.attention;
  const std::string fingerprint = setup.Fingerprint();
  std::unique_ptr<Engine> engine;
  std::optional<PromptReader> reader;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (Cancelled(hooks.cancel)) return Interrupted();
    const Sample& sample = *left[i];
    // An engine keeps buffers and pages for what comes next: where memory is measured, each sample has its
    // own.
    if (!engine || task.measures_cost()) {
      reader.reset();
      engine.reset();
      ReturnFreeMemory();
      Result<std::unique_ptr<Engine>> loaded = hooks.load(spec);
      if (!loaded && options.keep_going) return FailSamples(setup, left.subspan(i), loaded.error());
      LH_ASSIGN(engine, std::move(loaded));
      reader.emplace(*engine, /*share=*/true);
      if (i == 0 && hooks.on_method) hooks.on_method(*engine, spec);
    }
    const Clock::time_point start = Clock::now();
    Result<SampleOutcome> measured = Measure(*engine, *reader, spec, sample);
    if (!measured && measured.error().kind == ErrorKind::kCancelled) return Interrupted();
    if (!measured) reader->Forget();  // frees what it kept, should memory have been short
    TaskRecord record = Record(setup, fingerprint, sample);
    record.seconds = SecondsSince(start);
    if (measured && !std::isfinite(measured->score)) {
      record.failed = "its score is no number";
    } else if (measured) {
      record.measured = std::move(*measured);
      record.sample.cell.update(record.measured.cell);
    } else {
      record.failed = measured.error().message;
    }
    time_left.Spend(sample, record.seconds);
    LH_TRY(log.AddRun(record));
  }
  return {};
}

Status Run::RunMethod(const MeasuredMethod& method) {
  const TaskSetup setup = Setup(method);
  const std::string fingerprint = setup.Fingerprint();
  std::vector<const Sample*> left;
  for (const Sample* sample : samples) {
    if (const TaskRecord* const done = Done(fingerprint, *sample)) {
      log.AddFound(*done);
    } else {
      left.push_back(sample);
    }
  }
  return method.refused ? FailSamples(setup, left, *method.refused) : RunSamples(setup, left);
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
  std::vector<MeasuredMethod> methods;
  for (const std::string& attention : MethodsOf(task, options)) methods.push_back({.attention = attention});
  if (methods.empty()) return InvalidInput("--attn names no method: 'longheads methods' lists them");
  std::vector<const Sample*> samples = SamplesOf(task, options.shard);
  const int64_t total = static_cast<int64_t>(methods.size() * samples.size());
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
          .methods = std::move(methods),
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
  for (const MeasuredMethod& method : run.methods) {
    status = run.RunMethod(method);
    if (!status) break;
  }
  // However the run ended: what is done is written everywhere.
  const Status exported = options.out_dir.empty() ? Status() : ExportAll(task, options.out_dir, records);
  const Status finished = run.log.Finish(status);
  return finished ? exported : finished;
}

}  // namespace longheads
