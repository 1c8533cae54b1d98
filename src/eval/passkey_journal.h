// What passkey retrieval found, case by case: one JSON line each in DIR/passkey.jsonl, from which a later run
// goes on, and summaries of them (DIR/passkey.csv, a table for people).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/journal.h"
#include "eval/model_setup.h"
#include "eval/passkey_prompt.h"
#include "eval/provenance.h"
#include "eval/task_run.h"

namespace longheads {

// All that bears on a result beside the case and the method.
struct PasskeySetup {
  ModelSetup model;
  PasskeyStyle style;
  int64_t max_tokens = 0;
  uint64_t seed = 0;

  bool operator==(const PasskeySetup&) const = default;
};

struct PasskeyRecord {
  PasskeySetup setup;
  std::string attention;  // as given to --attn
  PasskeyCase which;
  int64_t key = 0;
  int64_t tokens = 0;  // of the prompt, as counted
  int64_t shared = 0;  // of these, read earlier for another case
  std::string answer;
  bool correct = false;
  int64_t digits_right = 0;  // arg-max when the answer is forced
  int64_t digits = 0;
  double seconds = 0;  // spent on this case alone
  Provenance by = {};
  std::string failed = {};  // why there is no answer: neither right nor wrong; empty where there is one

  bool SameCase(const PasskeySetup& other_setup, const std::string& other_attention,
                const PasskeyCase& other) const {
    return which == other && attention == other_attention && setup == other_setup;
  }
  // Of method and setup, as a line has it.
  std::string Fingerprint() const;
};

std::string PasskeyJson(const PasskeyRecord& record);  // one line, without its end
// Refuses a line that PasskeyJson did not write, and one whose fingerprint is not that of what it says.
Result<PasskeyRecord> ParsePasskeyJson(const std::string& line);

// Totals by setup (whatever the seed), method and length, in the records' order, with a header line. Failed
// cases are counted beside them, not in them, and not at all where a later record is of the same case.
std::string PasskeyCsv(std::span<const PasskeyRecord> records);

// Rows are methods, columns lengths, in the order given: "9/10 free, 48/50 digits, 1 failed"; '-' where
// there is nothing yet. Several lines.
std::string PasskeyTable(std::span<const PasskeyRecord> records, std::span<const std::string> attention,
                         std::span<const int64_t> lengths);

using PasskeyJournal = Journal<PasskeyRecord>;
// DIR/passkey.jsonl and DIR/passkey.csv.
Result<PasskeyJournal> OpenPasskeyJournal(const std::string& directory);
// DIR/passkey-2of4.jsonl and DIR/passkey-2of4.csv; the same as above where there is one shard alone.
Result<PasskeyJournal> OpenPasskeyShard(const std::string& directory, const Shard& shard);

}  // namespace longheads
