// kernels/gemm.h by oneDNN, which picks AMX, AVX-512-BF16, AVX-512 or AVX2 at run time.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/gemm.h"

namespace longheads::onednn {

std::vector<Implementation<GemmKernels>> Implementations();
bool Limit(std::string_view backend);
bool MayUseAmx();  // whether the processor has it, and no limit was set below it
std::unique_ptr<PeakGemm> MakePeakGemm(ComputeType type);

}  // namespace longheads::onednn
