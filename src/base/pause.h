// For loops that look again and again whether another thread is done.
#pragma once

namespace longheads {

// Leaves the processor's resources to others for some cycles.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace longheads
