#include "attention/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/esa.h"
#include "attention/frequency_registry.h"
#include "attention/full.h"
#include "attention/infllm.h"
#include "attention/landmark.h"
#include "attention/lm_infinite.h"
#include "attention/longheads.h"
#include "attention/moba.h"
#include "attention/quest.h"
#include "attention/rerope.h"
#include "attention/self_extend.h"
#include "attention/streaming_llm.h"

namespace longheads {
namespace {

const std::vector<Method>& All() {
  // clang-format off
  static const std::vector<Method> methods = {
      AutoMethod(),
      EsaMethod(),
      FullMethod(),
      InfLlmMethod(),
      LandmarkMethod(),
      LeakyReRopeMethod(),
      LmInfiniteMethod(),
      LongHeadsMethod(),
      MobaMethod(),
      QuestMethod(),
      ReRopeMethod(),
      SelfExtendMethod(),
      StreamingLlmMethod(),
  };
  // clang-format on
  return methods;
}

std::string InWords(const std::vector<SpecOption>& options) {
  std::string words;
  for (const SpecOption& option : options) {
    words += fmt::format("{}{}={}", words.empty() ? "" : ", ", option.name, option.value);
  }
  return words;
}

std::string WithEveryOption(const std::string& name, const MethodInfo* info,
                            const std::vector<SpecOption>& given, char separator) {
  std::string text = name;
  if (info == nullptr) return text;  // frequencies "none"
  for (const OptionInfo& option : info->options) {
    const auto named = std::find_if(given.begin(), given.end(),
                                    [&option](const SpecOption& o) { return o.name == option.name; });
    text += fmt::format("{}{}={}", separator, option.name,
                        named == given.end() ? option.default_value : named->value);
  }
  return text;
}

}  // namespace

Result<std::string> FullSpec(std::string_view text) {
  LH_ASSIGN(const AttentionSpec spec, ParseSpec(text));
  return fmt::format(
      "{}+{}",
      WithEveryOption(spec.frequencies, FindFrequencyMethod(spec.frequencies), spec.frequency_options, ':'),
      WithEveryOption(spec.policy, FindMethod(spec.policy), spec.policy_options, ','));
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Method& method : All()) names.push_back(method.info.name);
  return names;
}

const std::vector<MethodInfo>& Methods() {
  static const std::vector<MethodInfo> infos = [] {
    std::vector<MethodInfo> all;
    for (const Method& method : All()) all.push_back(method.info);
    return all;
  }();
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
  LH_ASSIGN(const ChosenFrequencies chosen, MakeFrequencies(spec.frequencies, spec.frequency_options, model));
  AttentionModel with_frequencies = model;
  with_frequencies.window = chosen.window;
  for (const Method& method : All()) {
    if (method.info.name != spec.policy) continue;
    OptionReader reader(method.info, spec.policy_options);
    LH_TRY(reader.status());
    LH_ASSIGN(const LayerPolicies policies, method.create(reader, with_frequencies));
    std::vector<LayerAttention> layers;
    const bool follows_length = chosen.follows_length || reader.follows_length();
    for (const auto& policy : policies) {
      if (chosen.following.turns_keys && policy->ReadsKeys()) {
        return InvalidInput(fmt::format(
            "{} looks at stored keys itself, so they cannot be turned to newer frequencies under it: use "
            "{}:mode=freeze, or a method that reads every key it sees",
            spec.policy, spec.frequencies));
      }
      if (chosen.following.at && !chosen.following.turns_keys && policy->NearTokens() > 0) {
        return InvalidInput(
            fmt::format("{} turns the keys near a token anew, so they cannot keep the frequencies that they "
                        "came under: use "
                        "{}:mode=freeze{}",
                        spec.policy, spec.frequencies, policy->ReadsKeys() ? "" : " or mode=exact"));
      }
      layers.push_back({.policy = policy,
                        .frequencies = chosen.frequencies,
                        .explain_frequencies = chosen.explain,
                        .follows_length = follows_length,
                        .following = chosen.following,
                        .options = InWords(spec.policy_options),
                        .window = chosen.window,
                        .picked_by_auto = spec.policy == "auto" && spec.policy_options.empty()});
    }
    return layers;
  }
  return InvalidInput(fmt::format("unknown attention method '{}'", spec.policy));
}

}  // namespace longheads
