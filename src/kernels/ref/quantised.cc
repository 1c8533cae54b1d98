// Scalar de-quantisation, block by block as GGUF lays the types out, and a matrix-vector product on top of
// it.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/block_formats.h"
#include "kernels/quantised_tables.h"

namespace longheads {
namespace {

constexpr int kLargestBlock = 256;

// The 32 values of one part of a block.
template <typename Value>
void Part(DType type, const std::byte* b, int part, float* dst, const Value& value) {
  uint8_t q[32];
  BlockIntegers(type, b, part, q);
  for (int i = 0; i < 32; ++i) dst[32 * part + i] = value(i, q[i]);
}

// Blocks of 32: scale * (q - bias).
template <DType kType, int kBias>
void Centred(const std::byte* b, float* dst) {
  const float d = HalfAt(b);
  Part(kType, b, 0, dst, [d](int, int q) { return d * static_cast<float>(q - kBias); });
}

// Blocks of 32: scale * q + min.
template <DType kType>
void WithMin(const std::byte* b, float* dst) {
  const float d = HalfAt(b), m = HalfAt(b + 2);
  Part(kType, b, 0, dst, [d, m](int, int q) { return d * static_cast<float>(q) + m; });
}

void Q8_0(const std::byte* b, float* dst) {
  const float d = HalfAt(b);
  Part(DType::kQ8_0, b, 0, dst, [d](int, int q) { return d * static_cast<float>(static_cast<int8_t>(q)); });
}

// Blocks of 256 with 6-bit scales and minima.
template <DType kType>
void WithScaledMin(const std::byte* b, float* dst) {
  const float d = HalfAt(b), dmin = HalfAt(b + 2);
  for (int j = 0; j < 8; ++j) {
    const SubBlockScale sub = SubBlockScaleOf(b + 4, j);
    const float scale = d * static_cast<float>(sub.scale), min = dmin * static_cast<float>(sub.min);
    Part(kType, b, j, dst, [scale, min](int, int q) { return scale * static_cast<float>(q) - min; });
  }
}

void Q6_K(const std::byte* b, float* dst) {
  const float d = HalfAt(b + 208);
  for (int j = 0; j < 8; ++j) {
    Part(DType::kQ6_K, b, j, dst, [d, scales = b + 192 + 2 * j](int i, int q) {
      return d * static_cast<float>(static_cast<int8_t>(scales[i / 16])) * static_cast<float>(q - 32);
    });
  }
}

void F32(const std::byte* b, float* dst) { std::memcpy(dst, b, sizeof *dst); }
void F16(const std::byte* b, float* dst) { *dst = HalfAt(b); }
void BF16(const std::byte* b, float* dst) {
  uint16_t bits;
  std::memcpy(&bits, b, sizeof bits);
  *dst = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void Dequantize(DType type, const std::byte* src, int64_t n, float* dst) {
  using Block = void (*)(const std::byte* block, float* values);
  static constexpr Block kBlocks[kDTypes] = {F32,
                                             F16,
                                             BF16,
                                             Centred<DType::kQ4_0, 8>,
                                             WithMin<DType::kQ4_1>,
                                             Centred<DType::kQ5_0, 16>,
                                             WithMin<DType::kQ5_1>,
                                             Q8_0,
                                             WithScaledMin<DType::kQ4_K>,
                                             WithScaledMin<DType::kQ5_K>,
                                             Q6_K};
  const DTypeInfo& info = Info(type);
  LH_CHECK(n >= 0 && n % info.block == 0);
  for (int64_t i = 0; i < n; i += info.block, src += info.block_bytes) {
    kBlocks[static_cast<int>(type)](src, dst + i);
  }
}

void Gemv(DType type, const std::byte* w, int64_t row_begin, int64_t row_end, int64_t k, const float* x,
          float* y) {
  const DTypeInfo& info = Info(type);
  LH_CHECK(k >= 0 && k % info.block == 0);
  const std::byte* src = w + row_begin * (k / info.block) * info.block_bytes;
  for (int64_t row = row_begin; row < row_end; ++row) {
    float sum = 0;
    for (int64_t begin = 0; begin < k; begin += kLargestBlock) {
      float values[kLargestBlock];
      const int64_t n = std::min<int64_t>(kLargestBlock, k - begin);
      Dequantize(type, src, n, values);
      for (int64_t i = 0; i < n; ++i) sum += values[i] * x[begin + i];
      src += n / info.block * info.block_bytes;
    }
    y[row - row_begin] = sum;
  }
}

}  // namespace

const QuantisedKernels kQuantisedRef = {.dequantize = Dequantize, .gemv = Gemv};

}  // namespace longheads
