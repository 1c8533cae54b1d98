#include "hwy/targets.h"
#include "kernels/cpu/simd_kernels.h"

namespace longheads::cpu {

std::string Declined(int64_t highway_target) {
  if (hwy::SupportedTargets() & highway_target) return "";
  return std::string("this processor lacks ") +
         (highway_target == HWY_AVX2 ? "AVX2, FMA or BMI2" : "AVX-512");
}

}  // namespace longheads::cpu
