// Element types of tensors as files store them: names, block sizes, bytes of a row. No arithmetic on
// elements.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace longheads {

// The values are ours; formats/ maps each file format's numbers to them.
enum class DType : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };
inline constexpr int kDTypes = 11;

struct DTypeInfo {
  std::string_view name;  // as GGUF tools write it: "Q4_K"
  int32_t block;          // elements that share one block
  int32_t block_bytes;    // bytes of one block
};

const DTypeInfo& Info(DType type);

// Bytes of n contiguous elements; nothing where n is no multiple of the block, negative, or the size
// overflows.
std::optional<uint64_t> BytesOf(DType type, int64_t n);

// bfloat16: the upper half of a float32.
struct BFloat16 {
  uint16_t bits;
};

}  // namespace longheads
