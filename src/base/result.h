// What every fallible call returns: a value, or an Error whose message a user can act on.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace longheads {

enum class ErrorKind {
  kInvalidInput,  // a file, an option or a request is wrong: the caller can mend it (exit code 2)
  kUnsupported,   // well formed, but nothing here handles it
  kOutOfMemory,   // the request needs more memory than there is
  kIo,            // the operating system refused: disk full, short read
  kCancelled,     // the caller asked to stop
};

struct Error {
  ErrorKind kind;
  std::string message;  // one sentence or more: what was wrong, where, what to change
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> MakeError(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error{kind, std::move(message)});
}
inline tl::unexpected<Error> InvalidInput(std::string message) {
  return MakeError(ErrorKind::kInvalidInput, std::move(message));
}
inline tl::unexpected<Error> Unsupported(std::string message) {
  return MakeError(ErrorKind::kUnsupported, std::move(message));
}

}  // namespace longheads

#define LH_CONCAT_INNER(a, b) a##b
#define LH_CONCAT(a, b) LH_CONCAT_INNER(a, b)

// LH_TRY(status): returns the error of a Status or Result to the caller.
#define LH_TRY(expression) LH_TRY_INNER(expression, LH_CONCAT(lh_status_, __LINE__))
#define LH_TRY_INNER(expression, name)                                  \
  do {                                                                  \
    auto name = (expression);                                           \
    if (!name) return tl::unexpected<::longheads::Error>(name.error()); \
  } while (false)

// LH_ASSIGN(auto x, result): x is the value, or the error goes to the caller.
#define LH_ASSIGN(target, expression) LH_ASSIGN_INNER(target, expression, LH_CONCAT(lh_result_, __LINE__))
#define LH_ASSIGN_INNER(target, expression, name)                     \
  auto name = (expression);                                           \
  if (!name) return tl::unexpected<::longheads::Error>(name.error()); \
  target = std::move(*name)
