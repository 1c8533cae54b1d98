// The scalar reference of kernels/vector_ops.h.
#pragma once

#include "kernels/vector_ops.h"

namespace longheads::ref {
extern const VectorKernels kVectorOps;
}  // namespace longheads::ref
