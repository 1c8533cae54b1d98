#include "program/eval_command.h"

namespace longheads {

void AddEvalCommand(CLI::App& program, Command& command) {
  CLI::App* const eval =
      program.add_subcommand("eval", "Runs an experiment of the long-context papers on a model");
  eval->require_subcommand(1);
  eval->footer(
      "'longheads eval EXPERIMENT --help' says more.\n\nExample:\n  longheads eval passkey --attn "
      "'full;longheads' --lengths 4k,16k --depths 5 --out results");
  AddPasskeyCommand(*eval, command);
  AddPplCommand(*eval, command);
  AddTaskCommands(*eval, command);
  AddAblationCommand(*eval, command);
  AddSuiteCommand(*eval, command);
}

}  // namespace longheads
