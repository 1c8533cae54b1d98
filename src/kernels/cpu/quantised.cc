// Compiles quantised-inl.h for AVX2 and for AVX-512; the scalar target that Highway insists on stays empty.
#include "kernels/quantised_tables.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantised.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which chooses the target.
#include "hwy/highway.h"

#if HWY_TARGET != HWY_STATIC_TARGET
#include "kernels/cpu/quantised-inl.h"
#endif

#if HWY_ONCE
namespace longheads {
const QuantisedKernels kQuantisedAvx2 = N_AVX2::kQuantised;
const QuantisedKernels kQuantisedAvx512 = N_AVX3::kQuantised;
}  // namespace longheads
#endif
