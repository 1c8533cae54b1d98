// longheads report: what experiments left in a directory, as a page.
#pragma once

#include "cli/command.h"

namespace longheads {

void AddReportCommand(CLI::App& program, Command& command);

}  // namespace longheads
