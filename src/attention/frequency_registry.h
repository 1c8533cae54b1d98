// Every frequency schedule by name, with typed, documented options: the left half of a spec, as in
// "yarn:factor=4+full". The formulas are rope/'s.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/options.h"
#include "attention/registry.h"
#include "rope/frequencies.h"

namespace longheads {

const std::vector<MethodInfo>& FrequencyMethods();
// Null where there is none of that name.
const MethodInfo* FindFrequencyMethod(std::string_view name);

struct ChosenFrequencies {
  Frequencies frequencies;
  int64_t window = 0;           // tokens that full attention reads with them
  std::string explain;          // one line for the user; empty for the model's own
  bool follows_length = false;  // made for a text of AttentionModel::text_tokens
  FollowingFrequencies following = {};
};

// The frequencies of a schedule on this model. Refuses what cannot apply to it.
Result<ChosenFrequencies> MakeFrequencies(std::string_view name, const std::vector<SpecOption>& options,
                                          const AttentionModel& model);

}  // namespace longheads
