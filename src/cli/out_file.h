// Files that a command writes.
#pragma once

#include <string>

#include "base/result.h"

namespace longheads {

// An output may not take the place of what it is made from, by whatever name: `flag` names the output, `what`
// the input, "the model file". An input without a name is none.
Status CheckNotInput(const char* flag, const std::string& out, const std::string& input, const char* what);

}  // namespace longheads
