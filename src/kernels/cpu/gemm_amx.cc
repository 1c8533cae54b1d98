// Products of bfloat16 on AMX: gemm_amx-inl.h with the processor's tiles.
#define LONGHEADS_TARGETS \
  "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,amx-int8"
#include "kernels/cpu/amx_tiles-inl.h"
#include "kernels/cpu/gemm_amx-inl.h"
#include "kernels/cpu/simd_kernels.h"

namespace longheads::cpu {

std::unique_ptr<Gemm> AmxGemm(int64_t k, int64_t n) { return std::make_unique<TileGemm<AmxTiles>>(k, n); }

}  // namespace longheads::cpu
