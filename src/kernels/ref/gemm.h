// The scalar reference of kernels/gemm.h.
#pragma once

#include "kernels/gemm.h"

namespace longheads::ref {
extern const GemmKernels kGemm;
}  // namespace longheads::ref
