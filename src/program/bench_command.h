// `longheads bench`: what this machine can do, and how much of it the engine does. What is measured is
// bench/'s; here are the options, the progress and how a result is shown.
#pragma once

#include "cli/command.h"

namespace longheads {

// Registers `bench` with all its subcommands.
void AddBenchCommand(CLI::App& program, Command& command);

}  // namespace longheads
