// What an experiment found, case by case: a file of one JSON line for each, from which a later run goes on,
// and a summary beside it. What a line and the summary say is the experiment's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longheads {

// The experiment whose results the journal NAME.jsonl holds: "needle" of "needle", and of "needle-2of4",
// which is of one part of its samples.
std::string ExperimentOfJournal(const std::string& name);

// Gives each whole line of a journal to `take`, and where the last of them ends. A line that `take` refuses
// is an error that names it: it is not `a_case` ("a passkey case").
Result<std::size_t> ReadJournalLines(const std::string& path, std::string_view a_case,
                                     const std::function<Status(const std::string& line)>& take);

// DIR/NAME.jsonl and DIR/NAME.csv.
class JournalFile {
 public:
  // Makes the directory and the file where they are missing, and gives each line of the file to `take`
  // (ReadJournalLines). A last line that was not finished is cut off.
  static Result<JournalFile> Open(const std::string& directory, std::string_view name,
                                  std::string_view a_case,
                                  const std::function<Status(const std::string& line)>& take);

  // Writes the line (without its end) through to the system before it returns.
  Status Append(const std::string& line);
  // The old summary stays until the new one is whole.
  Status WriteSummary(const std::string& csv) const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::string summary_path_;
  std::unique_ptr<std::FILE, Close> file_;
};

template <typename Record>
struct JournalFormat {
  std::string_view name;                        // of the files
  std::string_view a_case;                      // in sentences
  std::string (*json)(const Record&);           // one line, without its end
  Result<Record> (*parse)(const std::string&);  // refuses what `json` did not write
  std::string (*csv)(std::span<const Record>);  // the summary, with a header line
};

// A JournalFile of records of one kind.
template <typename Record>
class Journal {
 public:
  static Result<Journal> Open(const std::string& directory, const JournalFormat<Record>& format) {
    Journal journal(format);
    const auto take = [&journal](const std::string& line) -> Status {
      LH_ASSIGN(Record record, journal.format_.parse(line));
      journal.records_.push_back(std::move(record));
      return {};
    };
    LH_ASSIGN(journal.file_, JournalFile::Open(directory, format.name, format.a_case, take));
    return journal;
  }

  // The file's when it was opened, and those appended.
  const std::vector<Record>& records() const { return records_; }

  Status Append(const Record& record) {
    LH_TRY(file_.Append(format_.json(record)));
    records_.push_back(record);
    return {};
  }
  Status WriteSummary() const { return file_.WriteSummary(format_.csv(records_)); }

 private:
  explicit Journal(const JournalFormat<Record>& format) : format_(format) {}

  JournalFormat<Record> format_;
  JournalFile file_;
  std::vector<Record> records_;
};

// "4k" for 4096, "1000" for 1000.
std::string FormatLength(int64_t length);

// Rows of equally many cells, as lines: the first column to the left, the others to the right.
std::string AlignColumns(std::span<const std::vector<std::string>> rows);

// For people, several lines: a row for each method, a column for each length, in the order given.
std::string LengthTable(std::span<const std::string> attention, std::span<const int64_t> lengths,
                        const std::function<std::string(const std::string& attention, int64_t length)>& cell);

}  // namespace longheads
