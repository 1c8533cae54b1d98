// FNV-1a over words of 8 bytes: tells changes by accident, not by intent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace longheads {

class WordHash {
 public:
  void Add(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    for (; bytes > 0; at += std::min<std::size_t>(bytes, 8), bytes -= std::min<std::size_t>(bytes, 8)) {
      uint64_t word = 0;
      std::memcpy(&word, at, std::min<std::size_t>(bytes, 8));
      value_ = (value_ ^ word) * 0x100000001b3;
      value_ ^= value_ >> 29;  // FNV alone carries nothing downwards
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace longheads
