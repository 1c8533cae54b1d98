// Integer products of every weight type that has them: of one row, in bytes of weights a second out of
// memory, and of the rows of a prompt with weights out of the cache, in operations a second; and of the
// vocabulary of the default model (30 MB: near what some caches hold, where they read it faster than memory),
// as a generated token meets it. All implementations give the same bits.
#include <fmt/format.h>

#include <random>

#include "base/thread_pool.h"
#include "bench/kernel_case.h"
#include "kernels/int8.h"

namespace longheads {
namespace {

constexpr int64_t kTile = Int8Weights::kTile;

// Random weights [n, k] of a type, and rows of activations that were rounded for them.
struct Operands {
  Int8Weights weights;
  Buffer<int8_t> p;
  std::vector<Int8BlockSums> blocks;
  int64_t n_rows;

  Operands(DType type, int64_t n, int64_t k, int64_t rows, const Int8Kernels& kernels)
      : weights(type, n, k), p(rows * k), blocks(static_cast<std::size_t>(rows * k / 32)), n_rows(rows) {
    std::mt19937 random(1);
    // Exponents below the middle keep every scale finite, wherever a type has it.
    Buffer<std::byte> stored(n * static_cast<int64_t>(*BytesOf(type, k)));
    for (int64_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<std::byte>(random() & 0x3F);
    for (int64_t tile = 0; tile < weights.n_tiles(); ++tile) weights.Pack(stored.data(), tile);
    Buffer<float> x(rows * k);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < x.size(); ++i) x[i] = normal(random);
    for (int64_t row = 0; row < rows; ++row)
      kernels.quantise(x.data() + row * k, k, p.data() + row * k, blocks.data() + row * k / 32);
  }

  Int8Rows rows() const { return {.p = p.data(), .blocks = blocks.data(), .k = weights.k()}; }

  // Whether the first tile's outputs are the reference's, bit by bit.
  bool AreRight(benchmark::State& state, const Int8Kernels& kernels) const {
    std::vector<float> out(static_cast<std::size_t>(n_rows * kTile)), expected(out.size());
    Int8Implementations().back().table->multiply(weights, 0, 1, rows(), n_rows, expected.data(), kTile);
    kernels.multiply(weights, 0, 1, rows(), n_rows, out.data(), kTile);
    return KernelCases::IsRight(state, out, expected, 0);
  }
};

int64_t ColumnsFor(DType type) { return Info(type).block == 256 ? 1536 : 576; }

// Of a generated token: all threads read the weights as the engine has them do.
void ReadOneRow(benchmark::State& state, const KernelCases& cases, const Int8Kernels& kernels, DType type,
                int64_t n, int64_t k) {
  const int n_threads = static_cast<int>(state.range(0));
  const Operands operands(type, n, k, 1, kernels);
  if (!operands.AreRight(state, kernels)) return;
  Buffer<float> y(n);
  ThreadPool pool(n_threads);
  cases.Time(state, KernelUnit::kBytes, static_cast<double>(Int8Weights::BytesFor(type, n, k)),
             cases.ReadLimit(n_threads), [&] {
               pool.RunRanges(operands.weights.n_tiles(), [&](int64_t begin, int64_t end, int) {
                 kernels.multiply(operands.weights, begin, end, operands.rows(), 1, y.data() + begin * kTile,
                                  n);
               });
             });
}

// Of a prompt: one thread's task, with weights in cache.
void MultiplyRows(benchmark::State& state, const KernelCases& cases, const Int8Kernels& kernels, DType type) {
  const int64_t n_rows = state.range(0), n = 192, k = ColumnsFor(type);
  const Operands operands(type, n, k, n_rows, kernels);
  if (!operands.AreRight(state, kernels)) return;
  Buffer<float> y(n_rows * n);
  cases.Time(state, KernelUnit::kOperations, 2.0 * static_cast<double>(n_rows * n * k),
             cases.ProductLimit(ComputeType::kInt8), [&] {
               kernels.multiply(operands.weights, 0, operands.weights.n_tiles(), operands.rows(), n_rows,
                                y.data(), n);
             });
}

}  // namespace

void AddInt8Cases(KernelCases& cases) {
  KernelCases::Shape threads{.names = {"threads"}, .values = {}};
  for (const int64_t n : cases.ThreadCounts()) threads.values.push_back({n});
  for (const auto& implementation : Int8Implementations()) {
    if (!implementation.declined.empty() || implementation.name == "ref") continue;
    const Int8Kernels& kernels = *implementation.table;
    const auto name_of = [&](const char* operation, DType type) {
      return fmt::format("{}/{}/{}", operation, implementation.name, Info(type).name);
    };
    for (int i = 0; i < kDTypes; ++i) {
      const DType type = static_cast<DType>(i);
      if (!HasIntegers(type)) continue;
      cases.Add(name_of("int8-token", type), threads, [&cases, &kernels, type](benchmark::State& state) {
        constexpr int64_t kBytes = int64_t{128} << 20;  // more than caches hold
        const int64_t k = ColumnsFor(type);
        const int64_t n = kBytes / static_cast<int64_t>(*BytesOf(type, k)) / kTile * kTile;
        ReadOneRow(state, cases, kernels, type, n, k);
      });
      cases.Add(
          name_of("int8-prompt", type), {.names = {"rows"}, .values = {{96}}},
          [&cases, &kernels, type](benchmark::State& state) { MultiplyRows(state, cases, kernels, type); });
    }
    cases.Add(name_of("vocabulary", DType::kQ8_0), threads, [&cases, &kernels](benchmark::State& state) {
      ReadOneRow(state, cases, kernels, DType::kQ8_0, /*n=*/49152, /*k=*/576);
    });
  }
}

}  // namespace longheads
