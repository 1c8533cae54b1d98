// What tells model files from others, for what is made from one and is of no use to another: context files,
// compressions of ESA's scores, results.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace longheads {

// Of the file's length, its beginning (metadata and names) and samples of its weights, without reading all of
// it.
Result<uint64_t> FingerprintModel(const std::string& model_path);
// As files and pages have it: 16 hexadecimal digits.
std::string FingerprintText(uint64_t fingerprint);

}  // namespace longheads
