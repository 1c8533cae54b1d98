#include "kernels/quantised.h"

#include <array>

#include "hwy/highway.h"
#include "kernels/quantised_tables.h"

namespace longheads {
namespace {

std::string DeclinedWithout(int64_t target, std::string_view instructions) {
  if (hwy::SupportedTargets() & target) return "";
  return "this processor has no " + std::string(instructions);
}

}  // namespace

std::span<const Implementation<QuantisedKernels>> QuantisedImplementations() {
  static const std::array<Implementation<QuantisedKernels>, 3> implementations = {{
      {"avx512", DeclinedWithout(HWY_AVX3, "AVX-512 (F, VL, DQ, BW)"), &kQuantisedAvx512},
      {"avx2", DeclinedWithout(HWY_AVX2, "AVX2 with FMA and F16C"), &kQuantisedAvx2},
      {"ref", "", &kQuantisedRef},
  }};
  return implementations;
}

}  // namespace longheads
