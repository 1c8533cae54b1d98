// `longheads eval`: the experiments of long-context papers from the command line. What they measure is
// eval/'s; here are their options, their progress and how a result is shown.
#pragma once

#include "cli/command.h"

namespace longheads {

// Registers `eval` with its subcommand `passkey`.
void AddEvalCommand(CLI::App& program, Command& command);

}  // namespace longheads
