// An index or a count as containers take it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longheads {

inline std::size_t Size(int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace longheads
