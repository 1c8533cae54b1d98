// A 16 x 16 matrix of 32-bit numbers in vectors of AVX-512.
//
// The file that includes this defines LONGHEADS_TARGETS, the instructions that all of it is compiled for.
#pragma once

#include <immintrin.h>

#include "hwy/highway.h"

// After the headers: what they define inline must run on every processor.
HWY_PUSH_ATTRIBUTES(LONGHEADS_TARGETS)

namespace longheads::cpu {
namespace {

// A row in each vector.
inline void Transpose(__m512i (&m)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now m[4 g + c] has column c of each of its four quarters for rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(m[c], m[4 + c], 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(m[c], m[4 + c], 0xdd);
    t[8 + c] = _mm512_shuffle_i32x4(m[8 + c], m[12 + c], 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(m[8 + c], m[12 + c], 0xdd);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    m[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
    m[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
    m[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
    m[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
  }
}

}  // namespace
}  // namespace longheads::cpu

HWY_POP_ATTRIBUTES
