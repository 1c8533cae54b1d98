#include "engine/model_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "engine/word_hash.h"

namespace longheads {

Result<uint64_t> FingerprintModel(const std::string& model_path) {
  constexpr uint64_t kBeginning = 4 << 20, kSample = 64 << 10, kSamples = 16;
  std::ifstream file(model_path, std::ios::binary);
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(model_path, error);
  if (!file || error) return MakeError(ErrorKind::kIo, fmt::format("{}: cannot be read", model_path));
  WordHash hash;
  hash.Add(&size, sizeof size);
  std::vector<char> bytes(std::min(size, kBeginning));
  const auto add = [&](uint64_t at, uint64_t n) {
    file.seekg(static_cast<std::streamoff>(at));
    file.read(bytes.data(), static_cast<std::streamsize>(n));
    hash.Add(bytes.data(), n);
  };
  add(0, bytes.size());
  for (uint64_t i = 1; i <= kSamples && size > kBeginning + kSample; ++i) {
    add(kBeginning + (size - kBeginning - kSample) / kSamples * i, kSample);
  }
  if (!file) return MakeError(ErrorKind::kIo, fmt::format("{}: cannot be read to its end", model_path));
  return hash.value();
}

std::string FingerprintText(uint64_t fingerprint) { return fmt::format("{:016x}", fingerprint); }

}  // namespace longheads
