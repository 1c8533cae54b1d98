#include "eval/ppl_journal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/json.h"
#include "eval/case_record.h"

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

struct PplTotals {
  int64_t n_samples = 0, failed = 0;
  PplScore score = {};
  double seconds = 0;  // of those that did not fail, as all but `failed`

  void Add(const PplRecord& record) {
    if (!record.failed.empty()) {
      ++failed;
      return;
    }
    ++n_samples;
    score.Add(record.score);
    seconds += record.seconds;
  }
};

// The columns from "samples" to "seconds"; of no score no means.
std::string CsvTotals(const PplTotals& t) {
  if (t.n_samples == 0) return "0,0,,,,,,0.000";
  return fmt::format("{},{},{:.6f},{:.6f},{:.4f},{:.4f},{:.4f},{:.3f}", t.n_samples, t.score.n_tokens,
                     t.score.mean(), t.score.standard_error(), t.score.perplexity(), t.score.lowest(),
                     t.score.highest(), t.seconds);
}

}  // namespace

std::string PplRecord::Fingerprint() const {
  return CaseFingerprint("ppl", attention, setup.model,
                         {{"text", setup.text},
                          {"text_bytes", setup.text_bytes},
                          {"text_hash", setup.text_hash},
                          {"score", which.n_score()}});
}

std::string PplJson(const PplRecord& r) {
  nlohmann::ordered_json json = {
      {"attn", r.attention},      {"length", r.which.length}, {"sample", r.which.sample},
      {"offset", r.which.offset}, {"calls", r.which.calls},
  };
  if (r.failed.empty()) {
    json["tokens"] = r.score.n_tokens;
    json["nll_sum"] = r.score.nll_sum;
    json["nll_squares"] = r.score.nll_squares;
    json["ppl"] = r.score.perplexity();
  } else {
    json["failed"] = r.failed;
  }
  json["seconds"] = std::round(r.seconds * 1000) / 1000;
  json["text"] = r.setup.text;
  json["text_bytes"] = r.setup.text_bytes;
  json["text_hash"] = r.setup.text_hash;
  AddModelSetup(r.setup.model, json);
  AddProvenance(r.by, json);
  json["fingerprint"] = r.Fingerprint();
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
  if (!IsPossible(r.which)) return InvalidInput("'calls' do not fit 'length'");
  if (json.contains("failed")) {
    r.failed = json["failed"];
    if (r.failed.empty()) return InvalidInput("'failed' gives no reason");
  } else {
    r.score = {.n_tokens = JsonCount(json, "tokens"),
               .nll_sum = json.at("nll_sum"),
               .nll_squares = json.at("nll_squares")};
    if (r.score.n_tokens != r.which.n_score()) return InvalidInput("'tokens' is not what 'calls' leave");
  }
  r.seconds = JsonNumber(json, "seconds", 0, 1e12);
  r.by = ParseProvenance(json);
  r.setup = {.model = ParseModelSetup(json),
             .text = json.at("text"),
             .text_bytes = JsonCount(json, "text_bytes"),
             .text_hash = json.at("text_hash")};
  LH_TRY(CheckFingerprint(json, r.Fingerprint()));
  return r;
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(error.what());
}

std::string PplCsv(std::span<const PplRecord> records) {
  struct Row {
    const PplRecord* first;
    PplTotals totals = {};
  };
  std::vector<Row> rows;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (WasRunAgain(records, i)) continue;
    const PplRecord& record = records[i];
    const auto same = [&](const Row& row) {
      return row.first->which.length == record.which.length && row.first->which.calls == record.which.calls &&
             row.first->attention == record.attention && row.first->setup == record.setup;
    };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {.first = &record});
    row->totals.Add(record);
  }
  std::string csv =
      "attn,length,samples,tokens,mean_nll,standard_error,ppl,ppl_low,ppl_high,seconds,calls,text,"
      "text_bytes,text_hash,model,compute,kv,backend,rope,model_fingerprint,failed\n";
  for (const Row& row : rows) {
    const PplSetup& setup = row.first->setup;
    csv += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", CsvField(row.first->attention),
                       row.first->which.length, CsvTotals(row.totals), fmt::join(row.first->which.calls, " "),
                       CsvField(setup.text), setup.text_bytes, setup.text_hash, CsvField(setup.model.model),
                       setup.model.compute, setup.model.kv, setup.model.backend, CsvField(setup.model.rope),
                       CsvField(setup.model.fingerprint), row.totals.failed);
  }
  return csv;
}

std::string PplTable(std::span<const PplRecord> records, std::span<const std::string> attention,
                     std::span<const int64_t> lengths) {
  return LengthTable(attention, lengths, [records](const std::string& spec, int64_t length) -> std::string {
    PplTotals t;
    for (const PplRecord& record : records) {
      if (record.which.length == length && record.attention == spec) t.Add(record);
    }
    const std::string failed = t.failed == 0 ? "" : fmt::format("{} failed", t.failed);
    if (t.n_samples == 0) return failed.empty() ? "-" : failed;
    return fmt::format("{} ({}-{}){}{}", FormatPerplexity(t.score.perplexity()),
                       FormatPerplexity(t.score.lowest()), FormatPerplexity(t.score.highest()),
                       failed.empty() ? "" : ", ", failed);
  });
}

Result<PplJournal> OpenPplJournal(const std::string& directory) { return OpenPplShard(directory, {}); }

Result<PplJournal> OpenPplShard(const std::string& directory, const Shard& shard) {
  const std::string name = TaskJournalName("ppl", shard);
  return PplJournal::Open(
      directory,
      {.name = name, .a_case = "a perplexity case", .json = PplJson, .parse = ParsePplJson, .csv = PplCsv});
}

}  // namespace longheads
