#include "program/eval_command.h"

namespace longheads {

void AddEvalCommand(CLI::App& program, Command& command) {
  CLI::App* const eval =
      program.add_subcommand("eval", "Runs an experiment of the long-context papers on a model");
  eval->require_subcommand(1);
  AddPasskeyCommand(*eval, command);
  AddPplCommand(*eval, command);
}

}  // namespace longheads
