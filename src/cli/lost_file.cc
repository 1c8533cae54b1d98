#include "cli/lost_file.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace longheads {
namespace {

constexpr char kSentence[] =
    "\nlongheads: a file became shorter while it was in use, most likely the model's, or its disk failed: "
    "leave the file as it is until the program ends, and put another one in its place by renaming it\n";

volatile std::sig_atomic_t exit_status = 0;
std::atomic_flag said;

// Nothing here may take a lock or memory: the signal may have come in the middle of that.
void OnBusError(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // somebody's kill, or broken memory: as it would end without this
    std::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  while (said.test_and_set()) pause();  // another thread met it too
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kSentence, sizeof kSentence - 1);
  _exit(exit_status);
}

}  // namespace

void EndWhereMappedFilesAreLost(int status) {
  exit_status = status;
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace longheads
