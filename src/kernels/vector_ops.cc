#include "kernels/vector_ops.h"

#include <vector>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/ref/vector_ops.h"

namespace longheads {

std::span<const Implementation<VectorKernels>> VectorImplementations() {
  static const std::vector<Implementation<VectorKernels>> list = [] {
    std::vector<Implementation<VectorKernels>> all = cpu::SimdVectorOps();
    all.push_back({"ref", "", &ref::kVectorOps});
    return all;
  }();
  return list;
}

const VectorKernels& FastestVectorKernels() {
  static const VectorKernels& fastest =
      *ChooseImplementation(VectorImplementations(), "auto", "vector work")->table;
  return fastest;
}

}  // namespace longheads
