#include "report/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/json.h"
#include "eval/interval.h"
#include "eval/passkey_journal.h"
#include "eval/ppl_journal.h"
#include "eval/task_record.h"

namespace longheads {
namespace {

namespace fs = std::filesystem;

using Settings = std::vector<std::pair<std::string, std::string>>;

Settings ModelSettings(const ModelSetup& model) {
  Settings settings = {{"model", model.model},
                       {"model size", fmt::format("{} bytes", model.model_bytes)},
                       {"model fingerprint", model.fingerprint.empty() ? "not recorded" : model.fingerprint},
                       {"compute", model.compute},
                       {"keys and values", model.kv},
                       {"backend", model.backend}};
  if (!model.rope.empty()) settings.emplace_back("frequencies", model.rope);
  return settings;
}

// Collects observations by experiment; of a sample that was measured again, the last that did not fail.
class Collector {
 public:
  void Add(const std::string& task, const MeasureName& measure, Settings settings, const std::string& sample,
           Observation observation) {
    observation.sample = sample;
    const std::string key = fmt::format("{}\n{}\n{}", task, measure.name, Joined(settings));
    const auto [at, added] = experiments_.emplace(key, results_.experiments.size());
    if (added) {
      results_.experiments.push_back(
          {.task = task, .measure = measure, .settings = std::move(settings), .observations = {}});
    }
    std::vector<Observation>& observations = results_.experiments[at->second].observations;
    const auto [known, fresh] = samples_.emplace(
        fmt::format("{}\n{}\n{}\n{}", key, observation.attention, observation.esa_compression, sample),
        observations.size());
    if (fresh) {
      observations.push_back(std::move(observation));
    } else if (observation.failed.empty() || !observations[known->second].failed.empty()) {
      observations[known->second] = std::move(observation);
    }
  }
  Results& results() { return results_; }

 private:
  static std::string Joined(const Settings& settings) {
    std::string joined;
    for (const auto& [name, value] : settings) joined += fmt::format("{}={}\n", name, value);
    return joined;
  }

