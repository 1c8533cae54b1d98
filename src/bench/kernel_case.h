// What the cases of single kernels share: the comparison with the reference, and the timing.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "bench/kernels.h"
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
  // Medians of this machine: bytes a second that so many threads read from memory, and operations a second
  // of one thread's large products of a type.
  struct LimitsOf {
    std::function<double(int n_threads)> read;
    std::function<double(ComputeType type)> products;
  };

  // Those of the cases that are added whose name `filter` is found in.
  KernelCases(const KernelOptions& options, std::regex filter, LimitsOf limits, const CancelToken* cancel);
  ~KernelCases() { benchmark::ClearRegisteredBenchmarks(); }
  KernelCases(const KernelCases&) = delete;

  // One thread, and all where they are several.
  std::vector<int64_t> ThreadCounts() const {
    return options_.threads == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, options_.threads};
  }
  double ReadLimit(int n_threads) const { return limits_.read(n_threads); }
  double ProductLimit(ComputeType type) const { return limits_.products(type); }

  void Add(const std::string& name, const Shape& shape, Body body);
  std::size_t size() const { return n_cases_; }

  // Whether out is within `bound` of expected, element by element, and finite. If not, the case has failed.
  static bool IsRight(benchmark::State& state, std::span<const float> out, std::span<const float> expected,
                      double bound);

  // Runs `once` as often as asked; each does `amount`, of which the machine does `limit` a second.
  void Time(benchmark::State& state, KernelUnit unit, double amount, double limit,
            const std::function<void()>& once) const;

  // Runs all that were added; `on_row` hears of the share that is done.
  std::vector<KernelRow> Run(const std::function<void(double share)>& on_row = nullptr) const;

 private:
  KernelOptions options_;
  std::regex filter_;
  LimitsOf limits_;
  const CancelToken* cancel_;
  std::size_t n_cases_ = 0;
};

// The cases of each operation.
void AddQuantisedCases(KernelCases& cases);
void AddInt8Cases(KernelCases& cases);
void AddGemmCases(KernelCases& cases);
void AddAttentionCases(KernelCases& cases);
void AddVectorCases(KernelCases& cases);

}  // namespace longheads
