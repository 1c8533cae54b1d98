#pragma once

#include "kernels/int8.h"

namespace longheads::ref {

extern const Int8Kernels kInt8;

}  // namespace longheads::ref
