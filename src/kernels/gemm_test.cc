#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/tensor.h"
#include "tests/support/emulated_amx.h"
#include "tests/support/sanitized.h"

namespace longheads {
namespace {

constexpr std::string_view kEmulated = "emulated_amx";

struct Product {
  std::unique_ptr<Gemm> gemm;
  Buffer<std::byte> packed;
  std::vector<float> weights;

  Product(const GemmKernels& kernels, int64_t k, int64_t n, ComputeType type) : weights(k * n) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& w : weights) w = normal(random);
    gemm = kernels.create(k, n, type, FastestVectorKernels(), 2);
    packed.Reset(gemm->n_panels() * gemm->panel_stride());
    for (int64_t panel = 0; panel < gemm->n_panels(); ++panel) {
      std::vector<float> rows(weights.begin() + panel * Gemm::kPanel * k,
                              weights.begin() + (panel * Gemm::kPanel + gemm->panel_width(panel)) * k);
      gemm->Pack(panel, rows.data(), packed.data() + panel * gemm->panel_stride(), 1);
    }
  }

  void Multiply(const float* x, int64_t n_rows, float* y) const {
    const int64_t k = gemm->k(), n = gemm->n();
    Buffer<std::byte> rows(Gemm::kTileRows * gemm->row_bytes());
    for (int64_t row = 0; row < Gemm::kTileRows; ++row) {
      // In pieces, as outputs of another product come.
      for (int64_t column = 0; column < k; column += 3 * Gemm::kColumnUnit)
        gemm->Place(x + row * k + column, std::min(3 * Gemm::kColumnUnit, k - column), row, column,
                    rows.data());
    }
    for (int64_t panel = 0; panel < gemm->n_panels(); ++panel) {
      gemm->Multiply(panel, rows.data(), packed.data() + panel * gemm->panel_stride(), n_rows,
                     y + panel * Gemm::kPanel, n, 0);
    }
  }
};

class GemmTest : public testing::TestWithParam<Implementation<GemmKernels>> {
 protected:
  void SetUp() override {
    if (!GetParam().declined.empty()) GTEST_SKIP() << GetParam().declined;
    // ctest gives each test a process of its own.
    if (GetParam().name == kEmulated) return;
    if (!LimitGemm(GetParam().name)) GTEST_SKIP() << "another test of this process has used oneDNN already";
  }
  static std::vector<ComputeType> Types() {
    if (GetParam().name == kEmulated) return {ComputeType::kBF16};
    return {ComputeType::kF32, ComputeType::kBF16};
  }
};

std::vector<float> RandomRows(int64_t k) {
  std::vector<float> x(Gemm::kTileRows * k);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);
  return x;
}

TEST_P(GemmTest, EqualsFloat64WithinItsRoundings) {
  for (const ComputeType type : Types()) {
    for (const auto& [k, n] :
         {std::pair<int64_t, int64_t>{64, 8}, {576, 576}, {100, 193}, {576, 192}, {33, 500}}) {
      const Product product(*GetParam().table, k, n, type);
      const std::vector<float> x = RandomRows(k);
      std::vector<float> y(Gemm::kTileRows * n, -1);
      product.Multiply(x.data(), 50, y.data());
      // k terms of size 1. Sums: partial sums of size up to 3 sqrt(k), each rounded by 2^-24 of itself, k
      // times: a walk of 2^-24 k. bfloat16: each factor off by up to 2^-9 of itself. Five standard deviations
      // of either.
      const double sums = 5 * static_cast<double>(k) * 0x1p-24;
      const double factors = type == ComputeType::kBF16 ? 5 * std::sqrt(static_cast<double>(k)) * 0x1p-8 : 0;
      const double tolerance = sums + factors + 1e-6;
      for (int64_t row = 0; row < 50; ++row) {
        for (int64_t c = 0; c < n; ++c) {
          double expected = 0;
          for (int64_t i = 0; i < k; ++i)
            expected += static_cast<double>(x[row * k + i]) * product.weights[c * k + i];
          ASSERT_NEAR(y[row * n + c], expected, tolerance)
              << k << "x" << n << " row " << row << " column " << c;
        }
      }
      EXPECT_EQ(y[50 * n], -1);  // rows that are not real are not written
    }
  }
}

// Promise 3 of the house: the blocks of the prefill do not show in the result.
TEST_P(GemmTest, ARowDoesNotFeelItsPlaceInTheTile) {
  for (const ComputeType type : Types()) {
    for (const auto& [k, n] :
         {std::pair<int64_t, int64_t>{576, 576}, {1536, 576}, {576, 1536}, {64, 200}, {100, 24}}) {
      if (kSanitized && k != n && k > 100) continue;
      const Product product(*GetParam().table, k, n, type);
      const std::vector<float> x = RandomRows(k);
      std::vector<float> whole(Gemm::kTileRows * n);
      product.Multiply(x.data(), Gemm::kTileRows, whole.data());
      for (const int64_t shift : {1, 2, 3, 5, 8, 13, 47, 64, 95}) {
        std::vector<float> moved(Gemm::kTileRows * k, 1e30f);
        const int64_t n_rows = Gemm::kTileRows - shift;
        std::memcpy(moved.data(), x.data() + shift * k, sizeof(float) * n_rows * k);
        std::vector<float> y(Gemm::kTileRows * n);
        product.Multiply(moved.data(), n_rows, y.data());
        ASSERT_EQ(0, std::memcmp(y.data(), whole.data() + shift * n, sizeof(float) * n_rows * n))
            << k << " " << shift;
      }
    }
  }
}

std::vector<Implementation<GemmKernels>> Candidates() {
  const auto all = GemmImplementations();
  std::vector<Implementation<GemmKernels>> list(all.begin(), all.end());
  list.push_back(EmulatedAmxGemm());
  return list;
}

INSTANTIATE_TEST_SUITE_P(Every, GemmTest, testing::ValuesIn(Candidates()),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace longheads
