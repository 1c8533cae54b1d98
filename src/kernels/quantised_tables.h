// The tables behind QuantisedImplementations(), one for each file that implements the operation.
#pragma once

#include "kernels/quantised.h"

namespace longheads {

extern const QuantisedKernels kQuantisedRef;     // ref/quantised.cc
extern const QuantisedKernels kQuantisedAvx2;    // cpu/quantised.cc; needs hwy's HWY_AVX2
extern const QuantisedKernels kQuantisedAvx512;  // cpu/quantised.cc; needs hwy's HWY_AVX3

}  // namespace longheads
