#include "eval/ppl_journal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/json.h"

namespace longheads {
namespace {

// Whether reading call by call and then scoring at least two tokens makes this length.
bool IsPossible(const PplCase& c) {
  int64_t read = 0;
  for (const int64_t end : c.calls) {
    if (end <= read) return false;
    read = end;
  }
  return read > 0 && read <= c.length - 2 && c.sample >= 0 && c.offset >= 0;
}

std::string FormatPerplexity(double value) {
  return value < 1000 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::string PplJson(const PplRecord& r) {
  nlohmann::ordered_json json = {
      {"attn", r.attention},
      {"length", r.which.length},
      {"sample", r.which.sample},
      {"offset", r.which.offset},
      {"calls", r.which.calls},
      {"tokens", r.score.n_tokens},
      {"nll_sum", r.score.nll_sum},
      {"nll_squares", r.score.nll_squares},
      {"ppl", r.score.perplexity()},
      {"seconds", std::round(r.seconds * 1000) / 1000},
      {"text", r.setup.text},
      {"text_bytes", r.setup.text_bytes},
      {"text_hash", r.setup.text_hash},
  };
  AddModelSetup(r.setup.model, json);
  AddProvenance(r.by, json);
  return JsonLine(json);
}

Result<PplRecord> ParsePplJson(const std::string& line) try {
  const nlohmann::ordered_json json = ParseJson(line);
  PplRecord r;
  r.attention = json.at("attn");
  r.which = {.length = JsonCount(json, "length"),
             .sample = JsonCount(json, "sample"),
             .offset = JsonCount(json, "offset"),
             .calls = {}};
  for (std::size_t i = 0; i < json.at("calls").size(); ++i) {
    r.which.calls.push_back(ToCount(json["calls"][i], "calls"));
  }
  r.score = {.n_tokens = JsonCount(json, "tokens"),
             .nll_sum = json.at("nll_sum"),
             .nll_squares = json.at("nll_squares")};
  r.seconds = JsonNumber(json, "seconds", 0, 1e12);
  r.by = ParseProvenance(json);
  r.setup = {.model = ParseModelSetup(json),
             .text = json.at("text"),
             .text_bytes = JsonCount(json, "text_bytes"),
             .text_hash = json.at("text_hash")};
  if (!IsPossible(r.which)) return InvalidInput("'calls' do not fit 'length'");
  if (r.score.n_tokens != r.which.n_score()) return InvalidInput("'tokens' is not what 'calls' leave");
  return r;
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(error.what());
}

std::string PplCsv(std::span<const PplRecord> records) {
  struct Row {
    const PplRecord* first;
    int64_t n_samples = 0;
    PplScore score = {};
    double seconds = 0;
  };
  std::vector<Row> rows;
  for (const PplRecord& record : records) {
    const auto same = [&](const Row& row) {
      return row.first->which.length == record.which.length && row.first->which.calls == record.which.calls &&
             row.first->attention == record.attention && row.first->setup == record.setup;
    };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {.first = &record});
    ++row->n_samples;
    row->score.Add(record.score);
    row->seconds += record.seconds;
  }
  std::string csv =
      "attn,length,samples,tokens,mean_nll,standard_error,ppl,ppl_low,ppl_high,seconds,calls,text,"
      "text_bytes,text_hash,model,compute,kv,backend,rope,model_fingerprint\n";
  for (const Row& row : rows) {
    const PplSetup& setup = row.first->setup;
    csv += fmt::format(
        "{},{},{},{},{:.6f},{:.6f},{:.4f},{:.4f},{:.4f},{:.3f},{},{},{},{},{},{},{},{},{},{}\n",
        CsvField(row.first->attention), row.first->which.length, row.n_samples, row.score.n_tokens,
        row.score.mean(), row.score.standard_error(), row.score.perplexity(), row.score.lowest(),
        row.score.highest(), row.seconds, fmt::join(row.first->which.calls, " "), CsvField(setup.text),
        setup.text_bytes, setup.text_hash, CsvField(setup.model.model), setup.model.compute, setup.model.kv,
        setup.model.backend, CsvField(setup.model.rope), CsvField(setup.model.fingerprint));
  }
  return csv;
}

std::string PplTable(std::span<const PplRecord> records, std::span<const std::string> attention,
                     std::span<const int64_t> lengths) {
  return LengthTable(attention, lengths, [records](const std::string& spec, int64_t length) -> std::string {
    PplScore score;
    for (const PplRecord& record : records) {
      if (record.which.length == length && record.attention == spec) score.Add(record.score);
    }
    return score.n_tokens == 0
               ? "-"
               : fmt::format("{} ({}-{})", FormatPerplexity(score.perplexity()),
                             FormatPerplexity(score.lowest()), FormatPerplexity(score.highest()));
  });
}

Result<PplJournal> OpenPplJournal(const std::string& directory) {
  return PplJournal::Open(
      directory,
      {.name = "ppl", .a_case = "a perplexity case", .json = PplJson, .parse = ParsePplJson, .csv = PplCsv});
}

}  // namespace longheads
