// What the program prints. A note that cannot be written (a closed pane, a full disk) does not end the work;
// of standard output FlushOutput says in the end whether all of it went out.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace longheads {

// Control characters, but for newlines in the second, become U+FFFD: what a file says of itself shall not
// steer the terminal.
std::string OnOneLine(std::string_view text);
std::string WithoutControls(std::string_view text);

void WriteNote(std::string_view text);    // to stderr, as it stands
void WriteOutput(std::string_view text);  // to stdout, as it stands

// Whether stdout took everything that was written to it; kIo where it did not, kCancelled where an interrupt
// ended the wait for its reader. Once it failed it stays so, and nothing more is written.
Status FlushOutput();

template <typename... Args>
void Note(fmt::format_string<Args...> format, Args&&... args) {
  WriteNote(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  WriteOutput(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace longheads
