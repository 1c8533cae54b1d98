// How GGUF lays out a block of each quantised type, one element at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace longheads {

// IEEE binary16 at p, exactly; every NaN becomes the quiet one of its sign and payload.
float HalfAt(const std::byte* p);

// Scale and minimum (6 bits each) of sub-block j of 8, from the 12 bytes at s that Q4_K and Q5_K share: the
// first four of each lie whole in bytes j and j + 4; the last four have their low nibbles in byte j + 4 and
// their top two bits above those of the first four.
struct SubBlockScale {
  int scale, min;
};
SubBlockScale SubBlockScaleOf(const std::byte* s, int j);

// The 32 integers of columns [32 part, 32 part + 32) of the block at b, as they are stored: without the bias
// that a type subtracts, Q8_0's as two's complement.
void BlockIntegers(DType type, const std::byte* b, int part, uint8_t q[32]);

}  // namespace longheads
