#include "tests/support/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace longheads {
namespace {

std::atomic<int64_t> count{0};
std::atomic<int64_t> failing{-1};  // the request, counted from the program's beginning
std::atomic<bool> failed{false};

void* Allocate(std::size_t size, std::size_t alignment) {
  if (count.fetch_add(1) + 1 == failing.load()) {
    failed = true;
    throw std::bad_alloc();
  }
  size = size == 0 ? 1 : size;
  void* p = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    p = std::malloc(size);
  } else if (posix_memalign(&p, alignment, size) != 0) {  // no byte more, which a sanitizer would not watch
    p = nullptr;
  }
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void* AllocateOrNull(std::size_t size, std::size_t alignment) noexcept {
  try {
    return Allocate(size, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

int64_t AllocationCount() { return count.load(); }

void FailAllocation(int64_t k) {
  failed = false;
  failing = k == 0 ? -1 : count.load() + k;
}

bool AllocationFailed() { return failed.load(); }

}  // namespace longheads

// NOLINTBEGIN: all forms, so that a sanitizer's own never meet ours.
using longheads::Allocate;
using longheads::AllocateOrNull;
void* operator new(std::size_t n) { return Allocate(n, 1); }
void* operator new[](std::size_t n) { return Allocate(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) { return Allocate(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return Allocate(n, static_cast<std::size_t>(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return AllocateOrNull(n, 1); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return AllocateOrNull(n, 1); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return AllocateOrNull(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return AllocateOrNull(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
// NOLINTEND

// oneDNN itself loses what it had allocated when an allocation of its own fails while it makes a primitive;
// ours is looked for all the same.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libdnnl.so\n"; }
