// Integer products on AMX: int8_amx-inl.h with the processor's tiles.
#define LONGHEADS_TARGETS "avx2,fma,f16c,avx512f,avx512bw,avx512vl,amx-tile,amx-bf16,amx-int8"
#include "kernels/cpu/amx_tiles-inl.h"
#include "kernels/cpu/int8_amx-inl.h"

namespace longheads::cpu {

// Asked for on every processor.
const Int8Kernels* AmxInt8() {
  static const Int8Kernels kTable = {.quantise = kInt8Avx512Vnni.quantise,
                                     .multiply = MultiplyByTiles<AmxTiles>};
  return &kTable;
}

}  // namespace longheads::cpu
