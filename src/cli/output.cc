#include "cli/output.h"

#include <cstdio>
#include <iostream>

namespace longheads {

void WriteNote(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void WriteOutput(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Status FlushOutput() {
  std::cout.flush();  // CLI11's help
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return {};
  return MakeError(ErrorKind::kIo,
                   "standard output could not be written: is the disk full, or did its reader leave?");
}

}  // namespace longheads
