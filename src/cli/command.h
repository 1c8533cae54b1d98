// What every subcommand of the program has in common: CLI11 parses it, and leaves behind what main shall run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace longheads {

// Gives the exit status. An Error is printed by main as "longheads: ..." with exit status 2, or 130 for an
// interrupt.
using Command = std::function<Result<int>()>;

// Each registers one subcommand; `command` is set when the user picked it. Options live as long as `program`.
void AddRunCommand(CLI::App& program, Command& command);
void AddTokenizeCommands(CLI::App& program, Command& command);  // tokenize and detokenize
void AddLogitsCommand(CLI::App& program, Command& command);
void AddInfoCommand(CLI::App& program, Command& command);
void AddFitEsaCommand(CLI::App& program, Command& command);
void AddMethodsCommand(CLI::App& program, Command& command);
void AddIngestCommand(CLI::App& program, Command& command);
void AddAskCommand(CLI::App& program, Command& command);
void AddContextCommand(CLI::App& program, Command& command);

}  // namespace longheads
