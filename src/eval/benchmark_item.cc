#include "eval/benchmark_item.h"

#include <fmt/format.h>

namespace longheads {

const nlohmann::ordered_json& LineReader::Value(const char* name) {
  static const nlohmann::ordered_json nothing;
  if (Has(name)) return line_.at(name);
  Fail(fmt::format("has no \"{}\"", name));
  return nothing;
}

std::string LineReader::Text(const char* name) {
  const nlohmann::ordered_json& value = Value(name);
  if (value.is_string()) return value.get<std::string>();
  Fail(fmt::format("\"{}\" is no string", name));
  return {};
}

std::vector<std::string> LineReader::Texts(const char* name) {
  const nlohmann::ordered_json& values = Value(name);
  std::vector<std::string> texts;
  for (const auto& value : values) {
    if (values.is_array() && value.is_string()) texts.push_back(value.get<std::string>());
  }
  if (!values.is_array() || texts.size() != values.size())
    Fail(fmt::format("\"{}\" is no list of strings", name));
  return texts;
}

void LineReader::Fail(const std::string& what) {
  if (problem_.empty()) problem_ = what;
}

Status LineReader::status() const {
  if (!problem_.empty()) return InvalidInput(problem_);
  return {};
}

}  // namespace longheads
