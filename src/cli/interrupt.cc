#include "cli/interrupt.h"

#include <csignal>

namespace longheads {
namespace {

CancelToken token;

void OnSignal(int) { token.Cancel(); }

}  // namespace

const CancelToken& InterruptToken() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = OnSignal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal does what it does by default
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    return true;
  }();
  static_cast<void>(installed);
  return token;
}

}  // namespace longheads
