#include "eval/task_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_set>

#include "base/csv.h"
#include "base/json.h"
#include "eval/interval.h"
#include "eval/text_hash.h"

namespace longheads {
namespace {

constexpr std::string_view kACase = "a sample's result";

// Scores of one cell of one setup.
struct Cell {
  const TaskRecord* first;
  ClusteredScores scores;
  int64_t failed = 0;
  double tokens = 0, seconds = 0;
  struct ValueMean {
    double mean = 0;
    int64_t n = 0;
    // No sum, which huge values would take beyond any number.
    void Add(double value) {
      ++n;
      mean += value / static_cast<double>(n) - mean / static_cast<double>(n);
    }
  };
  std::map<std::string, ValueMean> values;

  explicit Cell(const TaskRecord& record) : first(&record) {}
  void Add(const TaskRecord& record) {
    seconds += record.seconds;
    if (!record.failed.empty()) {
      ++failed;
      return;
    }
    tokens += static_cast<double>(record.measured.tokens);
    for (const auto& item : record.measured.values.items()) {
      if (!item.value().is_number() || !IsMeasured(item.key())) continue;
      values[item.key()].Add(item.value().get<double>());
    }
    const Sample& sample = record.sample;
    scores.Add(sample.document.empty() ? sample.id : sample.document, record.measured.score);
  }
  bool is_share() const { return first->measure.unit == "share"; }
  Interval interval() const { return is_share() ? scores.ShareInterval() : scores.NormalInterval(); }
  // Whether the interval says anything.
  bool has_interval() const { return scores.n_samples() > 0 && (is_share() || scores.n_documents() > 1); }
};

// Scalars as in a table: strings without quotes.
std::string CellText(const Json& value) {
  return value.is_string() ? value.get<std::string>() : JsonLine(value);
}

// The names that any cell has, in the order in which they come.
std::vector<std::string> CellNames(std::span<const TaskRecord> records) {
  std::vector<std::string> names;
  for (const TaskRecord& record : records) {
    for (const auto& item : record.sample.cell.items()) {
      if (std::ranges::find(names, item.key()) == names.end()) names.push_back(item.key());
    }
  }
  return names;
}

// The names of numbers among the values, in the order in which they come.
std::vector<std::string> ValueNames(std::span<const TaskRecord> records) {
  std::vector<std::string> names;
  for (const TaskRecord& record : records) {
    for (const auto& item : record.measured.values.items()) {
      const bool measured = item.value().is_number() && IsMeasured(item.key());
      if (measured && std::ranges::find(names, item.key()) == names.end()) names.push_back(item.key());
    }
  }
  return names;
}

// Reports lay out by cells: by plain values, and plots by numbers.
Status CheckCell(const Json& cell) {
  if (!cell.is_object()) return InvalidInput("'cell' is no object of names and values");
  for (const auto& item : cell.items()) {
    const Json& value = item.value();
    if (!value.is_number() && !value.is_string() && !value.is_boolean()) {
      return InvalidInput(
          fmt::format("'{}' of its 'cell' is neither a number nor a string nor a boolean", item.key()));
    }
    if ((item.key() == "length" || item.key() == "depth") && !value.is_number()) {
      return InvalidInput(fmt::format("'{}' of its 'cell' is no number", item.key()));
    }
  }
  return {};
}

Json SampleJson(const TaskRecord& r) {
  Json json = {{"id", r.sample.id}};
  if (!r.sample.document.empty()) json["document"] = r.sample.document;
  json["cell"] = r.sample.cell;
  return json;
}

// "85.0 (70.9-92.9) of 40; gini 0.5, 1 failed"
std::string TableText(const Cell& cell, std::span<const std::string> shown) {
  std::string text = "-";
  if (cell.scores.n_samples() > 0) {
    const auto number = [&](double value) {
      return cell.is_share() ? fmt::format("{:.1f}", 100 * value) : fmt::format("{:.4g}", value);
    };
    text = number(cell.scores.mean());
    if (cell.has_interval()) {
      text += fmt::format(" ({}-{})", number(cell.interval().low), number(cell.interval().high));
    }
    text += fmt::format(" of {}", cell.scores.n_samples());
    for (const std::string& name : shown) {
      const auto value = cell.values.find(name);
      if (value != cell.values.end()) text += fmt::format("; {} {:.4g}", name, value->second.mean);
    }
  }
  if (cell.failed > 0) text += fmt::format(", {} failed", cell.failed);
  return text;
}

// Columns of the CSV, no two of one name.
std::string CsvHeader(std::span<const std::string> cell_names, std::span<const std::string> value_names) {
  static const std::vector<std::string> kBefore = {"task", "attn"};
  static const std::vector<std::string> kBehind = {
      "measure", "unit",    "samples",     "documents",         "failed",  "mean",
      "low",     "high",    "mean_tokens", "seconds",           "model",   "compute",
      "kv",      "backend", "rope",        "model_fingerprint", "options", "fingerprint"};
  std::vector<std::string> taken = kBefore;
  taken.insert(taken.end(), kBehind.begin(), kBehind.end());
  const auto own = [&](std::string name, const char* before) {
    while (std::ranges::find(taken, name) != taken.end()) name = before + name;
    taken.push_back(name);
    return name;
  };
  std::vector<std::string> header = kBefore;
  for (const std::string& name : cell_names) header.push_back(own(name, "cell_"));
  header.insert(header.end(), kBehind.begin(), kBehind.end());
  for (const std::string& name : value_names) header.push_back(own(name, "value_"));
  std::string line;
  for (const std::string& name : header) line += (line.empty() ? "" : ",") + CsvField(name);
  return line + "\n";
}

}  // namespace

bool IsMeasured(const std::string& value_name) {
  return value_name != "key" && value_name != "depth" && value_name != "dim";
}

bool IsSampleClass(const std::string& cell_name) { return cell_name == "split" || cell_name == "words"; }

std::string TaskSetup::Fingerprint() const {
  Json json = {{"attn", attention}, {"task", task}, {"options", options}};
  AddModelSetup(model, json);
  return TextHash(JsonLine(json));
}

std::string TaskJson(const TaskRecord& r) {
  Json json = {{"task", r.setup.task}, {"attn", r.setup.attention}};
  json.update(SampleJson(r));
  if (!r.failed.empty()) {
    json["failed"] = r.failed;
  } else {
    json["score"] = r.measured.score;
  }
  json["measure"] = r.measure.name;
  json["unit"] = r.measure.unit;
  if (r.failed.empty()) {
    json["answer"] = r.measured.answer;
    json["references"] = r.measured.references;
    json["values"] = r.measured.values;
    json["tokens"] = r.measured.tokens;
    json["shared"] = r.measured.shared;
    json["generated"] = r.measured.generated;
  }
  json["seconds"] = std::round(r.seconds * 1000) / 1000;
  json["options"] = r.setup.options;
  AddModelSetup(r.setup.model, json);
  AddProvenance(r.by, json);
  json["time"] = r.time;
  json["fingerprint"] = r.fingerprint;
  return JsonLine(json);
}

Result<TaskRecord> ParseTaskJson(const std::string& line) try {
  const Json json = ParseJson(line);
  TaskRecord r;
  r.setup.task = json.at("task");
  r.setup.attention = json.at("attn");
  r.setup.options = json.at("options");
  r.setup.model = ParseModelSetup(json);
  r.fingerprint = json.at("fingerprint");
  if (r.fingerprint != r.setup.Fingerprint()) {
    return InvalidInput("its fingerprint is of another configuration than the one it names");
  }
  r.sample.id = json.at("id");
  r.sample.document = json.value("document", "");
  r.sample.cell = json.at("cell");
  LH_TRY(CheckCell(r.sample.cell));
  r.measure.name = json.at("measure");
  r.measure.unit = json.at("unit");
  r.seconds = JsonNumber(json, "seconds", 0, 1e12);
  r.by = ParseProvenance(json);
  r.time = json.at("time");
  if (json.contains("failed")) {
    r.failed = json.at("failed");
    if (r.failed.empty()) return InvalidInput("'failed' gives no reason");
    return r;
  }
  // Beyond these, sums of scores and of their squares would be no numbers.
  constexpr double kMostScore = 1e100;
  r.measured = {.score = JsonNumber(json, "score", -kMostScore, kMostScore),
                .cell = {},
                .values = json.at("values"),
                .answer = json.at("answer"),
                .references = json.at("references"),
                .tokens = JsonCount(json, "tokens"),
                .shared = JsonCount(json, "shared"),
                .generated = JsonCount(json, "generated")};
  if (!r.measured.values.is_object()) return InvalidInput("'values' is no object of names and values");
  return r;
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(error.what());
}

std::vector<TaskRecord> LatestRecords(std::span<const TaskRecord> records) {
  std::unordered_set<std::string> seen;
  std::vector<TaskRecord> latest;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (seen.insert(record->fingerprint + record->sample.id).second) latest.push_back(*record);
  }
  std::ranges::reverse(latest);
  return latest;
}

