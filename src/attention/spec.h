// The grammar of --attn: SPEC = [frequencies[:option=value]*+]policy[,option=value]*; a bare frequency name
// means that with full attention. Lists separate specs by ';', or by a comma before a word without '='.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longheads {

struct SpecOption {
  std::string name;
  std::string value;
};

struct AttentionSpec {
  std::string frequencies;  // "none" where the text names none
  std::vector<SpecOption> frequency_options;
  std::string policy;
  std::vector<SpecOption> policy_options;
};

// Checks the grammar and the method names; what options mean is checked where the method is made.
Result<AttentionSpec> ParseSpec(std::string_view text);

// The specs of a list, as text: "full,longheads,chunk=128;auto" is {"full", "longheads,chunk=128", "auto"}.
std::vector<std::string> SplitSpecs(std::string_view list);

// ": did you mean 'X'?", X the nearest of `known` to a mistyped name, for messages; "." if none is near.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& known);

}  // namespace longheads
