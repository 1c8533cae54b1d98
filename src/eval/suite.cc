#include "eval/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "attention/frequency_registry.h"
#include "attention/options.h"
#include "attention/registry.h"
#include "attention/spec.h"
#include "base/bytes.h"
#include "base/json.h"
#include "eval/experiment.h"
#include "eval/task_registry.h"

namespace longheads {
namespace {

// Of a method, what can be known without a model: its name, and its options by theirs.
Status CheckSpec(const std::string& text) {
  LH_ASSIGN(const AttentionSpec spec, ParseSpec(text));
  if (const MethodInfo* const schedule = FindFrequencyMethod(spec.frequencies)) {
    LH_TRY(OptionReader(*schedule, spec.frequency_options).status());
  }
  if (const MethodInfo* const policy = FindMethod(spec.policy)) {
    LH_TRY(OptionReader(*policy, spec.policy_options).status());
  }
  return {};
}

// The first key that stands twice in one object: JSON readers take the last without a word.
std::optional<std::string> RepeatedKey(std::string_view text) {
  std::vector<std::set<std::string>> objects;
  std::optional<std::string> repeated;
  const Json::parser_callback_t hear = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) objects.emplace_back();
    if (event == Json::parse_event_t::object_end) objects.pop_back();
    if (event == Json::parse_event_t::key && !objects.back().insert(parsed.get<std::string>()).second &&
        !repeated) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  const Json ignored = Json::parse(text, hear);
  return repeated;
}

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
  // As it would be typed.
  Result<std::string> TypedOne(const Json& value, const std::string& place) const;
  Result<int64_t> Count(const Json& value, const std::string& place) const;
  // Also a list, with `separator` between its values; 0: none is allowed.
  Result<std::string> Typed(const Json& value, const std::string& place, char separator) const;
  Result<std::vector<std::string>> Methods(const Json& value, const std::string& place) const;
  Result<SuiteModel> Model(const Json& value, const std::string& place) const;
  Result<RopeOverrides> Rope(const Json& object, const std::string& place) const;
  Result<SuiteTask> Task(const Json& value, const std::string& place) const;
  Result<SuiteTask> Ablation(const Json& object, const std::string& place) const;
  // A task's name, options and form. `allowed`: the keys that it may have beside them.
  Result<SuiteTask> Options(const Json& value, const std::string& place,
                            const std::vector<std::string>& allowed) const;
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

Result<std::string> SuiteReader::TypedOne(const Json& value, const std::string& place) const {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return std::string(value.get<bool>() ? "on" : "off");
  if (value.is_number()) return value.dump();
  return Wrong(place, "must be a text or a number");
}

Result<int64_t> SuiteReader::Count(const Json& value, const std::string& place) const {
  LH_ASSIGN(const std::string text, TypedOne(value, place));
  const Result<int64_t> count = ParseCount(text);
  if (!count) return Wrong(place, count.error().message);
  return *count;
}

Result<std::string> SuiteReader::Typed(const Json& value, const std::string& place, char separator) const {
  if (!value.is_array()) return TypedOne(value, place);
  if (separator == '\0') return Wrong(place, "is a list, but takes one value");
  if (value.empty()) return Wrong(place, "is an empty list");
  std::string all;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", place, i);
    LH_ASSIGN(const std::string part, TypedOne(value[i], here));
    if (part.empty()) return Wrong(here, "is empty");
    if (part.find(separator) != std::string::npos) {
      return Wrong(here, fmt::format("has a '{}', which would end it: give it without", separator));
    }
    if (i > 0) all += separator;
    all += part;
  }
  return all;
}

Result<std::vector<std::string>> SuiteReader::Methods(const Json& value, const std::string& place) const {
  if (!value.is_array() || value.empty())
    return Wrong(place, "must be a list of methods, as --attn takes them");
  std::vector<std::string> specs;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", place, i);
    LH_ASSIGN(const std::string list, Text(value[i], here));
    for (std::string& spec : SplitSpecs(list)) {
      const Status checked = CheckSpec(spec);
      if (!checked) return Wrong(here, fmt::format("is '{}': {}", list, checked.error().message));
      specs.push_back(std::move(spec));
    }
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
  LH_TRY(OnlyKeys(value, place + ".",
                  {"file", "compute", "kv-type", "kv-ram", "kv-disk", "kv-disk-max", "kv-blocks",
                   "rope-scaling", "rope-scale", "rope-freq-base", "rope-freq-scale", "yarn-orig-ctx",
                   "yarn-ext-factor", "yarn-attn-factor", "yarn-beta-slow", "yarn-beta-fast"}));
  const auto read = [&](const char* key, std::string& target) -> Status {
    if (!value.contains(key)) return {};
    LH_ASSIGN(target, Text(value[key], fmt::format("{}.{}", place, key)));
    return {};
  };
  LH_TRY(read("file", model.file));
  LH_TRY(read("compute", model.compute));
  LH_TRY(read("kv-type", model.kv_type));
  LH_TRY(read("kv-ram", model.kv_ram));
  if (value.contains("kv-disk")) LH_TRY(read("kv-disk", model.kv_disk.emplace()));
  LH_TRY(read("kv-disk-max", model.kv_disk_max));
  if (value.contains("kv-blocks")) {
    LH_ASSIGN(model.kv_blocks, Count(value["kv-blocks"], place + ".kv-blocks"));
  }
  LH_ASSIGN(model.rope, Rope(value, place));
  return model;
}

