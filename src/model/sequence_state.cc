#include "model/sequence_state.h"

#include <algorithm>

namespace longheads {

SequenceState SequenceState::Fork() const {
  SequenceState fork{.kv = kv.Fork(), .policies = {}};
  for (const auto& policy : policies) fork.policies.push_back(policy->Fork());
  return fork;
}

int64_t SequenceState::RewindPoint(int64_t n) const {
  int64_t point = n;
  for (const auto& policy : policies) point = std::min(point, policy->RewindPoint(n));
  return point;
}

void SequenceState::Truncate(int64_t m) {
  for (const auto& policy : policies) policy->Truncate(m);
  kv.Truncate(m);
}

}  // namespace longheads
