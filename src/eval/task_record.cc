#include "eval/task_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_set>

#include "base/csv.h"
#include "base/json.h"
#include "eval/interval.h"
#include "eval/text_hash.h"

namespace longheads {
namespace {

// Scores of one cell of one setup.
struct Cell {
  const TaskRecord* first;
  ClusteredScores scores;
  int64_t failed = 0;
  double tokens = 0, seconds = 0;
  struct ValueSum {
    double sum = 0;
    int64_t n = 0;
    double mean() const { return sum / static_cast<double>(n); }
  };
  std::map<std::string, ValueSum> values;

  explicit Cell(const TaskRecord& record) : first(&record) {}
  void Add(const TaskRecord& record) {
    seconds += record.seconds;
    if (!record.failed.empty()) {
      ++failed;
      return;
    }
    tokens += static_cast<double>(record.measured.tokens);
    for (const auto& item : record.measured.values.items()) {
      if (!item.value().is_number()) continue;
      ValueSum& value = values[item.key()];
      value.sum += item.value().get<double>();
      ++value.n;
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
      if (item.value().is_number() && std::ranges::find(names, item.key()) == names.end()) {
        names.push_back(item.key());
      }
    }
  }
  return names;
}

Json SampleJson(const TaskRecord& r) {
  Json json = {{"id", r.sample.id}};
  if (!r.sample.document.empty()) json["document"] = r.sample.document;
  json["cell"] = r.sample.cell;
  return json;
}

}  // namespace

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
  r.measured = {.score = json.at("score"),
                .cell = {},
                .values = json.at("values"),
                .answer = json.at("answer"),
                .references = json.at("references"),
                .tokens = JsonCount(json, "tokens"),
                .shared = JsonCount(json, "shared"),
                .generated = JsonCount(json, "generated")};
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
  std::string csv = "task,attn,";
  for (const std::string& name : names) csv += CsvField(name) + ",";
  csv +=
      "measure,unit,samples,documents,failed,mean,low,high,mean_tokens,seconds,model,compute,kv,backend,rope,"
      "model_fingerprint,options,fingerprint";
  for (const std::string& name : value_names) csv += fmt::format(",{}", CsvField(name));
  csv += "\n";
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
      csv += value == cell.values.end() ? "," : fmt::format(",{:.6g}", value->second.mean());
    }
    csv += "\n";
  }
  return csv;
}

std::string TaskTable(std::span<const TaskRecord> records, std::span<const std::string> attention,
                      std::span<const std::string> shown) {
  std::vector<std::string> columns;
  const auto column_of = [](const TaskRecord& r) {
    return r.sample.cell.empty() ? std::string("all") : CellText(r.sample.cell.front());
  };
  const std::string name =
      records.empty() || records[0].sample.cell.empty() ? "" : records[0].sample.cell.begin().key();
  for (const TaskRecord& record : records) {
    if (std::ranges::find(columns, column_of(record)) == columns.end()) columns.push_back(column_of(record));
  }
  std::vector<std::vector<std::string>> rows = {{"attn"}};
  for (const std::string& column : columns) {
    const bool is_length = name == "length" && column.find_first_not_of("0123456789") == std::string::npos;
    rows[0].push_back(is_length ? FormatLength(std::stoll(column)) : column);
  }
  for (const std::string& spec : attention) {
    rows.push_back({spec});
    for (const std::string& column : columns) {
      std::optional<Cell> cell;
      for (const TaskRecord& record : records) {
        if (record.setup.attention != spec || column_of(record) != column) continue;
        if (!cell) cell.emplace(record);
        cell->Add(record);
      }
      std::string text = "-";
      if (cell && cell->scores.n_samples() > 0) {
        const double scale = cell->is_share() ? 100 : 1;
        const auto number = [&](double value) {
          return cell->is_share() ? fmt::format("{:.1f}", scale * value) : fmt::format("{:.4g}", value);
        };
        text = number(cell->scores.mean());
        if (cell->has_interval()) {
          text += fmt::format(" ({}-{})", number(cell->interval().low), number(cell->interval().high));
        }
        text += fmt::format(" of {}", cell->scores.n_samples());
        for (const std::string& value_name : shown) {
          const auto value = cell->values.find(value_name);
          if (value != cell->values.end())
            text += fmt::format("; {} {:.4g}", value_name, value->second.mean());
        }
      }
      if (cell && cell->failed > 0) text += fmt::format(", {} failed", cell->failed);
      rows.back().push_back(text);
    }
  }
  return AlignColumns(rows);
}

Result<TaskJournal> OpenTaskJournal(const std::string& directory, const std::string& name) {
  return TaskJournal::Open(directory, {.name = name,
                                       .a_case = "a sample's result",
                                       .json = TaskJson,
                                       .parse = ParseTaskJson,
                                       .csv = TaskCsv});
}

}  // namespace longheads
