// The text that ESA's compression is fitted to where the user names none: a few thousand tokens of many kinds
// of writing, made for this and in the public domain.
#pragma once

#include <string_view>

namespace longheads {

extern const std::string_view kEsaSampleText;

}  // namespace longheads
