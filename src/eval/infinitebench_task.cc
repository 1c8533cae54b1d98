#include "eval/infinitebench_task.h"

#include <fmt/format.h>

#include "eval/benchmark_files.h"
#include "eval/benchmark_task.h"
#include "eval/infinitebench.h"
#include "eval/prompt_format.h"

namespace longheads {
namespace {

constexpr const char* kOrigin =
    "InfiniteBench (the project OpenBMB/InfiniteBench) publishes its texts as NAME.jsonl and its prompts as "
    "src/prompt.py; InfLLM (thunlp/InfLLM) has other prompts for it in benchmark/config/dataset2prompt.json";

constexpr const char* kNotes =
    "Official files, read as they are: passkey.jsonl, number_string.jsonl, kv_retrieval.jsonl, ..., and "
    "prompt.py, "
    "which is\nlooked for in --data and its src/. InfLLM's harness, whose figures ESA's table 2 has, is "
    "--prompts "
    "and --limits with\nits dataset2prompt.json and dataset2maxlen.json, and --scoring infllm. Nothing is "
    "fetched.\n\n"
    "--truncation middle is the official rule: the first and the last half of --max-length tokens; suffix is "
    "InfLLM's,\nfor methods that cannot read beyond their window: the first 128 and the last. How many "
    "tokens were "
    "dropped stands\nin each record. The standard tasks are the six of the papers; 'all' are "
    "twelve.\n\nExample:\n  "
    "longheads eval infinitebench --data InfiniteBench --prompts prompt.py --tasks passkey,kv_retrieval \\\n "
    "   --attn "
    "longheads --out results";

std::vector<TaskOption> Options() {
  return {{"data", "PATH", "", "the folder or zip archive with the official JSONL files"},
          {"prompts", "FILE", "",
           "prompt.py, or InfLLM's dataset2prompt.json; not given: prompt.py is looked for"},
          {"templates", "NAME", "yarn_mistral_templates", "which dictionary of prompt.py"},
          {"limits", "FILE", "", "dataset2maxlen.json: tokens of answers; not given: the official harness's"},
          {"tasks", "NAME,...", "kv_retrieval,math_find,number_string,longbook_choice_eng,code_debug,passkey",
           "data sets, as their files are called, or all"},
          {"truncation", "none|middle|suffix", "none", "how a prompt beyond --max-length is cut"},
          {"max-length", "N", "0", "tokens of a prompt, for --truncation; k is 1024"},
          {"samples", "N", "1m", "the first so many of each data set"},
          {"scoring", "official|infllm", "official", "infllm reads En.MC and Code.Debug in another way"}};
}

Result<std::map<std::string, std::string>> FindPrompts(TaskOptions& o, const BenchmarkFiles& files,
                                                       std::string& path) {
  LH_ASSIGN(const auto file, files.FindText(o.Text("prompts"), "prompt.py", "--prompts"));
  path = file.path;
  if (path.ends_with(".json")) return ParsePromptJson(file.text, path);
  return ParsePromptPython(file.text, o.Text("templates"), path);
}

Result<std::map<std::string, int64_t>> FindLimits(TaskOptions& o, const BenchmarkFiles& files) {
  std::map<std::string, int64_t> limits;
  for (const InfiniteBenchDataset& d : InfiniteBenchDatasets()) limits[std::string(d.name)] = d.max_new;
  if (o.Text("limits").empty()) return limits;
  LH_ASSIGN(const auto file, files.FindText(o.Text("limits"), "dataset2maxlen.json", "--limits"));
  LH_ASSIGN(const auto given, ParseLimitsJson(file.text, file.path));
  for (auto& [name, limit] : limits) {
    const auto found = given.find(name);
    if (found != given.end()) limit = found->second;
  }
  return limits;
}

Result<std::vector<BenchmarkDataset>> FindDatasets(TaskOptions& o) {
  std::vector<std::string> known;
  for (const InfiniteBenchDataset& d : InfiniteBenchDatasets()) known.emplace_back(d.name);
  const std::vector<std::string> chosen = ChosenDatasets(o, known);
  LH_TRY(o.status());
  LH_ASSIGN(const BenchmarkFiles files, BenchmarkFiles::Open(o.Text("data"), kOrigin));
  std::string prompt_path;
  LH_ASSIGN(auto prompts, FindPrompts(o, files, prompt_path));
  LH_ASSIGN(const auto limits, FindLimits(o, files));
  std::vector<BenchmarkDataset> datasets;
  for (const std::string& name : chosen) {
    if (!prompts.contains(name)) return InvalidInput(prompt_path + ": has no prompt for " + name);
    LH_ASSIGN(LineFile lines, files.Lines(name + ".jsonl"));
    datasets.push_back({.file = name,
                        .name = name,
                        .lines = std::move(lines),
                        .prompt = prompts[name],
                        .max_new = limits.at(name)});
  }
  return datasets;
}

Result<std::unique_ptr<Task>> Make(TaskOptions& o) {
  const bool infllm = o.Choice("scoring") == "infllm";
  CutRule cut = *FindCutRule(o.Choice("truncation"));
  if (cut == CutRule::kMiddle) cut = CutRule::kMiddleAsOne;
  const int64_t limit = o.Count("max-length", 0, int64_t{1} << 30);
  const int64_t most = o.Count("samples", 1, int64_t{1} << 30);
  if (cut != CutRule::kNone && limit == 0) o.Fail("truncation", " needs --max-length");
  if (cut == CutRule::kNone && limit != 0) o.Fail("max-length", " needs --truncation middle or suffix");
  LH_ASSIGN(std::vector<BenchmarkDataset> datasets, FindDatasets(o));
  const InfiniteBenchScoring scoring =
      infllm ? InfiniteBenchScoring::kInfLlm : InfiniteBenchScoring::kOfficial;
  Benchmark benchmark{
      .name = "infinitebench",
      .setup = {{"version", 1},
                {"truncation", o.Choice("truncation")},
                {"max_length", limit},
                {"scoring", o.Choice("scoring")}},
      .cut = cut,
      .limit = limit,
      .read = [](const BenchmarkDataset& dataset,
                 const Json& line) { return ReadInfiniteBench(*FindInfiniteBench(dataset.name), line); },
      .judge =
          [scoring](std::string_view dataset, const Json& references, const std::string& answer) {
            return JudgeInfiniteBench(*FindInfiniteBench(dataset), references, answer, scoring);
          }};
  return BenchmarkTask::Create(std::move(benchmark), std::move(datasets), most);
}

}  // namespace

TaskKind InfiniteBenchKind() {
  return {.name = "infinitebench",
          .summary = "Runs InfiniteBench's tasks from the official files",
          .options = Options(),
          .notes = kNotes,
          .make = Make};
}

}  // namespace longheads
