// Memory of a policy's state that grows, forks and shrinks cheaply: equal blocks of floats, aligned for
// kernels, shared between forks until one of them writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace longheads {

class SharedBlocks {
 public:
  explicit SharedBlocks(int64_t block_floats) : block_floats_(block_floats) {}

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t block_floats() const { return block_floats_; }
  uint64_t Bytes() const { return sizeof(float) * static_cast<uint64_t>(size() * block_floats_); }

  const float* operator[](int64_t block) const { return blocks_[static_cast<std::size_t>(block)]->data(); }
  // For writing: by now this owner's alone. Not thread-safe; the pointer may be written from any thread.
  float* Mutable(int64_t block) {
    auto& own = blocks_[static_cast<std::size_t>(block)];
    if (own.use_count() > 1) {
      auto copy = std::make_shared<Buffer<float>>(block_floats_);
      std::copy_n(own->data(), block_floats_, copy->data());
      own = std::move(copy);
    }
    return own->data();
  }
  // New blocks are zero.
  void Resize(int64_t n) {
    if (n < size()) blocks_.resize(static_cast<std::size_t>(n));
    while (size() < n) {
      blocks_.push_back(std::make_shared<Buffer<float>>(block_floats_));
    }
  }

 private:
  int64_t block_floats_;
  std::vector<std::shared_ptr<Buffer<float>>> blocks_;
};

}  // namespace longheads
