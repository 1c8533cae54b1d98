#include "kernels/gemm.h"

#include <vector>

#include "kernels/onednn/gemm.h"
#include "kernels/ref/gemm.h"

namespace longheads {

std::span<const Implementation<GemmKernels>> GemmImplementations() {
  static const std::vector<Implementation<GemmKernels>> list = [] {
    std::vector<Implementation<GemmKernels>> all = onednn::Implementations();
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
  }
  return "";
}

std::unique_ptr<PeakGemm> MakePeakGemm(ComputeType type) { return onednn::MakePeakGemm(type); }

bool LimitGemm(std::string_view backend) { return onednn::Limit(backend); }

}  // namespace longheads
