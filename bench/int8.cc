// Integer products of every weight type that has them: of one row, in bytes of weights a second out of
// memory, and of the rows of a prompt with weights out of the cache, in operations a second. All
// implementations give the same bits.
#include "kernels/int8.h"

#include <random>

#include "kernels.h"

namespace longheads {
namespace {

void Multiply(benchmark::State& state, DType type, const Int8Kernels* kernels) {
  const int64_t n_rows = state.range(0);
  const int64_t k = Info(type).block == 256 ? 1536 : 576;
  const int64_t row_bytes = static_cast<int64_t>(*BytesOf(type, k));
  const int64_t n = n_rows == 1 ? (int64_t{128} << 20) / row_bytes / 16 * 16 : 192;
  Int8Weights weights(type, n, k);
  std::mt19937 random(1);
  // Exponents below the middle keep every scale finite, wherever a type has it.
  Buffer<std::byte> rows(n * row_bytes);
  for (int64_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(random() & 0x3F);
  for (int64_t tile = 0; tile < weights.n_tiles(); ++tile) weights.Pack(rows.data(), tile);
  Buffer<float> x(n_rows * k), y(n_rows * n), expected(n_rows * 16);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < x.size(); ++i) x[i] = normal(random);
  Buffer<int8_t> p(n_rows * k);
  std::vector<Int8BlockSums> blocks(static_cast<std::size_t>(n_rows * k / 32));
  for (int64_t row = 0; row < n_rows; ++row)
    kernels->quantise(x.data() + row * k, k, p.data() + row * k, blocks.data() + row * k / 32);
  const Int8Rows activations{.p = p.data(), .blocks = blocks.data(), .k = k};

  Buffer<float> first(n_rows * 16);
  Int8Implementations().back().table->multiply(weights, 0, 1, activations, n_rows, expected.data(), 16);
  kernels->multiply(weights, 0, 1, activations, n_rows, first.data(), 16);
  if (!EqualsReference(state, std::span(first.data(), static_cast<std::size_t>(first.size())),
                       std::span(expected.data(), static_cast<std::size_t>(expected.size())), 0))
    return;

  const bool reads = n_rows == 1;
  const double operations = 2.0 * static_cast<double>(n_rows * n * k);
  Time(state, reads ? "GB/s" : "GOP/s", reads ? static_cast<double>(Int8Weights::BytesFor(type, n, k)) : operations,
       reads ? ReadLimit(1) : ProductLimit(ComputeType::kInt8),
       [&] { kernels->multiply(weights, 0, weights.n_tiles(), activations, n_rows, y.data(), n); });
}

}  // namespace

void RegisterInt8() {
  for (const auto& implementation : Int8Implementations()) {
    if (!implementation.declined.empty() || implementation.name == "ref") continue;
    for (int i = 0; i < kDTypes; ++i) {
      const DType type = static_cast<DType>(i);
      if (!HasIntegers(type)) continue;
      const std::string name =
          "int8/" + std::string(implementation.name) + "/" + std::string(Info(type).name);
      benchmark::RegisterBenchmark(name.c_str(), Multiply, type, implementation.table)
          ->ArgName("rows")
          ->Arg(1)
          ->Arg(96)
          ->Unit(benchmark::kMicrosecond)
          ->Iterations(25);
    }
  }
}

}  // namespace longheads
