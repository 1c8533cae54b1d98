// The Highway implementations, one source for every instruction set: "avx512" and "avx2" where this processor
// has them, else with the reason why not; and what AVX-512-BF16 and AMX add to them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/vector_ops.h"

namespace longheads::cpu {

std::vector<Implementation<AttentionKernels>> SimdAttention();
std::vector<Implementation<VectorKernels>> SimdVectorOps();

// Why this processor cannot run code for a Highway target (HWY_AVX2, ...); empty where it can.
std::string Declined(int64_t highway_target);

// "avx512", but for attend_bf16. Declined as by the function below it.
const AttentionKernels* Avx512Bf16Attention();
std::string DeclinedAvx512Bf16();
// The same by AMX's tiles, which need both.
const AttentionKernels* AmxAttention();
// kBF16's product by AMX's tiles, and a large one for measuring; these need both too.
std::unique_ptr<Gemm> AmxGemm(int64_t k, int64_t n);
std::unique_ptr<PeakGemm> AmxPeak();
// Of integer products.
std::string DeclinedVnni();
// Where the processor has them, these ask the system for the tiles. Of bfloat16's, with AVX-512-BF16 beside
// them.
std::string DeclinedAmxBf16();
std::string DeclinedAmxInt8();

// Highway compiles each source once per target, into a namespace of this name.
namespace N_AVX2 {
const AttentionKernels* AttentionTable();
const VectorKernels* VectorTable();
}  // namespace N_AVX2
namespace N_AVX3 {
const AttentionKernels* AttentionTable();
const VectorKernels* VectorTable();
}  // namespace N_AVX3

}  // namespace longheads::cpu
