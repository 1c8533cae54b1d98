// Whether this is a build under sanitizers: they look at what the code does and not at its numbers, and take
// many times as long, so some tests go through fewer combinations of what the plain build goes through whole.
#pragma once

namespace longheads {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // clang
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace longheads
