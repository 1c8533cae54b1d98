#include "kernels/ref/gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/ref/vector_ops.h"

namespace longheads::ref {
namespace {

void Round(const float* in, int64_t n, float* out) {
  std::vector<BFloat16> half(static_cast<std::size_t>(n));
  kVectorOps.to_bf16(in, n, half.data());
  kVectorOps.from_bf16(half.data(), n, out);
}

class RefGemm : public Gemm {
 public:
  RefGemm(int64_t k, int64_t n, ComputeType type) : Gemm(k, n), type_(type) {}

  int64_t panel_stride() const override { return kPanel * k() * static_cast<int64_t>(sizeof(float)); }

  void Pack(int64_t panel, float* weights, std::byte* packed, int) const override {
    const int64_t count = panel_width(panel) * k();
    if (type_ == ComputeType::kBF16) Round(weights, count, weights);
    std::memcpy(packed, weights, sizeof(float) * static_cast<std::size_t>(count));
  }

  int64_t row_bytes() const override { return k() * static_cast<int64_t>(sizeof(float)); }
  void Place(const float* x, int64_t n, int64_t row, int64_t column, std::byte* rows) const override {
    float* const to = reinterpret_cast<float*>(rows) + row * k() + column;
    if (type_ == ComputeType::kBF16) {
      Round(x, n, to);
    } else {
      std::copy_n(x, n, to);
    }
  }

  void Multiply(int64_t panel, const std::byte* x, const std::byte* packed, int64_t n_rows, float* y,
                int64_t y_stride, int) const override {
    const float* const w = reinterpret_cast<const float*>(packed);
    for (int64_t row = 0; row < n_rows; ++row) {
      const float* const x_row = reinterpret_cast<const float*>(x) + row * k();
      for (int64_t c = 0; c < panel_width(panel); ++c) {
        float sum = 0;
        for (int64_t i = 0; i < k(); ++i) sum += x_row[i] * w[c * k() + i];
        y[row * y_stride + c] = sum;
      }
    }
  }

 private:
  ComputeType type_;
};

std::unique_ptr<Gemm> Create(int64_t k, int64_t n, ComputeType type, const VectorKernels&, int) {
  return std::make_unique<RefGemm>(k, n, type);
}

}  // namespace

const GemmKernels kGemm = {.create = Create, .native_bf16 = false};

}  // namespace longheads::ref
