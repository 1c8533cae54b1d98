// Ctrl-C as a token that long work looks at.
#pragma once

#include "base/cancel.h"

namespace longheads {

// Raised by the first SIGINT or SIGTERM from the first call on; a second one ends the process at once.
const CancelToken& InterruptToken();

// The exit status of a program that was interrupted (128 + SIGINT).
inline constexpr int kInterruptedStatus = 130;

}  // namespace longheads
