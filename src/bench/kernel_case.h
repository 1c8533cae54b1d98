// What the cases of single kernels share: the comparison with the reference, and the timing.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "kernels/gemm.h"

namespace longheads {

enum class KernelUnit : uint8_t { kBytes, kOperations };

class KernelCases {
 public:
  // A case is a benchmark's body. It asks IsRight before it calls Time, which is its last call.
  using Body = std::function<void(benchmark::State&)>;
  struct Shape {
    std::vector<std::string> names;
    std::vector<std::vector<int64_t>> values;  // one case for each
  };

  // `limit_of` gives the median of what so many threads read from memory in bytes a second, or of the
  // operations a second of one thread's products of a type.
  KernelCases(int n_threads, int repeats, const CancelToken* cancel,
              std::function<double(int n_threads)> read_limit,
              std::function<double(ComputeType type)> product_limit)
      : n_threads_(n_threads),
        repeats_(repeats),
        cancel_(cancel),
        read_limit_(std::move(read_limit)),
        product_limit_(std::move(product_limit)) {}

  // One thread, and all where they are several.
  std::vector<int64_t> ThreadCounts() const {
    return n_threads_ == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, n_threads_};
  }
  int n_threads() const { return n_threads_; }
  double ReadLimit(int n_threads) const { return read_limit_(n_threads); }
  double ProductLimit(ComputeType type) const { return product_limit_(type); }

  void Add(const std::string& name, const Shape& shape, Body body);

  // Whether out is within `bound` of expected, element by element, and finite. If not, the case has failed.
  static bool IsRight(benchmark::State& state, std::span<const float> out, std::span<const float> expected,
                      double bound);

  // Runs `once` as often as asked; each does `amount`, of which the machine does `limit` a second.
  void Time(benchmark::State& state, KernelUnit unit, double amount, double limit,
            const std::function<void()>& once) const;

 private:
  int n_threads_;
  int repeats_;
  const CancelToken* cancel_;
  std::function<double(int)> read_limit_;
  std::function<double(ComputeType)> product_limit_;
};

// The cases of each operation.
void AddQuantisedCases(KernelCases& cases);
void AddInt8Cases(KernelCases& cases);
void AddGemmCases(KernelCases& cases);
void AddAttentionCases(KernelCases& cases);

}  // namespace longheads
