#include "tensor/dtype.h"

#include "base/bytes.h"

namespace longheads {

const DTypeInfo& Info(DType type) {
  static constexpr DTypeInfo kInfo[kDTypes] = {
      {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q4_0", 32, 18},
      {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},   {"Q8_0", 32, 34},
      {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
  };
  return kInfo[static_cast<int>(type)];
}

std::optional<uint64_t> BytesOf(DType type, int64_t n) {
  const DTypeInfo& info = Info(type);
  if (n < 0 || n % info.block != 0) return std::nullopt;
  return CheckedMul(static_cast<uint64_t>(n / info.block), static_cast<uint64_t>(info.block_bytes));
}

}  // namespace longheads
