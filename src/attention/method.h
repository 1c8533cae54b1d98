// How an attention method presents itself to the registry: its name and words, its options with their types
// and defaults, and how its policies are made for a model. The same text is what `longheads methods` prints.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/esa_projections.h"
#include "attention/policy.h"
#include "attention/spec.h"
#include "base/result.h"
#include "rope/frequencies.h"

namespace longheads {

// What a method needs to know of a model.
struct AttentionModel {
  HeadShape shape;
  int64_t n_layers = 1;
  int64_t trained_window = 0;
  PairLayout layout = PairLayout::kInterleaved;
  Frequencies trained;
  // ESA's compression for queries rotated by `distance`; an error says how to get it. Empty: there is none.
  std::function<Result<std::shared_ptr<const EsaProjections>>(int64_t distance)> esa_projections = {};
};

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
};

// Reads a spec's options by name. The first mistake is kept, whatever is read after it.
class OptionReader {
 public:
  // Refuses options that the method does not have.
  OptionReader(const MethodInfo& method, const std::vector<SpecOption>& options);

  bool has(std::string_view name) const { return Find(name) != nullptr; }
  // Null where the spec does not name it.
  const SpecOption* Find(std::string_view name) const;

  // Each leaves `value` as it is where the spec does not name the option.
  void Tokens(std::string_view name, int64_t& value, int64_t least = 1);  // "4096", "4k"
  void Number(std::string_view name, double& value, double least, double most);
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
    FailChoice(name, option->value, names);
  }

  // "--attn METHOD: message".
  void Fail(std::string message);
  Status status() const;

 private:
  void FailChoice(std::string_view name, const std::string& value, const std::vector<std::string>& names);

  const MethodInfo& method_;
  const std::vector<SpecOption>& options_;
  std::optional<Error> error_;
};

// One policy for each layer; layers may share.
using LayerPolicies = std::vector<std::shared_ptr<const Policy>>;

struct Method {
  MethodInfo info;
  // Refuses what cannot apply to the model, before any work: the message says which option and what it may
  // be.
  Result<LayerPolicies> (*create)(OptionReader& reader, const AttentionModel& model);
};

inline LayerPolicies SameInEveryLayer(const AttentionModel& model, std::shared_ptr<const Policy> policy) {
  return LayerPolicies(static_cast<std::size_t>(model.n_layers), std::move(policy));
}

}  // namespace longheads
