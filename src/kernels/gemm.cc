#include "kernels/gemm.h"

#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/onednn/gemm.h"
#include "kernels/ref/gemm.h"
#include "tensor/tensor.h"

namespace longheads {

namespace {

// By our own tiles: oneDNN of Debian 12 reaches a third of what AMX multiplies (docs/performance.md).
std::unique_ptr<Gemm> CreateAmx(int64_t k, int64_t n, ComputeType type, const VectorKernels& conversions,
                                int n_threads) {
  if (type == ComputeType::kBF16) return cpu::AmxGemm(k, n);
  return onednn::Implementations()[0].table->create(k, n, type, conversions, n_threads);
}

// As large as a second cache holds: from beyond it tiles wait for what they multiply.
class AmxPeak : public PeakGemm {
 public:
  AmxPeak() : gemm_(cpu::AmxGemm(kColumns, kOutputs)), y_(kRows * kOutputs) {
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

constexpr GemmKernels kAmx = {.create = CreateAmx, .native_bf16 = true};

}  // namespace

std::span<const Implementation<GemmKernels>> GemmImplementations() {
  static const std::vector<Implementation<GemmKernels>> list = [] {
    std::vector<Implementation<GemmKernels>> all = onednn::Implementations();
    const std::string no_pairs = cpu::DeclinedAvx512Bf16(), no_tiles = cpu::DeclinedAmxBf16();
    all.insert(all.begin(), {"amx", no_tiles.empty() ? no_pairs : no_tiles, &kAmx});
    all.push_back({"ref", "", &ref::kGemm});
    return all;
  }();
  return list;
}

std::string_view NameOf(ComputeType type) {
  switch (type) {
    case ComputeType::kF32:
      return "f32";
    case ComputeType::kBF16:
      return "bf16";
    case ComputeType::kInt8:
      return "int8";
    case ComputeType::kBF16Int8:
      return "bf16-int8";
  }
  return "";
}

std::unique_ptr<PeakGemm> MakePeakGemm(ComputeType type) {
  const bool amx = cpu::DeclinedAmxBf16().empty() && onednn::MayUseAmx();
  if (type == ComputeType::kBF16 && amx) return std::make_unique<AmxPeak>();
  return onednn::MakePeakGemm(type);
}

bool LimitGemm(std::string_view backend) { return onednn::Limit(backend); }

}  // namespace longheads
