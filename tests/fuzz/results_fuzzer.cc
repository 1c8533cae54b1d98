// Any bytes as results of `longheads eval`: single lines (K pass keys, P perplexity, T a task's, S a task's
// whose fingerprint is put right first), and F whole journals, which a run goes on from and `report` reads.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "report/results.h"
#include "tests/support/result_journals.h"

namespace longheads {
namespace {

template <typename Record>
void TryLine(const std::string& line, Result<Record> parse(const std::string&),
             std::string print(const Record&), std::string csv(std::span<const Record>)) {
  const Result<Record> record = parse(line);
  if (!record) {
    LH_CHECK(!record.error().message.empty());
    return;
  }
  // What was understood is written down as what is understood again.
  const std::string written = print(*record);
  const Result<Record> again = parse(written);
  LH_CHECK(again.has_value());
  LH_CHECK(print(*again) == written);
  LH_CHECK(!csv(std::span(&*record, 1)).empty());
}

std::string WithItsFingerprint(const std::string& line) try {
  nlohmann::ordered_json json = ParseJson(line);
  const TaskSetup setup{.model = ParseModelSetup(json),
                        .attention = json.at("attn"),
                        .task = json.at("task"),
                        .options = json.at("options")};
  json["fingerprint"] = setup.Fingerprint();
  return JsonLine(json);
} catch (const nlohmann::json::exception&) {
  return line;
}

template <typename Record, typename Open>
void TryFile(const ResultFolder& folder, const std::string& file, const std::string& bytes,
             const Record& more, const Open& open) {
  const std::string path = folder.path() + "/" + file;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  const Result<Results> before = ReadResults(folder.path());
  std::size_t n = 0;
  bool opened = false;
  {
    auto journal = open(folder.path());
    opened = journal.has_value();
    if (opened) {
      n = journal->records().size();
      LH_CHECK(journal->Append(more).has_value());
      LH_CHECK(journal->WriteSummary().has_value());
    }
  }
  if (n > 0) LH_CHECK(before.has_value());  // of no results there is no report
  if (before.has_value()) LH_CHECK(opened);
  if (opened) {
    const auto journal = open(folder.path());
    LH_CHECK(journal.has_value() && journal->records().size() == n + 1);
    LH_CHECK(ReadResults(folder.path()).has_value());
  }
  std::filesystem::remove(path);
}

void TryJournal(const std::string& bytes) {
  static const ResultFolder folder;
  const std::string text = bytes.substr(1);
  switch (bytes.front()) {
    case 'K':
      return TryFile(folder, "passkey.jsonl", text, MakePasskey("full", 4096, 0.5, true), OpenPasskeyJournal);
    case 'P':
      return TryFile(folder, "ppl.jsonl", text, MakePpl("full", 4096, 0, 3), OpenPplJournal);
    case 'T':
      return TryFile(folder, "needle.jsonl", text, MakeTask("full", "id", {{"length", 4096}}, 1),
                     [](const std::string& directory) { return OpenTaskJournal(directory, "needle"); });
    default:
      return;
  }
}

}  // namespace
}  // namespace longheads

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longheads;
  if (size < 2) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'K':
      TryLine(rest, ParsePasskeyJson, PasskeyJson, PasskeyCsv);
      break;
    case 'P':
      TryLine(rest, ParsePplJson, PplJson, PplCsv);
      break;
    case 'T':
      TryLine(rest, ParseTaskJson, TaskJson, TaskCsv);
      break;
    case 'S':
      TryLine(WithItsFingerprint(rest), ParseTaskJson, TaskJson, TaskCsv);
      break;
    case 'F':
      TryJournal(rest);
      break;
    default:
      break;
  }
  return 0;
}
