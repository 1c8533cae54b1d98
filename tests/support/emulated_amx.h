// AMX's kernels on emulated tiles: the code that runs where the processor has them, for tests on machines
// that have not.
#pragma once

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/int8.h"

namespace longheads {

// attend_bf16 is the emulated one; all else is that of "amx". Declined without AVX-512-BF16.
Implementation<AttentionKernels> EmulatedAmxAttention();

// multiply is the emulated one. Declined without VNNI.
Implementation<Int8Kernels> EmulatedAmxInt8();

// create gives kBF16's product by emulated tiles, and no other. Declined without AVX-512-BF16.
Implementation<GemmKernels> EmulatedAmxGemm();

}  // namespace longheads
