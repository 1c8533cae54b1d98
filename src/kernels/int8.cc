#include "kernels/int8.h"

#include <array>

#include "hwy/targets.h"
#include "kernels/cpu/int8_kernels.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/ref/int8.h"

namespace longheads {
namespace {

// Highway's target has FMA and F16C too.
std::string DeclinedAvx2() { return cpu::Declined(HWY_AVX2); }

bool HasAvx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

std::string DeclinedVnni() {
  __builtin_cpu_init();
  const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
                   DeclinedAvx2().empty();
  return has ? "" : "this processor lacks AVX-512 with VNNI";
}

}  // namespace

std::span<const Implementation<Int8Kernels>> Int8Implementations() {
  static const std::array<Implementation<Int8Kernels>, 3> implementations = {{
      // Where there is AVX-512 without VNNI, whoever asks for the former gets the next slower one.
      {HasAvx512() && !DeclinedVnni().empty() ? "avx512vnni" : "avx512", DeclinedVnni(),
       &cpu::kInt8Avx512Vnni},
      {"avx2", DeclinedAvx2(), &cpu::kInt8Avx2},
      {"ref", "", &ref::kInt8},
  }};
  return implementations;
}

}  // namespace longheads
