// LH_CHECK(condition): our own mistakes only; what a user or a file can cause returns an Error instead.
#pragma once

namespace longheads {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace longheads

#define LH_CHECK(condition)                                                     \
  do {                                                                          \
    if (!(condition)) ::longheads::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
