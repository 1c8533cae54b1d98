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
  static const VectorKernels* const fastest = [] {
    const auto chosen = ChooseImplementation(VectorImplementations(), "auto", "vector work");
    // The environment may have a wrong name, of which whoever loads a model hears.
    return chosen ? chosen->table : VectorImplementations().back().table;
  }();
  return *fastest;
}

}  // namespace longheads
