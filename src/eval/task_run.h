// Runs a task's samples on a model with every method, and keeps what it finds: sample by sample, so that a
// run that was stopped, however, goes on where it was. What a sample is, is task.h's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/engine.h"
#include "eval/task.h"
#include "eval/task_record.h"

namespace longheads {

// One of several runs that share the samples out, in files of their own.
struct Shard {
  int64_t index = 1;  // 1 .. count
  int64_t count = 1;

  // Shares out documents: their samples stay together. `document` counts from 0.
  bool Has(int64_t document) const { return document % count == index - 1; }
};
// "2/4". Refused where it is anything else.
Result<Shard> ParseShard(const std::string& text);

struct TaskRunOptions {
  std::vector<std::string> attention;  // specs
  std::string form = "auto";           // ResolvePromptForm
  std::string out_dir = {};            // empty: nothing is kept
  std::string backend = "auto";
  std::string rope = {};      // how `load` changes the model's own frequencies, as typed; for the records
  Shard shard = {};           // count > 1: DIR/TASK-2of4.jsonl
  bool retry_failed = false;  // runs samples that have failed before once more
  // A method that cannot be loaded has its samples fail, and the others go on; else it ends the run before
  // the first sample.
  bool keep_going = false;
};

// How far a run is.
struct TaskProgress {
  int64_t done = 0, total = 0;  // samples, over all methods
  double seconds_left = -1;     // by the tokens that are left; -1: not known
};

// What an application hears of a run; all but `load` may be empty.
struct TaskHooks {
  std::function<Result<std::unique_ptr<Engine>>(const std::string& attention)> load;
  // What `load` loads with, for tasks that need more than a method's name.
  EngineOptions engine_options = {};
  // A method's samples begin; the engine lives until the next one's.
  std::function<void(const Engine& engine, const std::string& attention)> on_method = {};
  // A sample's prompt is about to be read, n_tokens of it; what it returns hears of the share that is done.
  std::function<std::function<void(double)>(const std::string& attention, const Sample& sample,
                                            int64_t n_tokens)>
      on_prefill = {};
  // A sample is done, or was found in the file.
  std::function<void(const TaskRecord& record, bool from_file, const TaskProgress& progress)> on_sample = {};
  const CancelToken* cancel = nullptr;
};

// Runs every sample of the shard that out_dir does not hold yet, method by method. A sample that fails is
// kept as failed, with its reason; the others go on. `records` gets all samples that are done, also where an
// Error ends the run: an interrupt, a file that cannot be written. Methods and the task's options are checked
// before the first sample.
Status RunTask(const TaskRunOptions& options, Task& task, const TaskHooks& hooks,
               std::vector<TaskRecord>& records);

// The methods that a run is about: the task's own, or the options', each once.
std::vector<std::string> MethodsOf(const Task& task, const TaskRunOptions& options);

// "needle", "needle-2of4".
std::string TaskJournalName(const std::string& task, const Shard& shard);

}  // namespace longheads
