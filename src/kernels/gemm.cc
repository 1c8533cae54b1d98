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

bool LimitGemm(std::string_view backend) { return onednn::Limit(backend); }

}  // namespace longheads
