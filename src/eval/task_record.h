// What an experiment found, sample by sample: one JSON line each in DIR/TASK.jsonl, from which a later run
// goes on, and summaries of them (DIR/TASK.csv, a table for people).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/journal.h"
#include "eval/model_setup.h"
#include "eval/provenance.h"
#include "eval/task.h"

namespace longheads {

// Among a setup's options: which compression of ESA's scores its method has (EsaCompressionOf).
inline constexpr const char* kEsaCompressionOption = "esa_compression";

// All that bears on a result beside the sample.
struct TaskSetup {
  ModelSetup model;
  std::string attention;  // as given to --attn
  std::string task;
  Json options;  // Task::Setup, and what of the run bears on the result, such as the prompt's form

  // A hash of all of it, 16 hexadecimal digits: two records with the same one are of one configuration.
  std::string Fingerprint() const;
};

struct TaskRecord {
  TaskSetup setup;
  std::string fingerprint;  // the setup's
  Sample sample;
  std::string failed = {};  // why there is no score; empty where there is one
  MeasureName measure;
  SampleOutcome measured = {};
  double seconds = 0;  // spent on this sample alone
  Provenance by = {};
  std::string time = {};  // when it was done, UTC: "2026-11-22 04:45:27+0000"

  bool SameCase(const std::string& other_fingerprint, const std::string& /*attention*/,
                const Sample& other) const {
    return fingerprint == other_fingerprint && sample.id == other.id;
  }
};

std::string TaskJson(const TaskRecord& record);  // one line, without its end
// Refuses a line that TaskJson did not write, and one whose fingerprint is not its setup's.
Result<TaskRecord> ParseTaskJson(const std::string& line);

// The records without those that a later one of the same sample and setup replaces: a failed sample that was
// run again.
std::vector<TaskRecord> LatestRecords(std::span<const TaskRecord> records);

// What the task's journals in the directory hold, of every run and every part, and of `run` what they lack:
// each sample once, one with a score rather than one that failed. Refuses a line that is no record.
Result<std::vector<TaskRecord>> AllRecords(const std::string& directory, const std::string& task,
                                           std::span<const TaskRecord> run);

// Whether numbers of this name among the values measure something: keys and coordinates do not, and their
// mean is of nothing.
bool IsMeasured(const std::string& value_name);

// Whether cells of this name say how samples turned out that count together too: a key's `split`, a class of
// LongBench-E's `words`.
bool IsSampleClass(const std::string& cell_name);

// Means and 95% intervals (clustered by document) by setup and cell, in the records' order, with a header
// line; of every measured number among the values the mean. Failed samples are counted beside them, not in
// them. A cell's or a value's name that the header has already gets "cell_" or "value_" before it.
std::string TaskCsv(std::span<const TaskRecord> records);

// Columns are lengths, or where cells have none the values of their first key; rows are methods, and for each
// what else cells say, depths aside (of sample classes first all): "85.0 (70.9-92.9) of 40", shares in
// percent; '-' where there is nothing yet. Behind it the means of the values named in `shown`. Several lines.
std::string TaskTable(std::span<const TaskRecord> records, std::span<const std::string> attention,
                      std::span<const std::string> shown = {});

using TaskJournal = Journal<TaskRecord>;
// DIR/NAME.jsonl and DIR/NAME.csv.
Result<TaskJournal> OpenTaskJournal(const std::string& directory, const std::string& name);

}  // namespace longheads
