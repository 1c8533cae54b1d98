// How far long work is, on stderr: one line that renews itself on a terminal, else a plain line every
// few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace longheads {

class Progress {
 public:
  // Of so many tokens; 0: it is not of tokens.
  explicit Progress(std::string label, int64_t n_tokens = 0);

  // The share of the work that is done, 0 .. 1.
  void operator()(double share);
  // Clears the line on a terminal.
  void Finish();

  double seconds() const;

 private:
  std::string label_;
  int64_t n_tokens_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

// "12 s", "3 min 05 s", "2 h 10 min".
std::string FormatDuration(double seconds);

}  // namespace longheads
