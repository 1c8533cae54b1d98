#include "model/sequence_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace longheads {

SequenceState SequenceState::Fork() const {
  SequenceState fork{.kv = kv.Fork(),
                     .policies = {},
                     .near = {},
                     .reserved = reserved.Fork(),
                     .reserved_own = reserved_own.Fresh(),
                     .unchanged = unchanged};
  for (const auto& policy : policies) fork.policies.push_back(policy->Fork());
  for (const auto& keys : near) fork.near.push_back(keys ? keys->Fresh() : nullptr);
  return fork;
}

uint64_t SequenceState::NearBytes() const {
  uint64_t bytes = 0;
  for (const auto& keys : near) bytes += keys ? keys->Bytes() : 0;
  return bytes;
}

int64_t SequenceState::RewindPoint(int64_t n) const {
  int64_t point = n;
  for (const auto& policy : policies) point = std::min(point, policy->RewindPoint(n));
  return point;
}

void SequenceState::Truncate(int64_t m) {
  for (const auto& policy : policies) policy->Truncate(m);
  kv.Truncate(m);
  unchanged = std::min(unchanged, m);
}

SavedState SequenceState::SaveState(int64_t layer, int64_t from) const {
  return longheads::SaveState(*policies[static_cast<std::size_t>(layer)], from, size());
}

Status SequenceState::RestoreState(int64_t layer, std::span<const std::span<const std::byte>> added,
                                   std::span<const std::byte> latest, int64_t n) {
  std::unique_ptr<PolicyState>& state = policies[static_cast<std::size_t>(layer)];
  auto restored = longheads::RestoreState(*state, added, latest, n);
  if (!restored)
    return MakeError(restored.error().kind, fmt::format("layer {}: {}", layer, restored.error().message));
  state = std::move(*restored);
  return {};
}

}  // namespace longheads
