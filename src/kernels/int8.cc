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

}  // namespace

std::span<const Implementation<Int8Kernels>> Int8Implementations() {
  static const std::string no_vnni = cpu::DeclinedVnni(), no_tiles = cpu::DeclinedAmxInt8();
  static const std::array<Implementation<Int8Kernels>, 4> implementations = {{
      {"amx", no_tiles.empty() ? no_vnni : no_tiles, cpu::AmxInt8()},
      // Where there is AVX-512 without VNNI, whoever asks for the former gets the next slower one.
      {HasAvx512() && !no_vnni.empty() ? "avx512vnni" : "avx512", no_vnni, &cpu::kInt8Avx512Vnni},
      {"avx2", DeclinedAvx2(), &cpu::kInt8Avx2},
      {"ref", "", &ref::kInt8},
  }};
  return implementations;
}

}  // namespace longheads