  Results results_;
  std::map<std::string, std::size_t> experiments_;
  std::map<std::string, std::size_t> samples_;
};

// A compression that was fitted anew makes another method of the same name.
void NameEsaCompressions(Experiment& experiment) {
  std::map<std::string, std::set<std::string>> compressions;  // by method
  for (const Observation& one : experiment.observations) {
    compressions[one.attention].insert(one.esa_compression);
  }
  for (Observation& one : experiment.observations) {
    if (compressions.at(one.attention).size() == 1) continue;
    one.attention +=
        fmt::format(" (compression {})", one.esa_compression.empty() ? "not recorded" : one.esa_compression);
  }
}

Json CellValue(const Observation& one, const std::string& name) {
  return one.cell.contains(name) ? one.cell[name] : Json(nullptr);
}

// The cells' names of which parts are made: those whose values differ, in the order they come.
std::vector<std::string> PartNames(const Experiment& experiment) {
  const std::string columns = ColumnsOf(experiment);
  std::vector<std::string> names;
  for (const Observation& one : experiment.observations) {
    for (const auto& item : one.cell.items()) {
      const std::string& name = item.key();
      if (name == columns || name == "depth" || std::ranges::find(names, name) != names.end()) continue;
      names.push_back(name);
    }
  }
  std::erase_if(names, [&](const std::string& name) { return ColumnValues(experiment, name).size() < 2; });
  return names;
}

Status AddPasskey(const std::string& line, Collector& to) {
  LH_ASSIGN(const PasskeyRecord r, ParsePasskeyJson(line));
  Settings settings = ModelSettings(r.setup.model);
  settings.emplace_back("form", PromptFormName(r.setup.style.form));
  settings.emplace_back("filler", PasskeyFillerName(r.setup.style.filler));
  settings.emplace_back("longest answer", fmt::format("{} tokens", r.setup.max_tokens));
  const std::string sample =
      fmt::format("{}-{}-{}-{}", r.which.length, r.which.depth_ppm, r.which.repeat, r.setup.seed);
  Observation observation{.attention = r.attention,
                          .cell = {{"length", r.which.length}, {"depth", r.which.depth()}},
                          .document = sample,
                          .score = r.correct ? 1.0 : 0.0,
                          .failed = r.failed,
                          .seconds = r.seconds,
                          .by = r.by,
                          .tokens = r.tokens - r.shared,
                          .esa_compression = r.setup.model.esa_compression};
  to.Add("passkey", {.name = "free answers right"}, settings, sample, observation);
  if (r.digits > 0) {
    observation.score = static_cast<double>(r.digits_right) / static_cast<double>(r.digits);
  } else if (r.failed.empty()) {
    return {};
  }
  to.Add("passkey", {.name = "digits right, the answer forced"}, std::move(settings), sample,
         std::move(observation));
  return {};
}

Status AddPpl(const std::string& line, Collector& to) {
  LH_ASSIGN(const PplRecord r, ParsePplJson(line));
  Settings settings = ModelSettings(r.setup.model);
  settings.emplace_back(
      "text", fmt::format("{} ({} bytes, hash {})", r.setup.text, r.setup.text_bytes, r.setup.text_hash));
  settings.emplace_back("scored", fmt::format("the last {} tokens", r.which.n_score()));
  to.Add("ppl", {.name = "perplexity", .unit = "perplexity"}, std::move(settings),
         // The same tokens read by other calls are measured again, and not more of them.
         fmt::format("{} {}", r.which.length, r.which.offset),
         {.attention = r.attention,
          .cell = {{"length", r.which.length}},
          .document = fmt::format("{}", r.which.offset),
          .ppl = r.score,
          .failed = r.failed,
          .seconds = r.seconds,
          .by = r.by,
          .esa_compression = r.setup.model.esa_compression});
  return {};
}

std::string EsaCompressionIn(const Json& options) {
  const auto found = options.find(kEsaCompressionOption);
  return found != options.end() && found->is_string() ? found->get<std::string>() : "";
}

Status AddTask(const std::string& line, Collector& to) {
  LH_ASSIGN(const TaskRecord r, ParseTaskJson(line));
  Settings settings = ModelSettings(r.setup.model);
  for (const auto& option : r.setup.options.items()) {
    if (option.key() == kEsaCompressionOption) continue;  // of one method: the others are its peers still
    settings.emplace_back(option.key(), option.value().is_string() ? option.value().get<std::string>()
                                                                   : JsonLine(option.value()));
  }
  to.Add(r.setup.task, r.measure, std::move(settings), r.sample.id,
         {.attention = r.setup.attention,
          .cell = r.sample.cell,
          .document = r.sample.document.empty() ? r.sample.id : r.sample.document,
          .score = r.measured.score,
          .failed = r.failed,
          .values = r.measured.values,
          .seconds = r.seconds,
          .by = r.by,
          .tokens = r.measured.tokens - r.measured.shared,
          .esa_compression = EsaCompressionIn(r.setup.options)});
  return {};
}

Status ReadJournal(const fs::path& path, Collector& to) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return MakeError(ErrorKind::kIo, fmt::format("{}: cannot read it", path.string()));
  const std::string name = ExperimentOfJournal(path.stem());
  const auto add = name == "passkey" ? AddPasskey : name == "ppl" ? AddPpl : AddTask;
  int64_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      to.results().notes.push_back(
          fmt::format("The last line of {} is not finished and is left out.", path.string()));
      break;
    }
    const Status added = add(text.substr(begin, end - begin), to);
    if (!added) {
      return InvalidInput(fmt::format("{}, line {}: no result of 'longheads eval': {}", path.string(), number,
                                      added.error().message));
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::vector<std::string> Experiment::Methods() const {
  std::vector<std::string> methods;
  for (const Observation& one : observations) {
    if (std::ranges::find(methods, one.attention) == methods.end()) methods.push_back(one.attention);
  }
  return methods;
}

std::vector<Json> Experiment::CellValues(const std::string& name, const std::string& attention) const {
  std::vector<Json> values;
  bool numbers = true;
  for (const Observation& one : observations) {
    if (!one.cell.contains(name) || (!attention.empty() && one.attention != attention)) continue;
    const Json& value = one.cell[name];
    numbers = numbers && value.is_number();
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  if (numbers) {
    std::ranges::sort(values, {}, [](const Json& value) { return value.get<double>(); });
  }
  return values;
}

bool Experiment::Has(const std::string& name) const {
  return std::ranges::all_of(observations, [&](const Observation& one) { return one.cell.contains(name); });
}

std::string ColumnsOf(const Experiment& experiment) {
  std::string columns;
  for (const Observation& one : experiment.observations) {
    if (one.cell.contains("length")) return "length";
    if (columns.empty() && !one.cell.empty()) columns = one.cell.begin().key();
  }
  return columns;
}

std::vector<Json> ColumnValues(const Experiment& experiment, const std::string& columns) {
  if (columns.empty()) return {};
  std::vector<Json> values = experiment.CellValues(columns);
  if (!experiment.Has(columns)) values.emplace_back(nullptr);
  return values;
}

std::string Part::label() const {
  std::vector<std::string> words;
  for (const auto& item : cell.items()) {
    words.push_back(fmt::format("{} {}", item.key(), CellName(item.key(), item.value())));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<Part> PartsOf(const Experiment& experiment) {
  const std::vector<std::string> names = PartNames(experiment);
  std::vector<Part> parts;
  const auto add = [&](const Observation& one, const Json& cell, bool whole) {
    auto at = std::ranges::find(parts, cell, &Part::cell);
    if (at == parts.end()) {
      Experiment of_part{.task = experiment.task,
                         .measure = experiment.measure,
                         .settings = experiment.settings,
                         .observations = {}};
      at = parts.insert(at, {.cell = cell, .whole = whole, .experiment = std::move(of_part)});
    }
    at->experiment.observations.push_back(one);
  };
  for (const Observation& one : experiment.observations) {
    Json own = Json::object(), all = Json::object();
    bool is_class = false, has_classes = false;
    for (const std::string& name : names) {
      own[name] = CellValue(one, name);
      all[name] = IsSampleClass(name) ? Json("all") : own[name];
      is_class = is_class || (IsSampleClass(name) && !own[name].is_null());
      has_classes = has_classes || IsSampleClass(name);
    }
    add(one, all, /*whole=*/true);
    if (has_classes && is_class) add(one, own, /*whole=*/false);
  }
  // Parts with their classes behind them.
  std::ranges::stable_sort(parts, {}, [](const Part& part) { return !part.whole; });
  return parts;
}

Estimate EstimateOf(const Experiment& experiment, std::span<const Observation* const> observations) {
  Estimate estimate;
  ClusteredScores scores;
  PplScore ppl;
  for (const Observation* const one : observations) {
    if (!one->failed.empty()) {
      ++estimate.failed;
    } else if (one->ppl) {
      ++estimate.n;
      ppl.Add(*one->ppl);
    } else {
      ++estimate.n;
      scores.Add(one->document, one->score);
    }
  }
  if (estimate.n == 0) return estimate;
  if (ppl.n_tokens > 0) {
    const auto bounded = [](double value) { return value <= kMostValue ? value : kMostValue; };
    estimate.value = bounded(ppl.perplexity());
    if (ppl.n_tokens > 1) estimate.interval = {bounded(ppl.lowest()), bounded(ppl.highest())};
    return estimate;
  }
  estimate.value = scores.mean();
  if (experiment.measure.unit == "share") {
    const Interval interval = scores.ShareInterval();
    estimate.interval = {interval.low, interval.high};
  } else if (scores.n_documents() > 1) {
    const Interval interval = scores.NormalInterval();
    estimate.interval = {interval.low, interval.high};
  }
  return estimate;
}

std::vector<const Observation*> Select(const Experiment& experiment, const std::string& attention,
                                       const std::string& cell, const Json& value) {
  std::vector<const Observation*> selected;
  for (const Observation& one : experiment.observations) {
    if (one.attention != attention) continue;
    if (!cell.empty() && CellValue(one, cell) != value) continue;
    selected.push_back(&one);
  }
  return selected;
}

Result<Results> ReadResults(const std::string& directory) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (auto at = fs::recursive_directory_iterator(directory, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at->path().extension() == ".jsonl" && at->is_regular_file()) paths.push_back(at->path());
  }
  if (error)
    return InvalidInput(fmt::format("{}: cannot read the directory: {}", directory, error.message()));
  if (paths.empty()) {
    return InvalidInput(fmt::format(
        "{}: there are no results in it: no *.jsonl, as 'longheads eval ... --out {}' writes them", directory,
        directory));
  }
  std::ranges::sort(paths);
  Collector collector;
  for (const fs::path& path : paths) LH_TRY(ReadJournal(path, collector));
  if (collector.results().experiments.empty()) {
    return InvalidInput(fmt::format("{}: the results in it are empty", directory));
  }
  for (Experiment& experiment : collector.results().experiments) NameEsaCompressions(experiment);
  return std::move(collector.results());
}

std::string CellText(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : JsonLine(value);
}

std::string CellName(const std::string& name, const Json& value) {
  if (value.is_null()) return "\u2013";
  if (name == "length" && value.is_number_integer()) return FormatLength(value.get<int64_t>());
  if (value.is_number_float()) return fmt::format("{:.2g}", value.get<double>());
  return CellText(value);
}

}  // namespace longheads
