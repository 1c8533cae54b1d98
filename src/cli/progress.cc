#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/output.h"

namespace longheads {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

std::string FormatDuration(double seconds) {
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

Progress::Progress(std::string label, int64_t n_tokens)
    : label_(std::move(label)),
      n_tokens_(n_tokens),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      last_(start_) {}

double Progress::seconds() const { return Seconds(Clock::now() - start_); }

void Progress::operator()(double share) {
  const double renew = terminal_ ? 0.1 : 5.0;
  const Clock::time_point now = Clock::now();
  if (share <= 0 || Seconds(now - last_) < renew) return;
  last_ = now;
  const double elapsed = Seconds(now - start_);
  const double done = share * static_cast<double>(n_tokens_);
  const std::string tokens =
      n_tokens_ > 0 ? fmt::format(" of {} tokens, {:.0f} tokens/s", n_tokens_, done / elapsed) : "";
  const std::string line = fmt::format("{}: {:3.0f} %{}, {} left", label_, 100 * share, tokens,
                                       FormatDuration(elapsed * (1 - share) / share));
  if (terminal_) {
    Note("\r\033[K{}", line);
  } else {
    Note("{}\n", line);
  }
  shown_ = true;
}

void Progress::Finish() {
  if (terminal_ && shown_) Note("\r\033[K");
}

}  // namespace longheads
