// kernels/attention.h's attend_bf16 on AMX: attention_amx-inl.h with the processor's tiles.
#define LONGHEADS_TARGETS \
  "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,amx-int8"
#include "kernels/cpu/amx_tiles-inl.h"
#include "kernels/cpu/attention_amx-inl.h"

namespace longheads::cpu {

// Asked for on every processor.
const AttentionKernels* AmxAttention() {
  static const AttentionKernels kTable = [] {
    AttentionKernels table = *N_AVX3::AttentionTable();
    table.row_tile = kAmxTile;
    table.attend_bf16 = AttendPagesByTiles<AmxTiles>;
    return table;
  }();
  return &kTable;
}

}  // namespace longheads::cpu
