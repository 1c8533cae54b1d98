#include "tests/support/emulated_amx.h"

#define LONGHEADS_TARGETS "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"
#include "kernels/cpu/attention_amx-inl.h"
#include "kernels/cpu/gemm_amx-inl.h"
#include "kernels/cpu/int8_amx-inl.h"
#include "tests/support/emulated_tiles-inl.h"

namespace longheads {

Implementation<AttentionKernels> EmulatedAmxAttention() {
  static const AttentionKernels kTable = [] {
    AttentionKernels table = *cpu::AmxAttention();
    table.attend_bf16 = cpu::AttendPagesByTiles<cpu::EmulatedTiles>;
    return table;
  }();
  return {"emulated_amx", cpu::DeclinedAvx512Bf16(), &kTable};
}

Implementation<Int8Kernels> EmulatedAmxInt8() {
  static const Int8Kernels kTable = {.quantise = cpu::AmxInt8()->quantise,
                                     .multiply = cpu::MultiplyByTiles<cpu::EmulatedTiles>};
  return {"emulated_amx", cpu::DeclinedVnni(), &kTable};
}

Implementation<GemmKernels> EmulatedAmxGemm() {
  static const GemmKernels kTable = {
      .create = [](int64_t k, int64_t n, ComputeType, const VectorKernels&, int) -> std::unique_ptr<Gemm> {
        return std::make_unique<cpu::TileGemm<cpu::EmulatedTiles>>(k, n);
      },
      .native_bf16 = true};
  return {"emulated_amx", cpu::DeclinedAvx512Bf16(), &kTable};
}

}  // namespace longheads
