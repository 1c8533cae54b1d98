#include "attention/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.h"

namespace longheads {
namespace {

std::string Values(const OptionInfo& option) {
  if (option.type.find('|') == std::string::npos) {
    return option.range.empty() ? option.type : fmt::format("{}: {}", option.type, option.range);
  }
  // A choice: '|' would end the table's cell.
  std::string text;
  std::string_view rest = option.type;
  for (;;) {
    const std::size_t bar = rest.find('|');
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", rest.substr(0, bar));
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  return option.range.empty() ? text : fmt::format("{}: {}", text, option.range);
}

}  // namespace

std::string PageOf(const MethodInfo& method) {
  return method.page.empty() ? method.name + ".md" : method.page;
}

std::string OptionTable(const MethodInfo& method) {
  if (method.options.empty()) return fmt::format("`{}` takes no options.\n", method.name);
  std::string table = "| option | default | values | meaning |\n|---|---|---|---|\n";
  for (const OptionInfo& option : method.options) {
    table += fmt::format("| `{}` | {} | {} | {} |\n", option.name, option.default_value, Values(option),
                         option.meaning);
  }
  return table;
}

OptionReader::OptionReader(const MethodInfo& method, const std::vector<SpecOption>& options)
    : method_(method), options_(options) {
  std::vector<std::string> names;
  for (const OptionInfo& info : method.options) names.push_back(info.name);
  for (const SpecOption& option : options) {
    if (error_ || std::find(names.begin(), names.end(), option.name) != names.end()) continue;
    error_ =
        Error{ErrorKind::kInvalidInput,
              names.empty() ? fmt::format("{} has no option '{}': it takes none", method.name, option.name)
                            : fmt::format("{} has no option '{}'{} It takes {}", method.name, option.name,
                                          DidYouMean(option.name, names), fmt::join(names, ", "))};
  }
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

void OptionReader::Number(std::string_view name, double& value) {
  std::optional<double> number;
  Number(name, number);
  if (number) value = *number;
}

void OptionReader::Number(std::string_view name, std::optional<double>& value) {
  const SpecOption* const option = Find(name);
  if (option == nullptr) return;
  const std::string& text = option->value;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    Fail(fmt::format("{} is '{}', but must be a number", name, text));
  } else {
    value = number;
  }
}

void OptionReader::OnOff(std::string_view name, bool& value) {
  Choice<bool>(name, {{"on", true}, {"off", false}}, value);
}

const SpecOption* OptionReader::Find(std::string_view name) const {
  for (const SpecOption& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

void OptionReader::Fail(std::string message) {
  if (!error_) {
    error_ = Error{ErrorKind::kInvalidInput, fmt::format("--attn {}: {}", method_.name, message)};
  }
}

void OptionReader::FailChoice(const SpecOption& option, const std::vector<std::string>& names) {
  Fail(fmt::format("{} is '{}', but must be {}", option.name, option.value, fmt::join(names, " or ")));
}

Status OptionReader::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

}  // namespace longheads
