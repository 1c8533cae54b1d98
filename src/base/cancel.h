// A flag that one thread raises and long work on other threads looks at.
#pragma once

#include <atomic>

namespace longheads {

class CancelToken {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }  // async-signal-safe
  void Reset() { cancelled_.store(false, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
  static_assert(std::atomic<bool>::is_always_lock_free);
};

// Work that nobody cancels has no token.
inline bool Cancelled(const CancelToken* token) { return token != nullptr && token->cancelled(); }

}  // namespace longheads
