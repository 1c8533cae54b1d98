// Weights as files store them: de-quantisation, and matrix-vector products that read the blocks directly.
// Block formats: GGUF (ggml) F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/implementation.h"
#include "tensor/dtype.h"

namespace longheads {

struct QuantisedKernels {
  // dst[n] = the float32 values of n elements stored at src; n is a multiple of the type's block.
  // Bit-equal for every implementation: each value is scale * q (+ min) in float32 as ggml defines it.
  void (*dequantize)(DType type, const std::byte* src, int64_t n, float* dst);

  // y[r - row_begin] = sum_k W[r, k] * x[k] for r in [row_begin, row_end); W is [n_rows, k] of `type`,
  // row-contiguous at w; x [k] float32; products and sums in float32, summed in an order that depends on the
  // implementation and on k alone. Rows are independent, so threads split them freely.
  void (*gemv)(DType type, const std::byte* w, int64_t row_begin, int64_t row_end, int64_t k, const float* x,
               float* y);
};

// "avx512", "avx2", "ref": ordered, fastest first.
std::span<const Implementation<QuantisedKernels>> QuantisedImplementations();

}  // namespace longheads
