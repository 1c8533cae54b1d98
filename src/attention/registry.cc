#include "attention/registry.h"

#include <fmt/format.h>

#include "attention/full.h"
#include "attention/infllm.h"
#include "attention/lm_infinite.h"
#include "attention/longheads.h"

namespace longheads {
namespace {

const std::vector<Method>& All() {
  static const std::vector<Method> methods = {
      AutoMethod(),
      FullMethod(),
      InfLlmMethod(),
      LmInfiniteMethod(),
      LongHeadsMethod(),
  };
  return methods;
}

}  // namespace

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Method& method : All()) names.push_back(method.info.name);
  return names;
}

std::vector<std::string> FrequencyNames() { return {"none"}; }

std::vector<MethodInfo> Methods() {
  std::vector<MethodInfo> infos;
  for (const Method& method : All()) infos.push_back(method.info);
  return infos;
}

const MethodInfo* FindMethod(std::string_view name) {
  for (const Method& method : All()) {
    if (method.info.name == name) return &method.info;
  }
  return nullptr;
}

Result<std::vector<LayerAttention>> MakeAttention(std::string_view text, const AttentionModel& model) {
  LH_ASSIGN(const AttentionSpec spec, ParseSpec(text));
  if (!spec.frequency_options.empty()) {
    return InvalidInput(fmt::format("--attn {}: the frequencies 'none' take no option", text));
  }
  for (const Method& method : All()) {
    if (method.info.name != spec.policy) continue;
    OptionReader reader(method.info, spec.policy_options);
    LH_TRY(reader.status());
    LH_ASSIGN(const LayerPolicies policies, method.create(reader, model));
    std::vector<LayerAttention> layers;
    for (const auto& policy : policies) layers.push_back({policy, model.trained});
    return layers;
  }
  return InvalidInput(fmt::format("unknown attention method '{}'", spec.policy));
}

}  // namespace longheads
