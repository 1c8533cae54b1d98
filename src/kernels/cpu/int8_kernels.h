// What the vector implementations of integer products share.
#pragma once

#include <type_traits>

#include "base/check.h"
#include "kernels/int8.h"

namespace longheads::cpu {

extern const Int8Kernels kInt8Avx2;        // needs AVX2, FMA and F16C
extern const Int8Kernels kInt8Avx512Vnni;  // needs AVX-512 F, BW, VL and VNNI, and these
const Int8Kernels* AmxInt8();              // needs AMX-INT8, and these

// body(integral_constant of the type).
template <typename Body>
void DispatchInt8(DType type, const Body& body) {
  switch (type) {
    case DType::kQ4_0:
      return body(std::integral_constant<DType, DType::kQ4_0>());
    case DType::kQ4_1:
      return body(std::integral_constant<DType, DType::kQ4_1>());
    case DType::kQ5_0:
      return body(std::integral_constant<DType, DType::kQ5_0>());
    case DType::kQ5_1:
      return body(std::integral_constant<DType, DType::kQ5_1>());
    case DType::kQ8_0:
      return body(std::integral_constant<DType, DType::kQ8_0>());
    case DType::kQ4_K:
      return body(std::integral_constant<DType, DType::kQ4_K>());
    case DType::kQ5_K:
      return body(std::integral_constant<DType, DType::kQ5_K>());
    case DType::kQ6_K:
      return body(std::integral_constant<DType, DType::kQ6_K>());
    default:
      LH_CHECK(false);
  }
}

}  // namespace longheads::cpu
