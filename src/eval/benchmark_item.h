// One question of a benchmark that comes as JSONL: what a line of an official file becomes. The readers of
// single benchmarks are in longbench.h and infinitebench.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/prompt_format.h"

namespace longheads {

struct BenchmarkItem {
  PromptFields fields;  // "context" is the long one
  // What the answer is judged by: "answers", and what else the benchmark's score asks for.
  nlohmann::ordered_json references = nlohmann::ordered_json::object();
  // What reports lay out by, beside the data set.
  nlohmann::ordered_json cell = nlohmann::ordered_json::object();
};

// Reads the members of a line; the first thing that is missing or of another type is remembered.
class LineReader {
 public:
  // Not to outlive `line`.
  explicit LineReader(const nlohmann::ordered_json& line) : line_(line) {}

  std::string Text(const char* name);
  std::vector<std::string> Texts(const char* name);  // of a list
  std::vector<std::string> TextsOrNone(const char* name) {
    return Has(name) ? Texts(name) : std::vector<std::string>();
  }
  bool Has(const char* name) const { return line_.contains(name) && !line_.at(name).is_null(); }
  const nlohmann::ordered_json& Value(const char* name);  // null where it is missing
  void Fail(const std::string& what);
  Status status() const;

 private:
  const nlohmann::ordered_json& line_;
  std::string problem_;
};

}  // namespace longheads
