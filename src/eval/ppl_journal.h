// What perplexity against length found, case by case: one JSON line each in DIR/ppl.jsonl, from which a later
// run goes on, and summaries of them (DIR/ppl.csv, a table for people).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/journal.h"
#include "eval/model_setup.h"
#include "eval/ppl_sample.h"
#include "eval/provenance.h"
#include "eval/task_run.h"
#include "eval/text_hash.h"

namespace longheads {

// All that bears on a result beside the case and the method.
struct PplSetup {
  ModelSetup model;
  std::string text;  // file name, without its folder
  int64_t text_bytes = 0;
  std::string text_hash;  // TextHash of its bytes

  bool operator==(const PplSetup&) const = default;
};

struct PplCase {
  int64_t length = 0;  // tokens, those scored included
  int64_t sample = 0;  // a label: which of the run that measured it
  int64_t offset = 0;  // of the sample's first token in the text
  // Where the calls that read the prompt ended: some methods choose anew in each call. The last one ends
  // where scoring begins.
  std::vector<int64_t> calls;

  int64_t n_score() const { return length - calls.back(); }
  bool Same(const PplCase& other) const {
    return length == other.length && offset == other.offset && calls == other.calls;
  }
};

struct PplRecord {
  PplSetup setup;
  std::string attention;  // as given to --attn
  PplCase which;
  PplScore score = {};
  double seconds = 0;  // since the sample's beginning, or its case before: reading on, and scoring
  Provenance by = {};
  std::string failed = {};  // why there is no score; empty where there is one

  bool SameCase(const PplSetup& other_setup, const std::string& other_attention, const PplCase& other) const {
    return which.Same(other) && attention == other_attention && setup == other_setup;
  }
  // Of method, setup and how many tokens are scored, as a line has it.
  std::string Fingerprint() const;
};

std::string PplJson(const PplRecord& record);  // one line, without its end
// Refuses a line that PplJson did not write, and one whose fingerprint is not that of what it says.
Result<PplRecord> ParsePplJson(const std::string& line);

// Totals by setup, method, length and calls over all samples, in the records' order, with a header line.
// Failed cases are counted beside them, not in them, and not at all where a later record is of the same case.
std::string PplCsv(std::span<const PplRecord> records);

// Rows are methods, columns lengths, in the order given: "12.34 (11.50-13.24), 1 failed", the perplexity and
// its 95% interval; '-' where there is nothing yet. Several lines.
std::string PplTable(std::span<const PplRecord> records, std::span<const std::string> attention,
                     std::span<const int64_t> lengths);

using PplJournal = Journal<PplRecord>;
// DIR/ppl.jsonl and DIR/ppl.csv.
Result<PplJournal> OpenPplJournal(const std::string& directory);
// DIR/ppl-2of4.jsonl and DIR/ppl-2of4.csv; the same as above where there is one shard alone.
Result<PplJournal> OpenPplShard(const std::string& directory, const Shard& shard);

}  // namespace longheads
