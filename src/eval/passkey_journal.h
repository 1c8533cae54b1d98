// What passkey retrieval found, case by case: one JSON line each in DIR/passkey.jsonl, from which a later run
// goes on, and summaries of them (DIR/passkey.csv, a table for people).
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/passkey_prompt.h"

namespace longheads {

// All that bears on a result beside the case and the method.
struct PasskeySetup {
  std::string model;  // file name, without its folder
  int64_t model_bytes = 0;
  PasskeyStyle style;
  std::string compute;  // "f32", "bf16"
  std::string kv;       // "f32", "bf16"
  std::string backend;  // as asked for: "auto" stands for what the machine offers
  int64_t max_tokens = 0;
  uint64_t seed = 0;
  std::string rope = {};  // as typed, where the model's own frequencies were changed: "--rope-scale 4"

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
  int threads = 0;

  bool SameCase(const PasskeySetup& other_setup, const std::string& other_attention,
                const PasskeyCase& other) const {
    return which == other && attention == other_attention && setup == other_setup;
  }
};

std::string PasskeyJson(const PasskeyRecord& record);  // one line, without its end
// Refuses a line that PasskeyJson did not write.
Result<PasskeyRecord> ParsePasskeyJson(const std::string& line);

// Totals by setup (whatever the seed), method and length, in the records' order, with a header line.
std::string PasskeyCsv(std::span<const PasskeyRecord> records);

// Rows are methods, columns lengths, in the order given: "9/10 free, 48/50 digits"; '-' where there is
// nothing yet. Several lines.
std::string PasskeyTable(std::span<const PasskeyRecord> records, std::span<const std::string> attention,
                         std::span<const int64_t> lengths);

class PasskeyJournal {
 public:
  // Makes the directory and the file where they are missing, and reads the file's records. A last line that
  // was not finished is cut off; any other line that is no record is an error that names it.
  static Result<PasskeyJournal> Open(const std::string& directory);

  const std::vector<PasskeyRecord>& records() const { return records_; }

  // Writes the record through to the system before it returns.
  Status Append(const PasskeyRecord& record);
  // DIR/passkey.csv over all records; the old one stays until the new one is whole.
  Status WriteSummary() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string directory_;
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<PasskeyRecord> records_;
};

}  // namespace longheads
