// The options of a task, documented once: the command's options, --help and a suite's keys come from the same
// lines. Reading them is here too; what they mean is the task's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longheads {

inline constexpr int64_t kLongestText = 16 << 20;  // tokens; beyond, the text alone fills memory

struct TaskOption {
  std::string name;      // "depths": --depths of the command, a key of a suite
  std::string type;      // "N", "FILE", "plain|chat"; a list's shows what stands between: "N,N,..."
  std::string standard;  // as typed where it is not given
  std::string meaning;
};

// What stands between the values of an option that takes several, by its type: ',' of "N,N,..."; 0 where it
// takes one.
char ListSeparator(const TaskOption& option);

// Reads options by name; values are as typed. The first thing wrong is remembered and comes out of status();
// options that the task does not have are wrong from the start.
class TaskOptions {
 public:
  using Values = std::map<std::string, std::string>;
  TaskOptions(std::span<const TaskOption> known, Values given);

  std::string Text(const std::string& name);
  int64_t Count(const std::string& name, int64_t least, int64_t most);                // "16", "4k"
  std::vector<int64_t> Counts(const std::string& name, int64_t least, int64_t most);  // "1k,2k": each once
  double Number(const std::string& name, double least, double most);
  std::vector<std::string> List(const std::string& name, char separator = ',');  // "a,b": each once
  // One of the option's type's alternatives: "plain|chat".
  std::string Choice(const std::string& name);
  bool OnOff(const std::string& name) { return Choice(name) == "on"; }
  bool given(const std::string& name) const { return given_.contains(name); }

  void Fail(const std::string& name, const std::string& what);  // "--name" + what
  Status status() const;

 private:
  const TaskOption& Find(const std::string& name) const;

  std::span<const TaskOption> known_;
  Values given_;
  std::optional<Error> error_;
};

}  // namespace longheads
