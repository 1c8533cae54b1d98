#include "eval/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "attention/spec.h"
#include "base/json.h"
#include "eval/experiment.h"
#include "eval/task_registry.h"

namespace longheads {
namespace {

// Reads the members of an object; what is wrong names the place: "tasks[1].depths".
class SuiteReader {
 public:
  SuiteReader(const std::string& file, const SuiteExtras& extras) : file_(file), extras_(extras) {}

  Result<Suite> Read(const Json& json);

 private:
  tl::unexpected<Error> Wrong(const std::string& place, const std::string& what) const {
    return InvalidInput(fmt::format("{}: '{}' {}", file_, place, what));
  }
  Status OnlyKeys(const Json& object, const std::string& place, const std::vector<std::string>& known) const;
  Result<std::string> Text(const Json& value, const std::string& place) const;
  // As it would be typed: lists with commas between.
  Result<std::string> Typed(const Json& value, const std::string& place) const;
  Result<std::vector<std::string>> Methods(const Json& value, const std::string& place) const;
  Result<SuiteModel> Model(const Json& value, const std::string& place) const;
  Result<SuiteTask> Task(const Json& value, const std::string& place) const;
  const std::vector<TaskOption>* OptionsOf(const std::string& task) const;
  std::string TaskNames() const;

  const std::string& file_;
  const SuiteExtras& extras_;
  std::vector<std::string> methods_ = {"full", "auto"};
  std::string lengths_;
};

Status SuiteReader::OnlyKeys(const Json& object, const std::string& place,
                             const std::vector<std::string>& known) const {
  for (const auto& item : object.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    return Wrong(place + item.key(), fmt::format("is no key here: there are {}", fmt::join(known, ", ")));
  }
  return {};
}

Result<std::string> SuiteReader::Text(const Json& value, const std::string& place) const {
  if (value.is_string()) return value.get<std::string>();
  return Wrong(place, "must be a text");
}

Result<std::string> SuiteReader::Typed(const Json& value, const std::string& place) const {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return std::string(value.get<bool>() ? "on" : "off");
  if (value.is_number()) return value.dump();
  if (!value.is_array() || value.empty()) return Wrong(place, "must be a text, a number or a list of these");
  std::string all;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", place, i);
    if (value[i].is_array()) return Wrong(here, "must be a text or a number");
    LH_ASSIGN(const std::string part, Typed(value[i], here));
    all += (i > 0 ? "," : "") + part;
  }
  return all;
}

Result<std::vector<std::string>> SuiteReader::Methods(const Json& value, const std::string& place) const {
  if (!value.is_array() || value.empty())
    return Wrong(place, "must be a list of methods, as --attn takes them");
  std::vector<std::string> specs;
  for (std::size_t i = 0; i < value.size(); ++i) {
    LH_ASSIGN(const std::string list, Text(value[i], fmt::format("{}[{}]", place, i)));
    for (std::string& spec : SplitSpecs(list)) specs.push_back(std::move(spec));
  }
  DropRepeats(specs);
  return specs;
}

Result<SuiteModel> SuiteReader::Model(const Json& value, const std::string& place) const {
  SuiteModel model;
  if (value.is_string()) {
    model.file = value.get<std::string>();
    return model;
  }
  if (!value.is_object()) {
    return Wrong(place, "must be the name of a GGUF file, or an object with 'file', 'compute', 'kv-type'");
  }
  LH_TRY(OnlyKeys(value, place + ".", {"file", "compute", "kv-type"}));
  const auto read = [&](const char* key, std::string& target) -> Status {
    if (!value.contains(key)) return {};
    LH_ASSIGN(target, Text(value[key], fmt::format("{}.{}", place, key)));
    return {};
  };
  LH_TRY(read("file", model.file));
  LH_TRY(read("compute", model.compute));
  LH_TRY(read("kv-type", model.kv_type));
  return model;
}

const std::vector<TaskOption>* SuiteReader::OptionsOf(const std::string& task) const {
  if (const TaskKind* const kind = FindTaskKind(task)) return &kind->options;
  const auto extra = extras_.find(task);
  return extra == extras_.end() ? nullptr : &extra->second;
}

std::string SuiteReader::TaskNames() const {
  std::vector<std::string> names;
  for (const auto& [name, options] : extras_) names.push_back(name);
  for (const TaskKind& kind : TaskKinds()) names.push_back(kind.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<SuiteTask> SuiteReader::Task(const Json& value, const std::string& place) const {
  SuiteTask task;
  Json object = value;
  if (value.is_string()) object = {{"task", value}};
  if (!object.is_object() || !object.contains("task")) {
    return Wrong(place, "must be a task's name, or an object with 'task' and its options");
  }
  LH_ASSIGN(task.name, Text(object["task"], place + ".task"));
  const std::vector<TaskOption>* const known = OptionsOf(task.name);
  if (known == nullptr) {
    return Wrong(place + ".task", fmt::format("is '{}', but the tasks are {}", task.name, TaskNames()));
  }
  task.place = fmt::format("{} ({})", place, task.name);
  std::vector<std::string> keys = {"task", "methods", "form"};
  for (const TaskOption& option : *known) keys.push_back(option.name);
  LH_TRY(OnlyKeys(object, place + ".", keys));
  task.attention = methods_;
  for (const auto& item : object.items()) {
    const std::string here = fmt::format("{}.{}", place, item.key());
    if (item.key() == "task") continue;
    if (item.key() == "methods") {
      LH_ASSIGN(task.attention, Methods(item.value(), here));
    } else if (item.key() == "form") {
      LH_ASSIGN(task.form, Text(item.value(), here));
      if (task.form != "auto" && task.form != "plain" && task.form != "chat") {
        return Wrong(here, fmt::format("is '{}', but must be auto, plain or chat", task.form));
      }
    } else {
      LH_ASSIGN(task.options[item.key()], Typed(item.value(), here));
    }
  }
  const bool takes_lengths = std::ranges::find(*known, "lengths", &TaskOption::name) != known->end();
  if (takes_lengths && !lengths_.empty()) task.options.try_emplace("lengths", lengths_);
  return task;
}

Result<Suite> SuiteReader::Read(const Json& json) {
  if (!json.is_object()) return InvalidInput(file_ + " holds no JSON object");
  LH_TRY(OnlyKeys(json, "", {"models", "methods", "lengths", "tasks", "out"}));
  Suite suite;
  if (json.contains("out")) {
    LH_ASSIGN(suite.out_dir, Text(json["out"], "out"));
  }
  if (json.contains("methods")) {
    LH_ASSIGN(methods_, Methods(json["methods"], "methods"));
  }
  if (json.contains("lengths")) {
    LH_ASSIGN(lengths_, Typed(json["lengths"], "lengths"));
  }
  if (!json.contains("models")) {
    suite.models.emplace_back();
  } else if (!json["models"].is_array() || json["models"].empty()) {
    return Wrong("models", "must be a list of models");
  } else {
    for (std::size_t i = 0; i < json["models"].size(); ++i) {
      LH_ASSIGN(SuiteModel model, Model(json["models"][i], fmt::format("models[{}]", i)));
      suite.models.push_back(std::move(model));
    }
  }
  if (!json.contains("tasks") || !json["tasks"].is_array() || json["tasks"].empty()) {
    return Wrong("tasks", fmt::format("must be a list of tasks, out of {}", TaskNames()));
  }
  for (std::size_t i = 0; i < json["tasks"].size(); ++i) {
    LH_ASSIGN(SuiteTask task, Task(json["tasks"][i], fmt::format("tasks[{}]", i)));
    suite.tasks.push_back(std::move(task));
  }
  return suite;
}

}  // namespace

Result<Suite> ParseSuite(std::string_view text, const std::string& file, const SuiteExtras& extras) {
  Json json;
  try {
    json = ParseJson(text);
  } catch (const nlohmann::json::exception& error) {
    return InvalidInput(fmt::format("{} is no JSON: {}", file, error.what()));
  }
  return SuiteReader(file, extras).Read(json);
}

}  // namespace longheads
