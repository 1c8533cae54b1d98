#include "attention/method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"

namespace longheads {

OptionReader::OptionReader(const MethodInfo& method, const std::vector<SpecOption>& options)
    : method_(method), options_(options) {
  std::vector<std::string> names;
  for (const OptionInfo& info : method.options) names.push_back(info.name);
  for (const SpecOption& option : options) {
    if (std::find(names.begin(), names.end(), option.name) != names.end()) continue;
    error_ = Error{ErrorKind::kInvalidInput,
                   names.empty()
                       ? fmt::format("{} has no option '{}': it takes none", method.name, option.name)
                       : fmt::format("{} has no option '{}': did you mean '{}'? It takes {}", method.name,
                                     option.name, NearestName(option.name, names), fmt::join(names, ", "))};
    return;
  }
}

const SpecOption* OptionReader::Find(std::string_view name) const {
  for (const SpecOption& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

void OptionReader::Tokens(std::string_view name, int64_t& value, int64_t least) {
  const SpecOption* const option = Find(name);
  if (option == nullptr) return;
  const Result<int64_t> count = ParseCount(option->value);
  if (!count) {
    Fail(fmt::format("{}: {}", name, count.error().message));
  } else if (*count < least) {
    Fail(fmt::format("{} must be at least {}", name, least));
  } else {
    value = *count;
  }
}

void OptionReader::Number(std::string_view name, double& value, double least, double most) {
  const SpecOption* const option = Find(name);
  if (option == nullptr) return;
  const std::string& text = option->value;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= least && number <= most)) {
    Fail(fmt::format("{} is '{}', but must be a number from {} to {}", name, text, least, most));
  } else {
    value = number;
  }
}

void OptionReader::OnOff(std::string_view name, bool& value) {
  Choice<bool>(name, {{"on", true}, {"off", false}}, value);
}

void OptionReader::FailChoice(std::string_view name, const std::string& value,
                              const std::vector<std::string>& names) {
  Fail(fmt::format("{} is '{}', but must be {}", name, value, fmt::join(names, " or ")));
}

void OptionReader::Fail(std::string message) {
  if (!error_) error_ = Error{ErrorKind::kInvalidInput, fmt::format("--attn {}: {}", method_.name, message)};
}

Status OptionReader::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

}  // namespace longheads
