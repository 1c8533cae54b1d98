// Weights of every type for tests: any bytes, with scales that stay finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tensor/dtype.h"

namespace longheads {

// Where a block holds its float16 scales (and minima).
inline std::vector<int> ScaleOffsets(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

inline std::vector<std::byte> RandomBytes(std::mt19937& random, uint64_t n) {
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 255);
  return bytes;
}

inline void SetHalf(std::byte* p, unsigned bits) {
  p[0] = static_cast<std::byte>(bits & 255);
  p[1] = static_cast<std::byte>(bits >> 8);
}

// n elements of `type`: any bytes, with scales and float values of magnitude 2^-9 .. 2^0, of both signs.
inline std::vector<std::byte> RandomWeights(std::mt19937& random, DType type, int64_t n) {
  std::vector<std::byte> bytes = RandomBytes(random, *BytesOf(type, n));
  const auto half = [&] { return static_cast<unsigned>((random() & 0x83FF) | (6 + random() % 9) << 10); };
  if (type == DType::kF32 || type == DType::kBF16) {
    const size_t size = static_cast<size_t>(Info(type).block_bytes);
    for (size_t i = 0; i < bytes.size(); i += size) {
      SetHalf(&bytes[i + size - 2], static_cast<unsigned>((random() & 0x807F) | (118 + random() % 9) << 7));
    }
  } else if (type == DType::kF16) {
    for (size_t i = 0; i < bytes.size(); i += 2) SetHalf(&bytes[i], half());
  } else {
    for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(Info(type).block_bytes)) {
      for (int offset : ScaleOffsets(type)) SetHalf(&bytes[block + static_cast<size_t>(offset)], half());
    }
  }
  return bytes;
}

}  // namespace longheads
