// Unpacks single files out of a zip archive, by libzip. Nothing is written anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longheads {

// The names of the files in an archive, with '/' between folders, in its order; folders are left out.
Result<std::vector<std::string>> ZipFileNames(const std::string& archive);

// The bytes of the file called `name` in it. Refused: one that says to be, or turns out to be, larger than
// `most_bytes`, one that is encrypted, and one whose checksum is wrong.
Result<std::string> ReadZippedFile(const std::string& archive, const std::string& name, uint64_t most_bytes);

}  // namespace longheads
