#include "cli/output.h"

#include <stdio_ext.h>

#include <cstdio>
#include <iostream>

#include "cli/interrupt.h"

namespace longheads {

void WriteNote(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void WriteOutput(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Status FlushOutput() {
  std::cout.flush();  // CLI11's help
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return {};
  if (Cancelled(&InterruptToken())) {
    // It came while a reader let us wait. What waits would keep the process from ending.
    __fpurge(stdout);
    std::clearerr(stdout);
    return MakeError(ErrorKind::kCancelled, "interrupted while standard output waited for its reader");
  }
  return MakeError(ErrorKind::kIo,
                   "standard output could not be written: is the disk full, or did its reader leave?");
}

}  // namespace longheads
