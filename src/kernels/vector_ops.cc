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
    const auto list = VectorImplementations();
    // Whoever loads a model hears that a name is wrong.
    const auto chosen = ChooseImplementation(list, AutoBackend(), "vector work");
    return chosen ? chosen->table : ChooseImplementation(list, "auto", "vector work")->table;
  }();
  return *fastest;
}

}  // namespace longheads
