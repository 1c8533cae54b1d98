#include "base/checksum.h"

#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same function, by the widest vectors that the processor has
#endif

#include <memory>
#include <new>

namespace longheads {

uint64_t Checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t Checksum(std::span<const std::byte> first, std::span<const std::byte> second) {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  thread_local const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  if (state == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), first.data(), first.size());
  XXH3_64bits_update(state.get(), second.data(), second.size());
  return XXH3_64bits_digest(state.get());
}

}  // namespace longheads
