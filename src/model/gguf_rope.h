// The keys and tensors of a GGUF file that speak of RoPE, as one declaration. What they mean is rope/'s.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "formats/gguf.h"
#include "rope/declaration.h"

namespace longheads {

// `prefix` is the architecture's, with its dot: "llama.". Refuses what contradicts itself or the head size.
Result<RopeDeclaration> ReadRope(const GgufFile& file, std::string_view prefix, int64_t rotary_dim,
                                 int64_t context_length);

}  // namespace longheads
