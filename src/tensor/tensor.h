// Views (do not own) and buffers (own) of numbers in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "base/check.h"
#include "base/memory.h"
#include "tensor/dtype.h"

namespace longheads {

inline constexpr std::size_t kAlignment = kCacheLine;  // also the widest vector

// Owns `size` zeroed elements, aligned to a cache line. Moves; does not copy.
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(int64_t size) { Reset(size); }

  // Throws std::bad_alloc.
  void Reset(int64_t size) {
    LH_CHECK(size >= 0);
    data_.reset();
    size_ = 0;
    if (size == 0) return;
    data_.reset(static_cast<T*>(AllocateLines(sizeof(T) * static_cast<std::size_t>(size))));
    std::memset(static_cast<void*>(data_.get()), 0, sizeof(T) * static_cast<std::size_t>(size));
    size_ = size;
  }
  // At least `size` elements; the old contents are lost where it grows.
  void Reserve(int64_t size) {
    if (size > size_) Reset(size);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_.get()[i]; }
  const T& operator[](int64_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { FreeLines(p); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

// A weight as the file stores it: rows of a matrix, or one vector. Shape is outermost first.
struct TensorView {
  DType type = DType::kF32;
  int n_dims = 0;
  std::array<int64_t, 4> shape = {1, 1, 1, 1};
  const std::byte* data = nullptr;

  int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  int64_t rows() const { return n_dims >= 2 ? elements() / columns() : 1; }
  int64_t columns() const { return shape[n_dims > 0 ? n_dims - 1 : 0]; }  // contiguous
};

}  // namespace longheads
