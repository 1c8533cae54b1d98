// The scalar reference of kernels/attention.h.
#pragma once

#include "kernels/attention.h"

namespace longheads::ref {
extern const AttentionKernels kAttention;
}  // namespace longheads::ref