Result<RopeOverrides> SuiteReader::Rope(const Json& object, const std::string& place) const {
  RopeOverrides rope;
  const auto read = [&](const char* key, std::optional<double>& target) -> Status {
    if (!object.contains(key)) return {};
    if (!object[key].is_number()) return Wrong(fmt::format("{}.{}", place, key), "must be a number");
    target = object[key].get<double>();
    return {};
  };
  LH_TRY(read("rope-scale", rope.scale));
  LH_TRY(read("rope-freq-base", rope.freq_base));
  LH_TRY(read("rope-freq-scale", rope.freq_scale));
  LH_TRY(read("yarn-ext-factor", rope.ext_factor));
  LH_TRY(read("yarn-attn-factor", rope.attn_factor));
  LH_TRY(read("yarn-beta-slow", rope.beta_slow));
  LH_TRY(read("yarn-beta-fast", rope.beta_fast));
  if (object.contains("rope-scaling")) {
    LH_ASSIGN(rope.scaling, Text(object["rope-scaling"], place + ".rope-scaling"));
  }
  if (object.contains("yarn-orig-ctx")) {
    LH_ASSIGN(rope.orig_ctx, Count(object["yarn-orig-ctx"], place + ".yarn-orig-ctx"));
  }
  return rope;
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
  names.emplace_back("ablation");
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<SuiteTask> SuiteReader::Options(const Json& value, const std::string& place,
                                       const std::vector<std::string>& allowed) const {
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
  std::vector<std::string> keys = {"task", "form"};
  keys.insert(keys.end(), allowed.begin(), allowed.end());
  for (const TaskOption& option : *known) keys.push_back(option.name);
  LH_TRY(OnlyKeys(object, place + ".", keys));
  if (object.contains("form")) {
    LH_ASSIGN(task.form, Text(object["form"], place + ".form"));
    if (task.form != "auto" && task.form != "plain" && task.form != "chat") {
      return Wrong(place + ".form", fmt::format("is '{}', but must be auto, plain or chat", task.form));
    }
  }
  for (const TaskOption& option : *known) {
    if (object.contains(option.name)) {
      LH_ASSIGN(task.options[option.name],
                Typed(object[option.name], fmt::format("{}.{}", place, option.name), ListSeparator(option)));
    } else if (option.name == "lengths" && !lengths_.empty()) {
      task.options["lengths"] = lengths_;
    }
  }
  return task;
}

Result<SuiteTask> SuiteReader::Task(const Json& value, const std::string& place) const {
  const Json ablation = "ablation";
  if (value == ablation || (value.is_object() && value.contains("task") && value["task"] == ablation)) {
    return Ablation(value, place);
  }
  LH_ASSIGN(SuiteTask task, Options(value, place, {"methods"}));
  task.attention = methods_;
  if (value.is_object() && value.contains("methods")) {
    LH_ASSIGN(task.attention, Methods(value["methods"], place + ".methods"));
  }
  return task;
}

Result<SuiteTask> SuiteReader::Ablation(const Json& object, const std::string& place) const {
  if (!object.is_object() || !object.contains("of")) {
    return Wrong(place, "must be an object with 'of': the task that is run on all variants");
  }
  LH_TRY(OnlyKeys(object, place + ".", {"task", "of", "chunk", "window", "base"}));
  LH_ASSIGN(SuiteTask task, Options(object["of"], place + ".of", {}));
  if (FindTaskKind(task.name) == nullptr) {
    return Wrong(place + ".of", fmt::format("is '{}', whose cases are no samples to compare", task.name));
  }
  AblationBase base{.rest = "begin=window"};  // as of the command
  const auto count = [&](const char* key, int64_t& target) -> Status {
    if (!object.contains(key)) return {};
    LH_ASSIGN(target, Count(object[key], fmt::format("{}.{}", place, key)));
    return {};
  };
  LH_TRY(count("chunk", base.chunk));
  LH_TRY(count("window", base.window));
  if (object.contains("base")) {
    LH_ASSIGN(base.rest, Text(object["base"], place + ".base"));
  }
  Result<std::vector<AblationVariant>> variants = AblationVariants(base);
  if (!variants) return Wrong(place, variants.error().message);
  for (const AblationVariant& variant : *variants) {
    const Status checked = CheckSpec(variant.attention);
    if (!checked) return Wrong(place + ".base", checked.error().message);
    task.attention.push_back(variant.attention);
  }
  task.variants = std::move(*variants);
  task.place = fmt::format("{} (ablation of {})", place, task.name);
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
    LH_ASSIGN(lengths_, Typed(json["lengths"], "lengths", ','));
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
    if (const std::optional<std::string> key = RepeatedKey(text)) {
      return InvalidInput(fmt::format("{}: '{}' stands twice in one object", file, *key));
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidInput(fmt::format("{} is no JSON: {}", file, error.what()));
  }
  return SuiteReader(file, extras).Read(json);
}

}  // namespace longheads
