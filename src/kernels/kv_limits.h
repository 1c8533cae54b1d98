// What the kernels of keys and values take for granted.
#pragma once

#include <cstdint>

namespace longheads {

inline constexpr int64_t kMaxRun = 256;  // keys that lie together: a page
inline constexpr int64_t kMaxHeadDim = 256;

}  // namespace longheads
