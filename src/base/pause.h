// Waiting for another thread by looking again and again: where it takes less time than to sleep and be woken.
#pragma once

#include <mutex>

namespace longheads {

// Leaves the processor's resources to others for some cycles.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether `there()` was true at one of so many looks.
template <typename There>
bool LookFor(int looks, const There& there) {
  for (; looks > 0; --looks) {
    if (there()) return true;
    Pause();
  }
  return false;
}

// A mutex that everybody holds for a moment only: sleeps for it after a while, some 20 microseconds.
inline std::unique_lock<std::mutex> LockSoon(std::mutex& mutex) {
  std::unique_lock lock(mutex, std::defer_lock);
  if (!LookFor(1000, [&lock] { return lock.try_lock(); })) lock.lock();
  return lock;
}

}  // namespace longheads
