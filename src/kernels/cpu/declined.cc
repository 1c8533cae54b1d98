#include "hwy/targets.h"
#include "kernels/cpu/simd_kernels.h"

namespace longheads::cpu {

std::string Declined(int64_t highway_target) {
  if (hwy::SupportedTargets() & highway_target) return "";
  return std::string("this processor lacks ") +
         (highway_target == HWY_AVX2 ? "AVX2, FMA or BMI2" : "AVX-512");
}

std::string DeclinedAvx512Bf16() {
  __builtin_cpu_init();
  const bool has = Declined(HWY_AVX3).empty() && __builtin_cpu_supports("avx512bf16");
  return has ? "" : "this processor lacks AVX-512-BF16";
}

}  // namespace longheads::cpu
