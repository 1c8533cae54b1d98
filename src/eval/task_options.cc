#include "eval/task_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/bytes.h"
#include "base/check.h"
#include "eval/experiment.h"

namespace longheads {
namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

}  // namespace

char ListSeparator(const TaskOption& option) {
  constexpr std::string_view kMore = "...";
  const std::string& type = option.type;
  return type.size() > kMore.size() && type.ends_with(kMore) ? type[type.size() - kMore.size() - 1] : '\0';
}

TaskOptions::TaskOptions(std::span<const TaskOption> known, Values given)
    : known_(known), given_(std::move(given)) {
  for (const auto& [name, value] : given_) {
    if (std::ranges::find(known, name, &TaskOption::name) != known.end()) continue;
    std::vector<std::string> names;
    for (const TaskOption& option : known) names.push_back(option.name);
    Fail(name, fmt::format(" is none of its options, which are {}", fmt::join(names, ", ")));
  }
}

const TaskOption& TaskOptions::Find(const std::string& name) const {
  const auto option = std::ranges::find(known_, name, &TaskOption::name);
  LH_CHECK(option != known_.end());
  return *option;
}

std::string TaskOptions::Text(const std::string& name) {
  const auto given = given_.find(name);
  return given != given_.end() ? given->second : Find(name).standard;
}

std::vector<int64_t> TaskOptions::Counts(const std::string& name, int64_t least, int64_t most) {
  std::vector<int64_t> counts;
  for (const std::string& part : Split(Text(name), ',')) {
    const Result<int64_t> count = ParseCount(part);
    if (!count) {
      Fail(name, ": " + count.error().message);
    } else if (*count < least || *count > most) {
      Fail(name, fmt::format(" has {}, but must be {} to {}", *count, least, most));
    } else {
      counts.push_back(*count);
    }
  }
  if (counts.empty()) Fail(name, " is empty");
  DropRepeats(counts);
  return counts;
}

int64_t TaskOptions::Count(const std::string& name, int64_t least, int64_t most) {
  const std::vector<int64_t> counts = Counts(name, least, most);
  if (counts.size() == 1) return counts[0];
  Fail(name, fmt::format(" is '{}', but must be one number", Text(name)));
  return least;
}

double TaskOptions::Number(const std::string& name, double least, double most) {
  const std::string text = Text(name);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) {
    return value;
  }
  Fail(name, fmt::format(" is '{}', but must be a number from {} to {}", text, least, most));
  return least;
}

std::vector<std::string> TaskOptions::List(const std::string& name, char separator) {
  std::vector<std::string> parts = Split(Text(name), separator);
  DropRepeats(parts);
  return parts;
}

std::string TaskOptions::Choice(const std::string& name) {
  const std::string text = Text(name);
  const std::vector<std::string> choices = Split(Find(name).type, '|');
  if (std::ranges::find(choices, text) != choices.end()) return text;
  Fail(name, fmt::format(" is '{}', but must be one of {}", text, fmt::join(choices, ", ")));
  return choices[0];
}

void TaskOptions::Fail(const std::string& name, const std::string& what) {
  if (!error_) error_ = Error{ErrorKind::kInvalidInput, fmt::format("--{}{}", name, what)};
}

Status TaskOptions::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

}  // namespace longheads
