#include "eval/longbench_task.h"

#include <fmt/format.h>

#include "eval/benchmark_files.h"
#include "eval/benchmark_task.h"
#include "eval/longbench.h"
#include "eval/prompt_format.h"

namespace longheads {
namespace {

constexpr const char* kOrigin =
    "LongBench (the project THUDM/LongBench) publishes its texts as data.zip, with data/NAME.jsonl and "
    "data/NAME_e.jsonl in it, and its prompts and lengths of answers as config/dataset2prompt.json and "
    "config/dataset2maxlen.json";

constexpr const char* kNotes =
    "Official files, read as they are: data.zip (or its JSONL files, unpacked), dataset2prompt.json and\n"
    "dataset2maxlen.json. They are looked for in --data, and the two last also in its config/. Nothing is "
    "fetched.\n\n"
    "--set e is LongBench-E, 13 data sets with results by the length of the text; longheads is LongBench-E "
    "where it "
    "has\nthe data set and LongBench for the other three, as LongHeads' table 2. Prompts of few-shot tasks "
    "and code "
    "are never\nput into a chat template, and a line break ends an answer of samsum. --truncation middle is "
    "the "
    "official rule:\nthe first and the last half of --max-length tokens; suffix is InfLLM's: the first 128 "
    "and the "
    "last. How many tokens\nwere dropped stands in each record.\n\nExample:\n  longheads eval longbench "
    "--data "
    "LongBench/data.zip --prompts dataset2prompt.json --limits dataset2maxlen.json \\\n    --set longheads "
    "--truncation middle --max-length 16k --attn 'full;longheads' --out results";

std::vector<TaskOption> Options() {
  return {
      {"data", "PATH", "", "the folder or zip archive with the official JSONL files"},
      {"prompts", "FILE", "", "dataset2prompt.json; not given: it is looked for in --data"},
      {"limits", "FILE", "", "dataset2maxlen.json; not given: it is looked for in --data"},
      {"set", "plain|e|longheads", "plain", "LongBench, LongBench-E, or LongHeads' mixture of both"},
      {"tasks", "NAME,...", "all", "data sets, as their files are called but for _e"},
      {"truncation", "none|middle|suffix", "none", "how a prompt beyond --max-length is cut"},
      {"max-length", "N", "0", "tokens of a prompt, for --truncation; k is 1024"},
      {"samples", "N", "1m", "the first so many of each data set"},
      {"scoring", "official|canonical", "official",
       "official does what the published scorer does where that is not what it says: classification, code"}};
}

Result<std::vector<BenchmarkDataset>> FindDatasets(TaskOptions& o, const std::string& set) {
  std::vector<std::string> known;
  for (const LongBenchDataset& d : LongBenchDatasets()) {
    if (set != "e" || d.in_e) known.emplace_back(d.name);
  }
  const std::vector<std::string> chosen = ChosenDatasets(o, known);
  LH_TRY(o.status());
  LH_ASSIGN(const BenchmarkFiles files, BenchmarkFiles::Open(o.Text("data"), kOrigin));
  LH_ASSIGN(const auto prompt_file, files.FindText(o.Text("prompts"), "dataset2prompt.json", "--prompts"));
  LH_ASSIGN(const auto limit_file, files.FindText(o.Text("limits"), "dataset2maxlen.json", "--limits"));
  LH_ASSIGN(auto prompts, ParsePromptJson(prompt_file.text, prompt_file.path));
  LH_ASSIGN(auto limits, ParseLimitsJson(limit_file.text, limit_file.path));
  std::vector<BenchmarkDataset> datasets;
  for (const std::string& name : chosen) {
    const LongBenchDataset& d = *FindLongBench(name);
    const std::string file = set != "plain" && d.in_e ? name + "_e" : name;
    if (!prompts.contains(name)) return InvalidInput(prompt_file.path + ": has no prompt for " + name);
    if (!limits.contains(name)) return InvalidInput(limit_file.path + ": has no length for " + name);
    LH_ASSIGN(LineFile lines, files.Lines(file + ".jsonl"));
    datasets.push_back(
        {.file = file,
         .name = name,
         .lines = std::move(lines),
         .prompt = prompts[name],
         .max_new = limits[name],
         .plain = d.plain,
         .stops = name == "samsum" ? std::vector<std::string>{"\n"} : std::vector<std::string>{}});
  }
  return datasets;
}

Result<std::unique_ptr<Task>> Make(TaskOptions& o) {
  const std::string set = o.Choice("set");
  const bool official = o.Choice("scoring") == "official";
  const CutRule cut = *FindCutRule(o.Choice("truncation"));
  const int64_t limit = o.Count("max-length", 0, int64_t{1} << 30);
  const int64_t most = o.Count("samples", 1, int64_t{1} << 30);
  if (cut != CutRule::kNone && limit == 0) o.Fail("truncation", " needs --max-length");
  if (cut == CutRule::kNone && limit != 0) o.Fail("max-length", " needs --truncation middle or suffix");
  LH_ASSIGN(std::vector<BenchmarkDataset> datasets, FindDatasets(o, set));
  const LongBenchScoring scoring = official ? LongBenchScoring::kOfficial : LongBenchScoring::kCanonical;
  Benchmark benchmark{
      .name = "longbench",
      .setup = {{"version", 1},
                {"set", set},
                {"truncation", o.Choice("truncation")},
                {"max_length", limit},
                {"scoring", o.Choice("scoring")}},
      .cut = cut,
      .limit = limit,
      .read = [set](const BenchmarkDataset&, const Json& line) { return ReadLongBench(line, set == "e"); },
      .judge =
          [scoring](std::string_view dataset, const Json& references, const std::string& answer) {
            return JudgeLongBench(*FindLongBench(dataset), references, answer, scoring);
          }};
  return BenchmarkTask::Create(std::move(benchmark), std::move(datasets), most);
}

}  // namespace

TaskKind LongBenchKind() {
  return {.name = "longbench",
          .summary = "Runs LongBench's English data sets, or LongBench-E's, from the official files",
          .options = Options(),
          .notes = kNotes,
          .make = Make};
}

}  // namespace longheads
