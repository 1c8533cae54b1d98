// Speed of single kernels, after each has given what the reference gives: as rates, and as shares of what
// this machine reads from memory or multiplies, measured just before.
//
//   longheads_bench_kernels [--benchmark_filter=attend] [--benchmark_repetitions=9]
#include "kernels.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "bench/limits.h"

namespace longheads {
namespace {

bool any_differed = false;

const MachineLimits& LimitsOf(int n_threads) {
  static std::map<int, MachineLimits> measured;
  if (!measured.count(n_threads)) {
    ThreadPool pool(n_threads);
    measured[n_threads] = *MeasureLimits(pool, /*repeats=*/5, nullptr);
  }
  return measured[n_threads];
}

}  // namespace

double ReadLimit(int n_threads) { return LimitsOf(n_threads).read.high; }

double ProductLimit(ComputeType type) { return LimitsOf(1).products(type).high; }

bool EqualsReference(benchmark::State& state, std::span<const float> out, std::span<const float> expected,
                     double bound) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::abs(static_cast<double>(out[i]) - expected[i]) <= bound) continue;
    any_differed = true;
    state.SkipWithError(
        ("gives " + std::to_string(out[i]) + " where ref gives " + std::to_string(expected[i])).c_str());
    return false;
  }
  return true;
}

bool AnyDiffered() { return any_differed; }

void Time(benchmark::State& state, const std::string& unit, double amount, double limit,
          const std::function<void()>& once) {
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    once();
    benchmark::ClobberMemory();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (seconds.empty()) return;
  std::sort(seconds.begin(), seconds.end());
  state.counters[unit] = amount / seconds[seconds.size() / 2] / 1e9;
  state.counters["best_" + unit] = amount / seconds[0] / 1e9;
  state.counters["share_%"] = 100 * amount / seconds[0] / limit;
}

}  // namespace longheads

int main(int argc, char** argv) {
  longheads::RegisterQuantised();
  longheads::RegisterInt8();
  longheads::RegisterAttention();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return longheads::AnyDiffered() ? 1 : 0;
}
