#include "kernels/gemm.h"

#include <vector>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/onednn/gemm.h"
#include "kernels/ref/gemm.h"

namespace longheads {

namespace {

// By our own tiles: oneDNN of Debian 12 reaches a third of what AMX multiplies (docs/performance.md).
std::unique_ptr<Gemm> CreateAmx(int64_t k, int64_t n, ComputeType type, const VectorKernels& conversions,
                                int n_threads) {
  if (type == ComputeType::kBF16) return cpu::AmxGemm(k, n);
  return onednn::Implementations()[0].table->create(k, n, type, conversions, n_threads);
}

constexpr GemmKernels kAmx = {.create = CreateAmx, .native_bf16 = true};

}  // namespace

std::span<const Implementation<GemmKernels>> GemmImplementations() {
  static const std::vector<Implementation<GemmKernels>> list = [] {
    std::vector<Implementation<GemmKernels>> all = onednn::Implementations();
    all.insert(all.begin(), {"amx", cpu::DeclinedAmxBf16(), &kAmx});
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
  if (type == ComputeType::kBF16 && amx) return cpu::AmxPeak();
  return onednn::MakePeakGemm(type);
}

bool LimitGemm(std::string_view backend) { return onednn::Limit(backend); }

}  // namespace longheads
