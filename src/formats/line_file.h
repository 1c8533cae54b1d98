// A text file of many lines, such as JSONL, that is gone through once and then read line by line, in any
// order. In memory are the places of its lines; of a zipped file, the bytes too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longheads {

class LineFile {
 public:
  static Result<LineFile> Open(const std::string& path);
  static Result<LineFile> OpenZipped(const std::string& archive, const std::string& name);

  // Lines that are not blank.
  int64_t n_lines() const { return static_cast<int64_t>(lines_.size()); }
  // Without its end.
  Result<std::string> Line(int64_t i) const;
  // "FILE, line 12" as an editor counts it.
  std::string PlaceOf(int64_t i) const;
  const std::string& name() const { return name_; }

 private:
  struct Range {
    uint64_t begin;
    uint64_t n_bytes;
    int64_t number;  // from 1, blank ones counted
  };

  explicit LineFile(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::string bytes_;  // of a zipped file
  bool zipped_ = false;
  std::vector<Range> lines_;
};

}  // namespace longheads
