#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace longheads {

uint64_t Checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace longheads