Result<std::vector<TaskRecord>> AllRecords(const std::string& directory, const std::string& task,
                                           std::span<const TaskRecord> run) {
  namespace fs = std::filesystem;
  std::vector<fs::path> journals;
  std::error_code error;
  for (auto at = fs::directory_iterator(directory, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const fs::path& path = at->path();
    if (path.extension() != ".jsonl" || ExperimentOfJournal(path.stem().string()) != task) continue;
    if (at->is_regular_file()) journals.push_back(path);
  }
  if (error) return MakeError(ErrorKind::kIo, fmt::format("{}: {}", directory, error.message()));
  std::ranges::sort(journals);
  std::vector<TaskRecord> records(run.begin(), run.end());
  for (const fs::path& journal : journals) {
    const auto take = [&records](const std::string& line) -> Status {
      LH_ASSIGN(TaskRecord record, ParseTaskJson(line));
      records.push_back(std::move(record));
      return {};
    };
    LH_TRY(ReadJournalLines(journal.string(), kACase, take));
  }
  // The later of two is the one that counts.
  std::stable_partition(records.begin(), records.end(),
                        [](const TaskRecord& r) { return !r.failed.empty(); });
  return LatestRecords(records);
}

std::string TaskCsv(std::span<const TaskRecord> all) {
  const std::vector<TaskRecord> records = LatestRecords(all);
  const std::vector<std::string> names = CellNames(records);
  const std::vector<std::string> value_names = ValueNames(records);
  std::vector<Cell> cells;
  for (const TaskRecord& record : records) {
    auto cell = std::ranges::find_if(cells, [&](const Cell& c) {
      return c.first->fingerprint == record.fingerprint && c.first->sample.cell == record.sample.cell;
    });
    if (cell == cells.end()) cell = cells.insert(cell, Cell(record));
    cell->Add(record);
  }
  std::string csv = CsvHeader(names, value_names);
  for (const Cell& cell : cells) {
    const TaskRecord& r = *cell.first;
    csv += fmt::format("{},{},", CsvField(r.setup.task), CsvField(r.setup.attention));
    for (const std::string& name : names) {
      csv += (r.sample.cell.contains(name) ? CsvField(CellText(r.sample.cell[name])) : "") + ",";
    }
    const int64_t n = cell.scores.n_samples();
    const Interval interval = cell.has_interval() ? cell.interval() : Interval{};
    csv += fmt::format("{},{},{},{},{},", CsvField(r.measure.name), CsvField(r.measure.unit), n,
                       cell.scores.n_documents(), cell.failed);
    csv += n == 0 ? "," : fmt::format("{:.6g},", cell.scores.mean());
    csv += cell.has_interval() ? fmt::format("{:.6g},{:.6g},", interval.low, interval.high) : ",,";
    csv += n == 0 ? "," : fmt::format("{:.1f},", cell.tokens / static_cast<double>(n));
    const ModelSetup& model = r.setup.model;
    csv += fmt::format("{:.3f},{},{},{},{},{},{},{},{}", cell.seconds, CsvField(model.model), model.compute,
                       model.kv, CsvField(model.backend), CsvField(model.rope), CsvField(model.fingerprint),
                       CsvField(JsonLine(r.setup.options)), r.fingerprint);
    for (const std::string& name : value_names) {
      const auto value = cell.values.find(name);
      csv += value == cell.values.end() ? "," : fmt::format(",{:.6g}", value->second.mean);
    }
    csv += "\n";
  }
  return csv;
}

std::string TaskTable(std::span<const TaskRecord> records, std::span<const std::string> attention,
                      std::span<const std::string> shown) {
  std::vector<std::string> names = CellNames(records);
  const bool by_length = std::ranges::find(names, "length") != names.end();
  const std::string columns_name = by_length ? "length" : names.empty() ? "" : names[0];
  std::erase_if(names, [&](const std::string& name) { return name == columns_name || name == "depth"; });
  const auto value_of = [](const TaskRecord& r, const std::string& name) {
    return r.sample.cell.contains(name) ? CellText(r.sample.cell[name]) : std::string("-");
  };
  const auto column_of = [&](const TaskRecord& r) {
    return columns_name.empty() ? std::string("all") : value_of(r, columns_name);
  };
  // Of a class of samples the row of all, and its own.
  const auto rows_of = [&](const TaskRecord& r) {
    std::vector<std::string> all = {r.setup.attention}, own = all;
    bool is_class = false;
    for (const std::string& name : names) {
      own.push_back(value_of(r, name));
      all.push_back(IsSampleClass(name) ? "all" : own.back());
      is_class = is_class || (IsSampleClass(name) && r.sample.cell.contains(name));
    }
    std::vector<std::vector<std::string>> rows = {all};
    if (is_class) rows.push_back(own);
    return rows;
  };
  std::vector<std::string> columns;
  std::map<std::pair<std::vector<std::string>, std::string>, Cell> cells;  // by row and column
  std::vector<std::vector<std::string>> starts;                            // of rows: method, and the rest
  for (const TaskRecord& record : records) {
    const std::string column = column_of(record);
    if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
    for (const std::vector<std::string>& row : rows_of(record)) {
      if (std::ranges::find(starts, row) == starts.end()) starts.push_back(row);
      cells.try_emplace({row, column}, record).first->second.Add(record);
    }
  }
  std::vector<std::vector<std::string>> rows = {{"attn"}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (const std::string& column : columns) {
    int64_t length = 0;
    const auto [end, error] = std::from_chars(column.data(), column.data() + column.size(), length);
    const bool is_length =
        by_length && error == std::errc() && end == column.data() + column.size() && length >= 0;
    rows[0].push_back(is_length ? FormatLength(length) : column);
  }
  for (const std::string& spec : attention) {
    bool found = false;
    for (const std::vector<std::string>& start : starts) {
      if (start[0] != spec) continue;
      found = true;
      rows.push_back(start);
      for (const std::string& column : columns) {
        const auto cell = cells.find({start, column});
        rows.back().push_back(cell == cells.end() ? "-" : TableText(cell->second, shown));
      }
    }
    if (found) continue;
    rows.push_back({spec});
    rows.back().resize(rows[0].size(), "-");
  }
  return AlignColumns(rows);
}

Result<TaskJournal> OpenTaskJournal(const std::string& directory, const std::string& name) {
  return TaskJournal::Open(
      directory, {.name = name, .a_case = kACase, .json = TaskJson, .parse = ParseTaskJson, .csv = TaskCsv});
}

}  // namespace longheads
