// A short name for a text's bytes.
#pragma once

#include <string>
#include <string_view>

namespace longheads {

// FNV-1a of 64 bits, in hexadecimal.
std::string TextHash(std::string_view text);

}  // namespace longheads
