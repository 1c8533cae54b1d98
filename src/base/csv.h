// Tables as programs read them.
#pragma once

#include <string>

namespace longheads {

// A field of a CSV line: quoted where it has to be (methods hold commas, file names anything).
std::string CsvField(const std::string& text);

}  // namespace longheads
