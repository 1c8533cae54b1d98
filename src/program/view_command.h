// longheads view: a trace as a page or a figure.
#pragma once

#include "cli/command.h"

namespace longheads {

void AddViewCommand(CLI::App& program, Command& command);

}  // namespace longheads
