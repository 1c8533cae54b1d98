// Small journals of made-up results, as `longheads eval` would leave them, for tests of what reads them.
#pragma once

#include <filesystem>
#include <string>

#include "eval/passkey_journal.h"
#include "eval/ppl_journal.h"
#include "eval/task_record.h"

namespace longheads {

// A folder that goes with the object.
class ResultFolder {
 public:
  ResultFolder();
  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  std::string path() const { return path_; }
  void Append(const std::string& file, const std::string& line, bool finished = true) const;

 private:
  std::filesystem::path path_;
};

PasskeyRecord MakePasskey(const std::string& attention, int64_t length, double depth, bool correct,
                          int64_t repeat = 0);
PplRecord MakePpl(const std::string& attention, int64_t length, int64_t offset, double mean_nll);
TaskRecord MakeTask(const std::string& attention, const std::string& id, Json cell, double score,
                    const std::string& document = "");

}  // namespace longheads
