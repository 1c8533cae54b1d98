// What the benchmarks of single kernels share: the machine's limits, which rates are told as shares of, and
// the comparison with the reference that comes before any timing.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <span>
#include <string>

#include "kernels/gemm.h"

namespace longheads {

// The most bytes a second that so many threads read from memory; measured at the first call.
double ReadLimit(int n_threads);
// The most operations a second of oneDNN's large products of `type` on one thread; of float32 where the
// processor has no instructions for the type. Measured at the first call.
double ProductLimit(ComputeType type);

// Whether out is within `bound` of expected, element by element, and finite. If not, the benchmark ends as
// failed and so does the program.
bool EqualsReference(benchmark::State& state, std::span<const float> out, std::span<const float> expected,
                     double bound);
bool AnyDiffered();

// Runs `once` as often as the benchmark asks. Its counters: `unit`, billions a second at the median run, with
// best_`unit`, and share_%, the best as a share of `limit`; a run does `amount`, and limit is amounts a
// second.
void Time(benchmark::State& state, const std::string& unit, double amount, double limit,
          const std::function<void()>& once);

void RegisterQuantised();
void RegisterInt8();
void RegisterAttention();

}  // namespace longheads
