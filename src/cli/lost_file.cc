#include "cli/lost_file.h"

#include <unistd.h>

#include <csignal>

namespace longheads {
namespace {

constexpr int kBadInput = 2;
constexpr char kSentence[] =
    "\nlongheads: a file became shorter while it was in use, most likely the model's, or its disk failed: "
    "leave "
    "the "
    "file as it is until the program ends, and put another one in its place by renaming it\n";

// Nothing here may take a lock or memory: the signal may have come in the middle of that.
void OnBusError(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // of another kind: our own mistake, which ends as it would without this
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kSentence, sizeof kSentence - 1);
  _exit(kBadInput);
}

}  // namespace

void EndWhereMappedFilesAreLost() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace longheads
