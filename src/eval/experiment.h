// What all experiments do alike when they run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "eval/journal.h"

namespace longheads {

// In the order given, each once.
template <typename T>
void DropRepeats(std::vector<T>& values) {
  std::vector<T> once;
  for (T& value : values) {
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(std::move(value));
  }
  values = std::move(once);
}

// The cases of one run: those that an earlier one left in its directory, and those that come.
template <typename Record>
class CaseLog {
 public:
  using OnCase = std::function<void(const Record& record, bool from_file, int64_t done, int64_t n_cases)>;

  // `records` gets all cases that are done, and `on_case`, which may be empty, hears of each.
  CaseLog(std::vector<Record>& records, int64_t n_cases, const OnCase& on_case)
      : records_(records), n_cases_(n_cases), on_case_(on_case) {}

  // Without a journal nothing is found and nothing is kept.
  void KeepIn(Journal<Record> journal) { journal_ = std::move(journal); }

  // Null where the case is still to be run.
  template <typename Setup, typename Case>
  const Record* Find(const Setup& setup, const std::string& attention, const Case& c) const {
    if (!journal_) return nullptr;
    // A case that was run again: the newest counts.
    const std::vector<Record>& records = journal_->records();
    const auto found = std::find_if(records.rbegin(), records.rend(), [&](const Record& record) {
      return record.SameCase(setup, attention, c);
    });
    return found == records.rend() ? nullptr : &*found;
  }

  void AddFound(const Record& record) { Report(record, /*from_file=*/true); }
  Status AddRun(const Record& record) {
    if (journal_) LH_TRY(journal_->Append(record));
    Report(record, /*from_file=*/false);
    return {};
  }

  // However the run ended, what is done goes into the summary.
  Status Finish(const Status& run) const {
    const Status summary = journal_ ? journal_->WriteSummary() : Status();
    return run ? summary : run;
  }

 private:
  void Report(const Record& record, bool from_file) {
    records_.push_back(record);
    if (on_case_) on_case_(records_.back(), from_file, static_cast<int64_t>(records_.size()), n_cases_);
  }

  std::vector<Record>& records_;
  int64_t n_cases_;
  const OnCase& on_case_;
  std::optional<Journal<Record>> journal_;
};

inline tl::unexpected<Error> Interrupted() { return MakeError(ErrorKind::kCancelled, "interrupted"); }

}  // namespace longheads
