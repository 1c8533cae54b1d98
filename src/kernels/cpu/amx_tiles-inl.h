// The processor's tiles for tile_block-inl.h. In assembly: GCC's intrinsics take numbers that are written out
// alone, and do not say that a tile's load reads memory.
//
// The file that includes this defines LONGHEADS_TARGETS, with amx-tile and what it multiplies.
#pragma once

#include "kernels/cpu/tile_block-inl.h"

HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

// A thread's tiles are in use while one of these is: who multiplies makes one for the call, and leaves none
// in use behind, which the system would save and others, as oneDNN, would find.
class AmxTiles {
 public:
  explicit AmxTiles(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(shapes)); }
  ~AmxTiles() { __asm__ volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  HWY_INLINE void Clear() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  HWY_INLINE void Load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  HWY_INLINE void Store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  // Operands in AT&T's order: right, left, sum.
  template <int kSum, int kLeft, int kRight>
  HWY_INLINE void AddBf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft), "i"(kRight));
  }
  template <int kSum, int kLeft, int kRight>
  HWY_INLINE void AddInt8() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft), "i"(kRight));
  }
};

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
