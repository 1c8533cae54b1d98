// quantised-inl.h compiled for vectors of four floats: no product uses it, but it runs on every test machine
// and shows that the source does not depend on the width.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantised_four_lanes_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which chooses the target.
#include "hwy/highway.h"

#if HWY_TARGET != HWY_STATIC_TARGET
#include "kernels/cpu/quantised-inl.h"
#endif

#if HWY_ONCE
namespace longheads {
extern const QuantisedKernels kQuantisedFourLanes;
const QuantisedKernels kQuantisedFourLanes = N_SSE4::kQuantised;
}  // namespace longheads
#endif
