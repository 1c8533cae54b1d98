// Random numbers for the making of samples: the same on every machine, from a seed and the numbers that say
// which sample it is.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace longheads {

// One step of SplitMix64 (Steele et al. 2014): its output from this state.
inline uint64_t SplitMix64(uint64_t state) {
  uint64_t z = state + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

class SampleRandom {
 public:
  SampleRandom(uint64_t seed, std::initializer_list<int64_t> which) : state_(seed) {
    for (const int64_t number : which) state_ = SplitMix64(state_ ^ static_cast<uint64_t>(number));
  }

  uint64_t Next() {
    const uint64_t value = SplitMix64(state_);
    state_ += 0x9e3779b97f4a7c15;
    return value;
  }
  // 0 .. n-1. The bias of the remainder is below n / 2^64.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }

  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (std::size_t n = values.size(); n > 1; --n) {
      std::swap(values[n - 1], values[static_cast<std::size_t>(Below(static_cast<int64_t>(n)))]);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace longheads
