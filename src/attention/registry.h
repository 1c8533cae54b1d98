// Every attention method by name: one line each, with typed, documented options. What --attn takes, what
// `longheads methods` prints.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/policy.h"
#include "attention/spec.h"
#include "rope/frequencies.h"

namespace longheads {

// What a method needs to know of a model.
struct AttentionModel {
  HeadShape shape;
  int64_t trained_window = 0;
  PairLayout layout = PairLayout::kInterleaved;
  Frequencies trained;
};

// How one layer attends. Layers may differ; today every method gives all layers the same.
struct LayerAttention {
  std::shared_ptr<const Policy> policy;
  Frequencies frequencies;
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

std::vector<std::string> PolicyNames();
std::vector<std::string> FrequencyNames();
// Null where there is none of that name.
const MethodInfo* FindMethod(std::string_view name);
const std::vector<MethodInfo>& Methods();

// The attention of every layer under a spec ("auto", "longheads,chunk=128"). Refuses what cannot apply to the
// model, before any work: the message says which option and what it may be.
Result<std::vector<LayerAttention>> MakeAttention(std::string_view spec, const AttentionModel& model,
                                                  int64_t n_layers);

}  // namespace longheads
