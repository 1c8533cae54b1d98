// Speed of the matrix-vector products of every weight type, as bytes of weights per second and as a share of
// what the machine can read from memory with as many threads.
//
//   longheads_bench_quantised [--benchmark_filter=Q4_1] [--benchmark_repetitions=9]
//
// The matrices are larger than the caches: about 128 MB of rows of 576, the width of the default model (of
// 1536 for the types with blocks of 256). Shares are of the median bandwidth measured just before.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/limits.h"
#include "kernels/quantised.h"
#include "tensor/tensor.h"

namespace longheads {
namespace {

constexpr int64_t kBytes = int64_t{128} << 20;
constexpr int64_t kRowsPerTask = 128;

double BandwidthOf(int n_threads) {
  static std::map<int, double> measured;
  if (!measured.count(n_threads)) {
    ThreadPool pool(n_threads);
    measured[n_threads] = MeasureRead(pool, /*repeats=*/9, nullptr)->median;
  }
  return measured[n_threads];
}

void RunGemv(benchmark::State& state, DType type, const QuantisedKernels* kernels) {
  const int n_threads = static_cast<int>(state.range(0));
  const int64_t k = Info(type).block == 256 ? 1536 : 576;
  const int64_t row_bytes = static_cast<int64_t>(*BytesOf(type, k));
  const int64_t n_rows = kBytes / row_bytes;
  const double bandwidth = BandwidthOf(n_threads);
  ThreadPool pool(n_threads);
  Buffer<std::byte> w(n_rows * row_bytes);
  std::mt19937 random(1);
  // Exponents below the middle keep every scale finite, wherever a type has it.
  for (int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::byte>(random() & 0x3F);
  Buffer<float> x(k), y(n_rows);
  for (int64_t i = 0; i < k; ++i) x[i] = static_cast<float>(i % 7) - 3.0f;

  double best = 0;
  std::vector<double> rates;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    pool.Run((n_rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
      const int64_t begin = task * kRowsPerTask, end = std::min(n_rows, begin + kRowsPerTask);
      kernels->gemv(type, w.data(), begin, end, k, x.data(), y.data() + begin);
    });
    benchmark::DoNotOptimize(y.data());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(w.size()) / seconds.count());
    best = std::max(best, rates.back());
  }
  std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2), rates.end());
  const double median = rates[rates.size() / 2];
  state.counters["GB/s"] = median / 1e9;
  state.counters["best_GB/s"] = best / 1e9;
  state.counters["read_GB/s"] = bandwidth / 1e9;
  state.counters["share_%"] = 100 * best / bandwidth;
}

}  // namespace
}  // namespace longheads

int main(int argc, char** argv) {
  using namespace longheads;
  for (const auto& implementation : QuantisedImplementations()) {
    if (!implementation.declined.empty()) continue;
    for (int i = 0; i < kDTypes; ++i) {
      const DType type = static_cast<DType>(i);
      const std::string name =
          "gemv/" + std::string(implementation.name) + "/" + std::string(Info(type).name);
      benchmark::RegisterBenchmark(name.c_str(), RunGemv, type, implementation.table)
          ->ArgName("threads")
          ->Arg(1)
          ->Arg(2)
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime()
          ->Iterations(25);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
