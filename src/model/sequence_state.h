// All that one sequence is: keys and values, and every layer's policy state.
#pragma once

#include <memory>
#include <vector>

#include "attention/policy.h"
#include "kv/sequence.h"

namespace longheads {

struct SequenceState {
  KvSequence kv;
  std::vector<std::unique_ptr<PolicyState>> policies;  // one per layer

  int64_t size() const { return kv.size(); }
  SequenceState Fork() const;
  // The most tokens m <= n that Truncate can go back to.
  int64_t RewindPoint(int64_t n) const;
  void Truncate(int64_t m);
};

}  // namespace longheads
