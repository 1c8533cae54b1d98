#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include "cli/interrupt.h"
#include "tokenizer/utf8.h"

namespace longheads {
namespace {

constexpr std::size_t kBuffered = 64 << 10;

// What WriteOutput was given and stdout did not take yet. Not C's stdout: its writes may wait for a reader
// for ever, and an interrupt would not end them.
std::string pending;
std::optional<Error> failure;  // from then on nothing is written

Error CannotWrite() {
  return {ErrorKind::kIo, "standard output could not be written: is the disk full, or did its reader leave?"};
}

// Hands `pending` over, in pieces that a pipe takes without waiting where it takes anything.
void Drain() {
  std::size_t done = 0;
  while (done < pending.size() && !failure) {
    pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
    const bool interrupted = Cancelled(&InterruptToken());
    const int ready = poll(&out, 1, interrupted ? 0 : 100);
    if (ready == 0 || (ready < 0 && errno == EINTR)) {  // nobody reads at the moment
      if (interrupted)
        failure = {ErrorKind::kCancelled, "interrupted while standard output waited for its reader"};
      continue;
    }
    const ssize_t n =
        write(STDOUT_FILENO, pending.data() + done, std::min<std::size_t>(pending.size() - done, PIPE_BUF));
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR && errno != EAGAIN) {
      failure = CannotWrite();
    }
  }
  pending.clear();
}

std::string Cleaned(std::string_view text, bool lines) {
  std::string cleaned;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are C2 80 to C2 9F.
    const bool is_c1 =
        c == 0xc2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (is_c1) ++i;
    if (is_c1 || c == 0x7f || (c < 0x20 && !(lines && c == '\n'))) {
      cleaned += kReplacementCharacter;
    } else {
      cleaned += text[i];
    }
  }
  return cleaned;
}

}  // namespace

std::string OnOneLine(std::string_view text) { return Cleaned(text, /*lines=*/false); }
std::string WithoutControls(std::string_view text) { return Cleaned(text, /*lines=*/true); }

void WriteNote(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void WriteOutput(std::string_view text) {
  if (pending.size() >= kBuffered) {
    if (Cancelled(&InterruptToken())) failure = {ErrorKind::kCancelled, "interrupted"};  // much more may come
    Drain();
  }
  pending += text;
}

Status FlushOutput() {
  Drain();
  std::cout.flush();  // CLI11's help
  if (!failure && (std::fflush(stdout) != 0 || !std::cout)) failure = CannotWrite();
  if (failure) return tl::unexpected<Error>(*failure);
  return {};
}

}  // namespace longheads
