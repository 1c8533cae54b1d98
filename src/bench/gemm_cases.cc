// A prompt's float products: one tile of rows by one panel of outputs, as a thread multiplies them, beside
// oneDNN's own large products. Of the implementation that the engine takes here, since oneDNN chooses once in
// a process.
#include <fmt/format.h>

#include <random>

#include "bench/kernel_case.h"
#include "tensor/tensor.h"

namespace longheads {
namespace {

constexpr int64_t kColumns = 576;  // of the default model

Buffer<float> RandomNumbers(int64_t n, uint32_t seed) {
  Buffer<float> numbers(n);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n; ++i) numbers[i] = normal(random);
  return numbers;
}

// The product of one implementation, with all that it reads in its own layout.
class Tile {
 public:
  Tile(const GemmKernels& kernels, ComputeType type)
      : gemm_(kernels.create(kColumns, Gemm::kPanel, type, FastestVectorKernels(), /*n_threads=*/1)),
        rows_(Gemm::kTileRows * gemm_->row_bytes()),
        packed_(gemm_->panel_stride()),
        y_(Gemm::kTileRows * Gemm::kPanel) {
    Buffer<float> weights = RandomNumbers(Gemm::kPanel * kColumns, 2);
    gemm_->Pack(0, weights.data(), packed_.data(), /*thread=*/0);
    const Buffer<float> x = RandomNumbers(Gemm::kTileRows * kColumns, 1);
    for (int64_t row = 0; row < Gemm::kTileRows; ++row)
      gemm_->Place(x.data() + row * kColumns, kColumns, row, /*column=*/0, rows_.data());
  }

  void Multiply() {
    gemm_->Multiply(0, rows_.data(), packed_.data(), Gemm::kTileRows, y_.data(), Gemm::kPanel, /*thread=*/0);
  }
  std::span<const float> y() const { return {y_.data(), static_cast<std::size_t>(y_.size())}; }

 private:
  std::unique_ptr<Gemm> gemm_;
  Buffer<std::byte> rows_, packed_;
  Buffer<float> y_;
};

void Multiply(benchmark::State& state, const KernelCases& cases, const GemmKernels& kernels,
              ComputeType type) {
  Tile tile(kernels, type), expected(*GemmImplementations().back().table, type);
  tile.Multiply();
  expected.Multiply();
  // The same products in another order: 2^-23 of the sum of magnitudes, some kColumns, for each of the sums.
  constexpr double kBound = 0x1p-23 * kColumns * kColumns;
  if (!KernelCases::IsRight(state, tile.y(), expected.y(), kBound)) return;
  cases.Time(state, KernelUnit::kOperations, 2.0 * Gemm::kTileRows * Gemm::kPanel * kColumns,
             cases.ProductLimit(type), [&] { tile.Multiply(); });
}

}  // namespace

void AddGemmCases(KernelCases& cases) {
  const auto chosen = ChooseImplementation(GemmImplementations(), "auto", "products");
  if (!chosen) return;
  const KernelCases::Shape rows{.names = {"rows"}, .values = {{Gemm::kTileRows}}};
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBF16}) {
    if (type == ComputeType::kBF16 && !chosen->table->native_bf16) continue;
    cases.Add(fmt::format("gemm/{}/{}", chosen->name, NameOf(type)), rows,
              [&cases, &kernels = *chosen->table, type](benchmark::State& state) {
                Multiply(state, cases, kernels, type);
              });
  }
}

}  // namespace longheads
