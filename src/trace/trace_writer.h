// Writes a trace file (trace.h, docs/trace.md) as its parts become known. The file takes its name once it is
// whole. What goes wrong is kept and said in the end: the work that is traced goes on.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/output_file.h"
#include "trace/trace.h"

namespace longheads {

class TraceWriter {
 public:
  static Result<TraceWriter> Create(const std::string& path, const TraceHeader& header);

  // Tokens that follow those that were added before.
  void AddTokens(const TraceTokens& tokens);
  void AddSelection(const TokenSelection& selection);
  void AddCounts(const PromptCounts& counts);

  uint64_t bytes() const { return bytes_; }  // written so far
  // Ends the file: how writing it went.
  Status Finish();

 private:
  explicit TraceWriter(OutputFile file) : file_(std::move(file)) {}
  void Record(char kind, std::string_view payload);
  void Write(std::string_view bytes);

  OutputFile file_;
  Status status_;
  uint64_t bytes_ = 0;
  int64_t n_records_ = 0;
  std::string payload_;  // used again
};

}  // namespace longheads
