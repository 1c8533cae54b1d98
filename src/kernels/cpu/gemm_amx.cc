// Products of bfloat16 on AMX: gemm_amx-inl.h with the processor's tiles.
#define LONGHEADS_TARGETS \
  "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,amx-int8"
#include "kernels/cpu/amx_tiles-inl.h"
#include "kernels/cpu/gemm_amx-inl.h"
#include "kernels/cpu/simd_kernels.h"
#include "tensor/tensor.h"

namespace longheads::cpu {

std::unique_ptr<Gemm> AmxGemm(int64_t k, int64_t n) { return std::make_unique<TileGemm<AmxTiles>>(k, n); }

namespace {

// As large as a second cache holds: from beyond it tiles wait for what they multiply.
class Peak : public PeakGemm {
 public:
  Peak() : gemm_(AmxGemm(kColumns, kOutputs)), y_(kRows * kOutputs) {
    const auto fill = [](Buffer<std::byte>& numbers, int64_t n) {
      numbers.Reset(n * static_cast<int64_t>(sizeof(BFloat16)));
      std::memset(numbers.data(), 0x3C, static_cast<std::size_t>(numbers.size()));  // 0.0115 each
    };
    fill(rows_, kRows * kColumns);
    fill(weights_, kOutputs * kColumns);
  }

  double operations() const override { return 2.0 * kRows * kOutputs * kColumns; }

  void Run() override {
    for (int64_t panel = 0; panel < gemm_->n_panels(); ++panel) {
      for (int64_t row = 0; row < kRows; row += Gemm::kTileRows) {
        gemm_->Multiply(panel, rows_.data() + row * gemm_->row_bytes(),
                        weights_.data() + panel * gemm_->panel_stride(), Gemm::kTileRows,
                        y_.data() + row * kOutputs + panel * Gemm::kPanel, kOutputs, /*thread=*/0);
      }
    }
  }

 private:
  static constexpr int64_t kRows = 3 * Gemm::kTileRows, kOutputs = 2 * Gemm::kPanel, kColumns = 1152;

  std::unique_ptr<Gemm> gemm_;
  Buffer<std::byte> rows_, weights_;
  Buffer<float> y_;
};

}  // namespace

std::unique_ptr<PeakGemm> AmxPeak() { return std::make_unique<Peak>(); }

}  // namespace longheads::cpu
