// Every attention method by name, one line each: what --attn takes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/method.h"

namespace longheads {

// How one layer attends.
struct LayerAttention {
  std::shared_ptr<const Policy> policy;
  Frequencies frequencies;
  std::string explain_frequencies = {};  // one line; empty for the model's own
  bool follows_length = false;           // made for a text of AttentionModel::text_tokens
  FollowingFrequencies following = {};
  std::string options = {};     // of the method, as they were given: "chunk=128, choose=random"
  int64_t window = 0;           // tokens that full attention reads with the frequencies
  bool picked_by_auto = false;  // without options
};

std::vector<std::string> PolicyNames();
std::vector<std::string> FrequencyNames();
// Null where there is none of that name.
const MethodInfo* FindMethod(std::string_view name);
const std::vector<MethodInfo>& Methods();

// The spec with every option of its method and frequencies, those that it does not name by their defaults as
// the documentation has them: what a later program must agree with to mean the same. Refuses what ParseSpec
// refuses.
Result<std::string> FullSpec(std::string_view spec);

// The attention of every layer under a spec ("auto", "longheads,chunk=128"). Refuses what cannot apply to the
// model, before any work: the message says which option and what it may be.
Result<std::vector<LayerAttention>> MakeAttention(std::string_view spec, const AttentionModel& model);

}  // namespace longheads
