#include "eval/passkey_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/json.h"
#include "eval/case_record.h"

namespace longheads {
namespace {

struct Totals {
  int64_t cases = 0, correct = 0, digits_right = 0, digits = 0, tokens = 0, shared = 0, failed = 0;
  double seconds = 0;  // of those that did not fail, as all but `failed`

  void Add(const PasskeyRecord& record) {
    if (!record.failed.empty()) {
      ++failed;
      return;
    }
    ++cases;
    correct += record.correct ? 1 : 0;
    digits_right += record.digits_right;
    digits += record.digits;
    tokens += record.tokens;
    shared += record.shared;
    seconds += record.seconds;
  }
};

}  // namespace

std::string PasskeyRecord::Fingerprint() const {
  return CaseFingerprint("passkey", attention, setup.model,
                         {{"form", PromptFormName(setup.style.form)},
                          {"filler", PasskeyFillerName(setup.style.filler)},
                          {"max_tokens", setup.max_tokens},
                          {"seed", setup.seed}});
}

std::string PasskeyJson(const PasskeyRecord& r) {
  nlohmann::ordered_json json = {
      {"attn", r.attention},
      {"length", r.which.length},
      {"tokens", r.tokens},
      {"depth", r.which.depth()},
      {"repeat", r.which.repeat},
      {"seed", r.setup.seed},
      {"key", r.key},
  };
  if (r.failed.empty()) {
    json["answer"] = r.answer;
    json["correct"] = r.correct;
    json["digits_right"] = r.digits_right;
    json["digits"] = r.digits;
  } else {
    json["failed"] = r.failed;
  }
  json["seconds"] = std::round(r.seconds * 1000) / 1000;
  json["shared"] = r.shared;
  json["form"] = PromptFormName(r.setup.style.form);
  json["filler"] = PasskeyFillerName(r.setup.style.filler);
  json["max_tokens"] = r.setup.max_tokens;
  AddModelSetup(r.setup.model, json);
  AddProvenance(r.by, json);
  json["fingerprint"] = r.Fingerprint();
  return JsonLine(json);
}

Result<PasskeyRecord> ParsePasskeyJson(const std::string& line) try {
  const nlohmann::ordered_json json = ParseJson(line);
  const std::string form_name = json.at("form"), filler_name = json.at("filler");
  const std::optional<PromptForm> form = FindPromptForm(form_name);
  if (!form) return InvalidInput(fmt::format("'form' is '{}'", form_name));
  const std::optional<PasskeyFiller> filler = FindPasskeyFiller(filler_name);
  if (!filler) return InvalidInput(fmt::format("'filler' is '{}'", filler_name));
  PasskeyRecord r;
  r.attention = json.at("attn");
  r.which.length = JsonCount(json, "length");
  r.which.depth_ppm = std::llround(JsonNumber(json, "depth", 0, 1) * 1e6);
  r.which.repeat = JsonCount(json, "repeat");
  r.tokens = JsonCount(json, "tokens");
  r.shared = JsonCount(json, "shared");
  r.key = JsonCount(json, "key");
  if (json.contains("failed")) {
    r.failed = json["failed"];
    if (r.failed.empty()) return InvalidInput("'failed' gives no reason");
  } else {
    r.answer = json.at("answer");
    r.correct = json.at("correct");
    r.digits_right = JsonCount(json, "digits_right");
    r.digits = JsonCount(json, "digits");
  }
  r.seconds = JsonNumber(json, "seconds", 0, 1e12);
  r.by = ParseProvenance(json);
  r.setup = {.model = ParseModelSetup(json),
             .style = {.form = *form, .filler = *filler},
             .max_tokens = JsonCount(json, "max_tokens"),
             .seed = json.at("seed").is_number_unsigned() ? json["seed"].get<uint64_t>()
                                                          : static_cast<uint64_t>(JsonCount(json, "seed"))};
  LH_TRY(CheckFingerprint(json, r.Fingerprint()));
  return r;
} catch (const nlohmann::json::exception& error) {
  return InvalidInput(error.what());
}

std::string PasskeyCsv(std::span<const PasskeyRecord> records) {
  struct Row {
    PasskeySetup setup;
    std::string attention;
    int64_t length;
    Totals totals;
  };
  std::vector<Row> rows;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (WasRunAgain(records, i)) continue;
    const PasskeyRecord& record = records[i];
    PasskeySetup setup = record.setup;
    setup.seed = 0;
    const auto same = [&](const Row& row) {
      return row.length == record.which.length && row.attention == record.attention && row.setup == setup;
    };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {setup, record.attention, record.which.length, {}});
    row->totals.Add(record);
  }
  std::string csv =
      "attn,length,cases,correct,digits_right,digits,mean_tokens,mean_shared,seconds,model,form,filler,"
      "compute,kv,backend,max_tokens,rope,model_fingerprint,failed\n";
  for (const Row& row : rows) {
    const Totals& t = row.totals;
    const auto mean = [&](int64_t total) {
      return static_cast<double>(total) / static_cast<double>(std::max<int64_t>(1, t.cases));
    };
    csv += fmt::format("{},{},{},{},{},{},{:.1f},{:.1f},{:.3f},{},{},{},{},{},{},{},{},{},{}\n",
                       CsvField(row.attention), row.length, t.cases, t.correct, t.digits_right, t.digits,
                       mean(t.tokens), mean(t.shared), t.seconds, CsvField(row.setup.model.model),
                       PromptFormName(row.setup.style.form), PasskeyFillerName(row.setup.style.filler),
                       row.setup.model.compute, row.setup.model.kv, row.setup.model.backend,
                       row.setup.max_tokens, CsvField(row.setup.model.rope),
                       CsvField(row.setup.model.fingerprint), t.failed);
  }
  return csv;
}

std::string PasskeyTable(std::span<const PasskeyRecord> records, std::span<const std::string> attention,
                         std::span<const int64_t> lengths) {
  return LengthTable(attention, lengths, [records](const std::string& spec, int64_t length) -> std::string {
    Totals t;
    for (const PasskeyRecord& record : records) {
      if (record.which.length == length && record.attention == spec) t.Add(record);
    }
    const std::string failed = t.failed == 0 ? "" : fmt::format("{} failed", t.failed);
    if (t.cases == 0) return failed.empty() ? "-" : failed;
    return fmt::format("{}/{} free, {}/{} digits{}{}", t.correct, t.cases, t.digits_right, t.digits,
                       failed.empty() ? "" : ", ", failed);
  });
}

Result<PasskeyJournal> OpenPasskeyJournal(const std::string& directory) {
  return OpenPasskeyShard(directory, {});
}

Result<PasskeyJournal> OpenPasskeyShard(const std::string& directory, const Shard& shard) {
  const std::string name = TaskJournalName("passkey", shard);
  return PasskeyJournal::Open(directory, {.name = name,
                                          .a_case = "a passkey case",
                                          .json = PasskeyJson,
                                          .parse = ParsePasskeyJson,
                                          .csv = PasskeyCsv});
}

}  // namespace longheads
