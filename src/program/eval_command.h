// `longheads eval`: the experiments of long-context papers from the command line. What they measure is
// eval/'s; here are their options, their progress and how a result is shown.
#pragma once

#include "cli/command.h"

namespace longheads {

// Registers `eval` with all its subcommands.
void AddEvalCommand(CLI::App& program, Command& command);

// Each registers one.
void AddPasskeyCommand(CLI::App& eval, Command& command);
void AddPplCommand(CLI::App& eval, Command& command);
void AddTaskCommands(CLI::App& eval, Command& command);  // one for each task
void AddAblationCommand(CLI::App& eval, Command& command);
void AddSuiteCommand(CLI::App& eval, Command& command);

}  // namespace longheads
