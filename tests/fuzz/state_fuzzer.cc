// Any bytes as the saves of a layer's policy state: refused with a sentence, or what is restored goes on,
// goes back and is saved again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/state_cases.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longheads;
  if (size == 0) return 0;
  const StateCase& one = StateCases()[data[0] % StateCases().size()];
  std::vector<SavedState> saves;
  std::vector<std::byte> latest;
  std::span<const std::byte> rest = std::as_bytes(std::span(data, size)).subspan(1);
  for (bool first = true; rest.size() >= 2; first = false) {
    const std::size_t length = static_cast<std::size_t>(rest[0]) + (static_cast<std::size_t>(rest[1]) << 8);
    const auto part = rest.subspan(2, std::min(length, rest.size() - 2));
    rest = rest.subspan(2 + part.size());
    if (first) {
      latest.assign(part.begin(), part.end());
    } else {
      saves.push_back({.added = {part.begin(), part.end()}, .latest = {}});
    }
  }
  if (saves.empty()) return 0;
  saves.back().latest = latest;
  auto restored = one.layer.Restored(saves);
  if (!restored) {
    LH_CHECK(restored.error().message.starts_with("the saved state of the attention method does not fit: "));
    return 0;
  }
  const SavedState whole = restored->Save(0);
  const auto again = one.layer.Restored(std::span(&whole, 1));
  LH_CHECK(again.has_value() && again->Save(0) == whole);
  OneLayer fork = restored->Fork();
  fork.Truncate(fork.RewindPoint(fork.size() / 2));
  fork.Prefill(StateInputs(), kStateTokens - fork.size());
  restored->Decode(StateInputs());
  restored->Truncate(restored->RewindPoint(restored->size() - 1));
  restored->Prefill(StateInputs(), StateInputs().n - restored->size());
  return 0;
}
