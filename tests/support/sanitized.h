// Whether this is a build under sanitizers: they look at what the code does and not at its numbers, and take
// many times as long, so some tests go through fewer combinations of what the plain build goes through whole.
#pragma once

namespace longheads {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace longheads
