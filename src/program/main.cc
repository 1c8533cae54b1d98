// The program: joins the faces (cli, eval) under one name and turns errors into sentences and exit statuses.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <span>
#include <string>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/lost_file.h"
#include "cli/misspelt.h"
#include "cli/output.h"
#include "program/bench_command.h"
#include "program/eval_command.h"
#include "program/report_command.h"
#include "program/view_command.h"

int main(int argc, char** argv) {
  using longheads::Command;
  using longheads::ErrorKind;
  constexpr int kBadInput = 2;
  // A reader that left, and a file that may not grow, are errors of the write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  longheads::EndWhereMappedFilesAreLost(kBadInput);

  CLI::App program(
      "longheads: pretrained language models read and answer over texts far longer than the window they were "
      "trained "
      "with, without training.");
  program.set_version_flag("--version", "longheads " LONGHEADS_VERSION);
  program.require_subcommand(1);
  program.footer(
      "'longheads COMMAND --help' says more.\n\nExample:\n  longheads run -f book.txt -q \"Who stole the "
      "ring?\"");
  Command command;
  longheads::AddRunCommand(program, command);
  longheads::AddIngestCommand(program, command);
  longheads::AddAskCommand(program, command);
  longheads::AddContextCommand(program, command);
  longheads::AddTokenizeCommands(program, command);
  longheads::AddLogitsCommand(program, command);
  longheads::AddInfoCommand(program, command);
  longheads::AddMethodsCommand(program, command);
  longheads::AddFitEsaCommand(program, command);
  longheads::AddEvalCommand(program, command);
  longheads::AddBenchCommand(program, command);
  longheads::AddReportCommand(program, command);
  longheads::AddViewCommand(program, command);
  const std::span<const char* const> arguments(argv + std::min(argc, 1), argv + argc);
  if (const std::string unknown = longheads::UnknownCommand(program, arguments); !unknown.empty()) {
    longheads::Note("longheads: {}\n", longheads::OnOneLine(unknown));
    return kBadInput;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      (void)program.exit(error);
      return longheads::FlushOutput() ? 0 : kBadInput;
    }
    std::string wrong = longheads::UnknownOption(program, arguments);
    if (wrong.empty()) wrong = longheads::WhatIsWrong(error, program);
    longheads::Note("longheads: {}\n", longheads::OnOneLine(wrong));
    return kBadInput;
  }
  try {
    longheads::Result<int> status = command();
    const longheads::Status flushed = longheads::FlushOutput();
    if (status && !flushed) status = tl::unexpected<longheads::Error>(flushed.error());
    if (status) return *status;
    longheads::Note("longheads: {}\n", longheads::WithoutControls(status.error().message));
    return status.error().kind == ErrorKind::kCancelled ? longheads::kInterruptedStatus : kBadInput;
  } catch (const std::bad_alloc&) {
    longheads::Note("longheads: out of memory\n");
    return kBadInput;
  } catch (const std::exception& error) {
    longheads::Note("longheads: {}\n", error.what());
    return kBadInput;
  }
}
