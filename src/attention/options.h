// The options of a method, documented once: what --attn accepts, what `longheads methods` prints and what the
// page of the method holds come from the same lines. Reading them is here too; what they mean is the
// method's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/spec.h"
#include "base/result.h"

namespace longheads {

struct OptionInfo {
  std::string name;
  std::string type;           // "tokens", "head|kv", ...
  std::string default_value;  // as the user reads it
  std::string range;
  std::string meaning;
};

struct MethodInfo {
  std::string name;
  std::string summary;  // one sentence
  std::string source;   // paper
  std::vector<OptionInfo> options;
  std::string page = {};  // in docs/methods; empty: NAME.md
};

std::string PageOf(const MethodInfo& method);

// The options as a Markdown table, each line with its end; one sentence where there are none.
std::string OptionTable(const MethodInfo& method);

// Reads options by name. The first thing wrong is remembered and comes out of status(); options that the
// method does not have are wrong from the start.
class OptionReader {
 public:
  // Both must outlive the reader.
  OptionReader(const MethodInfo& method, const std::vector<SpecOption>& options);

  // Each leaves `value` as it is where the option is not given.
  void Tokens(std::string_view name, int64_t& value, int64_t least = 1);  // "4096", "4k"
  void Number(std::string_view name, double& value);
  void Number(std::string_view name, std::optional<double>& value);
  void OnOff(std::string_view name, bool& value);
  template <typename T>
  void Choice(std::string_view name, const std::vector<std::pair<std::string, T>>& choices, T& value) {
    const SpecOption* const option = Find(name);
    if (option == nullptr) return;
    std::vector<std::string> names;
    for (const auto& [text, meaning] : choices) {
      names.push_back(text);
      if (text == option->value) {
        value = meaning;
        return;
      }
    }
    FailChoice(*option, names);
  }

  bool has(std::string_view name) const { return Find(name) != nullptr; }
  // Null where it is not given.
  const SpecOption* Find(std::string_view name) const;
  void Fail(std::string message);
  Status status() const;

  // What is made of these options depends on how long the text will be (AttentionModel::text_tokens).
  void FollowLength() { follows_length_ = true; }
  bool follows_length() const { return follows_length_; }

 private:
  void FailChoice(const SpecOption& option, const std::vector<std::string>& names);

  const MethodInfo& method_;
  const std::vector<SpecOption>& options_;
  std::optional<Error> error_;
  bool follows_length_ = false;
};

}  // namespace longheads
