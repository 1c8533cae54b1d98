#include "engine/model_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/word_hash.h"

namespace longheads {

uint64_t FingerprintModel(std::span<const std::byte> file) {
  constexpr uint64_t kBeginning = 4 << 20, kSample = 64 << 10, kSamples = 16;
  const uint64_t size = file.size();
  WordHash hash;
  hash.Add(&size, sizeof size);
  hash.Add(file.data(), std::min(size, kBeginning));
  for (uint64_t i = 1; i <= kSamples && size > kBeginning + kSample; ++i) {
    hash.Add(file.data() + kBeginning + (size - kBeginning - kSample) / kSamples * i, kSample);
  }
  return hash.value();
}

std::string FingerprintText(uint64_t fingerprint) { return fmt::format("{:016x}", fingerprint); }

}  // namespace longheads
