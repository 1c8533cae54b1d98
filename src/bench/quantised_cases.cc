// Matrix-vector products of every weight type, in bytes of weights a second. The matrices are larger than the
// caches: about 128 MB of rows of 576, the width of the default model (of 1536 for the types with blocks of
// 256).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/thread_pool.h"
#include "bench/kernel_case.h"
#include "kernels/quantised.h"
#include "tensor/tensor.h"

namespace longheads {
namespace {

constexpr int64_t kBytes = int64_t{128} << 20;
constexpr int64_t kRowsPerTask = 128;

void Gemv(benchmark::State& state, const KernelCases& cases, const QuantisedKernels* kernels, DType type) {
  const int n_threads = static_cast<int>(state.range(0));
  const int64_t k = Info(type).block == 256 ? 1536 : 576;
  const int64_t row_bytes = static_cast<int64_t>(*BytesOf(type, k));
  const int64_t n_rows = kBytes / row_bytes;
  ThreadPool pool(n_threads);
  Buffer<std::byte> w(n_rows * row_bytes);
  std::mt19937 random(1);
  // Exponents below the middle keep every scale finite, wherever a type has it.
  for (int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::byte>(random() & 0x3F);
  Buffer<float> x(k), y(n_rows), expected(kRowsPerTask);
  for (int64_t i = 0; i < k; ++i) x[i] = static_cast<float>(i % 7) - 3.0f;

  QuantisedImplementations().back().table->gemv(type, w.data(), 0, kRowsPerTask, k, x.data(),
                                                expected.data());
  kernels->gemv(type, w.data(), 0, kRowsPerTask, k, x.data(), y.data());
  // The same products, summed in another order: 2^-23 of the sum of magnitudes for each of k sums.
  Buffer<float> weights(k);
  double bound = 0;
  for (int64_t row = 0; row < kRowsPerTask; ++row) {
    kernels->dequantize(type, w.data() + row * row_bytes, k, weights.data());
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += std::abs(static_cast<double>(weights[i]) * x[i]);
    bound = std::max(bound, sum * static_cast<double>(k) * 0x1p-23);
  }
  if (!KernelCases::IsRight(state, std::span(y.data(), kRowsPerTask),
                            std::span(expected.data(), kRowsPerTask), bound)) {
    return;
  }
  cases.Time(state, KernelUnit::kBytes, static_cast<double>(w.size()), cases.ReadLimit(n_threads), [&] {
    pool.Run((n_rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
      const int64_t begin = task * kRowsPerTask, end = std::min(n_rows, begin + kRowsPerTask);
      kernels->gemv(type, w.data(), begin, end, k, x.data(), y.data() + begin);
    });
  });
}

}  // namespace

void AddQuantisedCases(KernelCases& cases) {
  KernelCases::Shape threads{.names = {"threads"}, .values = {}};
  for (const int64_t n : cases.ThreadCounts()) threads.values.push_back({n});
  for (const auto& implementation : QuantisedImplementations()) {
    if (!implementation.declined.empty() || implementation.name == "ref") continue;
    for (int i = 0; i < kDTypes; ++i) {
      const DType type = static_cast<DType>(i);
      cases.Add(fmt::format("gemv/{}/{}", implementation.name, Info(type).name), threads,
                [&cases, kernels = implementation.table, type](benchmark::State& state) {
                  Gemv(state, cases, kernels, type);
                });
    }
  }
}

}  // namespace longheads
