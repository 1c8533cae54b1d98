// A suite: models x methods x tasks x lengths, as a JSON file says them. Reads the file and refuses it by the
// key that is wrong; running what it says is the command's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/ablation.h"
#include "eval/task_options.h"
#include "rope/overrides.h"

namespace longheads {

struct SuiteModel {
  std::string file;  // empty: the default model
  std::string compute = "auto";
  std::string kv_type = "auto";
  std::string kv_ram = "0";
  std::optional<std::string> kv_disk;
  std::string kv_disk_max = "0";
  int64_t kv_blocks = 0;
  RopeOverrides rope = {};
};

struct SuiteTask {
  std::string name;
  TaskOptions::Values options;  // "lengths" is there where the suite has it and the task takes it
  std::string form = "auto";
  std::vector<std::string> attention;          // specs
  std::vector<AblationVariant> variants = {};  // of an ablation, whose specs `attention` has; else none
  std::string place;                           // in the file, for messages: "tasks[2] (needle)"
};

struct Suite {
  std::vector<SuiteModel> models;
  std::vector<SuiteTask> tasks;
  std::string out_dir;
};

// What a suite may name besides the tasks of task_registry.h, with the options that each takes.
using SuiteExtras = std::map<std::string, std::vector<TaskOption>, std::less<>>;

// `file` is for messages. Methods are checked here so far as that can be without a model, options of tasks by
// name; by value when their task is made.
Result<Suite> ParseSuite(std::string_view json, const std::string& file, const SuiteExtras& extras);

}  // namespace longheads
