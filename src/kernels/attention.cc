#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/ref/attention.h"

namespace longheads {

void ClearState(float* state, int64_t head_dim) {
  std::fill_n(state, StateFloats(head_dim), 0.0f);
  state[head_dim] = -std::numeric_limits<float>::infinity();
}

void FinishState(const float* state, int64_t head_dim, float* out) {
  const float sum = state[head_dim + 1];
  const float scale = sum > 0 ? 1 / sum : 0;
  for (int64_t m = 0; m < head_dim; ++m) out[m] = state[m] * scale;
}

std::span<const Implementation<AttentionKernels>> AttentionImplementations() {
  static const std::vector<Implementation<AttentionKernels>> list = [] {
    std::vector<Implementation<AttentionKernels>> all = cpu::SimdAttention();
    all.insert(all.begin(), {{"amx", cpu::DeclinedAmxBf16(), cpu::AmxAttention()},
                             {"avx512bf16", cpu::DeclinedAvx512Bf16(), cpu::Avx512Bf16Attention()}});
    all.push_back({"ref", "", &ref::kAttention});
    return all;
  }();
  return list;
}

}  // namespace longheads
