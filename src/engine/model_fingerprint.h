// What tells model files from others, for what is made from one and is of no use to another: context files,
// compressions of ESA's scores, results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "formats/gguf.h"

namespace longheads {

// Of the file's length, its beginning (metadata and names) and samples of its weights, without reading all of
// it. Of the bytes that are mapped: by now the file's name may lead to another one.
uint64_t FingerprintModel(std::span<const std::byte> file);
inline uint64_t FingerprintModel(const GgufFile& file) { return FingerprintModel(file.bytes()); }
// As files and pages have it: 16 hexadecimal digits.
std::string FingerprintText(uint64_t fingerprint);

}  // namespace longheads
