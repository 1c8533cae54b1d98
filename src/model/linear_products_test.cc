#include "model/linear_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/support/random_weights.h"

namespace longheads {
namespace {

constexpr int64_t kEmbed = 64, kValues = 32, kFfn = 224;  // a panel and a sixth
constexpr float kEpsilon = 1e-5f;

// A layer that mixes weights with integers and without, as files do.
class LinearProductsTest : public testing::TestWithParam<ComputeType> {
 protected:
  LinearProductsTest()
      : products_({.gemm = *Chosen(GemmImplementations()),
                   .int8 = *Chosen(Int8Implementations()),
                   .quantised = quantised_,
                   .vector = vector_},
                  GetParam(), /*keep_packed=*/false, pool_) {
    LayerWeights& layer = model_.layers.emplace_back();
    Fill(layer.q, DType::kQ4_1, kEmbed, kEmbed);
    Fill(layer.k, DType::kF32, kValues, kEmbed);
    Fill(layer.v, DType::kQ8_0, kValues, kEmbed);
    Fill(layer.o, DType::kQ4_0, kEmbed, kEmbed);
    Fill(layer.gate, DType::kQ4_1, kFfn, kEmbed);
    Fill(layer.up, DType::kF32, kFfn, kEmbed);
    Fill(layer.down, DType::kQ4_1, kEmbed, kFfn);
    Fill(model_.output, DType::kF32, 16, kEmbed);
    layer.ffn_norm = Numbers(kEmbed);
    layer.v.bias = Numbers(kValues);
    layer.up.bias = Numbers(kFfn);
    layer.down.bias = Numbers(kEmbed);
    products_.Prepare(model_);
  }

  template <typename Kernels>
  static const Kernels* Chosen(std::span<const Implementation<Kernels>> all) {
    return ChooseImplementation(all, "auto", "a test")->table;
  }

  std::vector<float> Numbers(int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<std::size_t>(n));
    for (float& number : numbers) number = normal(random_);
    return numbers;
  }

  void Fill(LinearWeights& linear, DType type, int64_t n, int64_t k) {
    bytes_.push_back(RandomWeights(random_, type, n * k));
    linear.w = {.type = type, .n_dims = 2, .shape = {n, k, 1, 1}, .data = bytes_.back().data()};
  }

  const LayerWeights& layer() const { return model_.layers[0]; }

  // x [n_rows, kEmbed] W^T + b in float64, and the sums of the terms' magnitudes.
  std::pair<std::vector<double>, std::vector<double>> Exact(const LinearWeights& linear,
                                                            const std::vector<float>& x) const {
    const int64_t n = linear.n_out(), k = linear.n_in(), n_rows = static_cast<int64_t>(x.size()) / k;
    std::vector<float> w(static_cast<std::size_t>(n * k));
    quantised_.dequantize(linear.w.type, linear.w.data, n * k, w.data());
    std::vector<double> y, magnitudes;
    for (int64_t row = 0; row < n_rows; ++row) {
      double largest = 0;
      for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(double{x[row * k + i]}));
      for (int64_t output = 0; output < n; ++output) {
        double sum = linear.bias.empty() ? 0 : linear.bias[output], magnitude = 0;
        for (int64_t i = 0; i < k; ++i) {
          sum += double{x[row * k + i]} * w[output * k + i];
          magnitude += largest * std::fabs(double{w[output * k + i]});
        }
        y.push_back(sum);
        magnitudes.push_back(magnitude);
      }
    }
    return {y, magnitudes};
  }

  std::vector<float> Normed(const std::vector<float>& x, const std::vector<float>& norm) const {
    std::vector<float> normed(x.size());
    for (std::size_t i = 0; i < x.size(); i += norm.size()) {
      vector_.rms_norm(x.data() + i, norm.data(), kEpsilon, static_cast<int64_t>(norm.size()),
                       normed.data() + i);
    }
    return normed;
  }

  std::mt19937 random_{1};
  std::vector<std::vector<std::byte>> bytes_;
  ModelWeights model_;
  ThreadPool pool_{2};
  const QuantisedKernels& quantised_ = *Chosen(QuantisedImplementations());
  const VectorKernels& vector_ = FastestVectorKernels();
  LinearProducts products_;
};

TEST_P(LinearProductsTest, OfNormedRowsEqualFloat64WithinTheirRoundings) {
  // A factor's rounding, of the largest activation, in one factor or in both; and float32's sums.
  const double rounding = GetParam() == ComputeType::kF32    ? 0
                          : GetParam() == ComputeType::kInt8 ? 1.0 / 254
                                                             : 0x1p-8;
  for (const int64_t n_rows : {1, 20, 97, 200}) {
    const std::vector<float> x = Numbers(n_rows * kEmbed);
    std::vector<float> q(n_rows * kEmbed), k(n_rows * kValues), v(n_rows * kValues);
    const LinearOutput outputs[] = {{&layer().q, q.data()}, {&layer().k, k.data()}, {&layer().v, v.data()}};
    const LinearInput input{.x = x.data(), .norm = layer().ffn_norm.data(), .epsilon = kEpsilon};
    products_.Project(input, outputs, n_rows, nullptr);
    const std::vector<float> normed = Normed(x, layer().ffn_norm);
    for (const LinearOutput& output : outputs) {
      const auto [exact, magnitudes] = Exact(*output.weights, normed);
      for (std::size_t i = 0; i < exact.size(); ++i)
        ASSERT_NEAR(output.y[i], exact[i], (rounding + 0x1p-18) * magnitudes[i]) << n_rows << " " << i;
    }
  }
}

// The same bits as its products one by one, whatever the number of rows; sums may be the rows themselves.
TEST_P(LinearProductsTest, FeedForwardIsWhatItsPartsAre) {
  for (const int64_t n_rows : {1, 20, 97, 200}) {
    const std::vector<float> before = Numbers(n_rows * kEmbed);
    std::vector<float> gate(n_rows * kFfn), up(n_rows * kFfn), expected = before, sums = before;
    const std::vector<float> normed = Normed(before, layer().ffn_norm);
    const LinearOutput outputs[] = {{&layer().gate, gate.data()}, {&layer().up, up.data()}};
    products_.Project({.x = normed.data()}, outputs, n_rows, nullptr);
    vector_.silu_mul(gate.data(), up.data(), n_rows * kFfn);
    products_.AddProjection({.x = gate.data()}, {&layer().down, expected.data()}, n_rows, nullptr);
    products_.AddFeedForward({.x = sums.data(), .norm = layer().ffn_norm.data(), .epsilon = kEpsilon},
                             layer(), sums.data(), n_rows, nullptr);
    EXPECT_EQ(0, std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(float))) << n_rows;
    EXPECT_NE(sums, before);
  }
}

TEST_P(LinearProductsTest, StopWhereTheyAreCancelled) {
  CancelToken cancel;
  cancel.Cancel();
  const std::vector<float> before = Numbers(200 * kEmbed);
  std::vector<float> sums = before;
  products_.AddFeedForward({.x = sums.data(), .norm = layer().ffn_norm.data(), .epsilon = kEpsilon}, layer(),
                           sums.data(), 200, &cancel);
  EXPECT_EQ(sums, before);
}

INSTANTIATE_TEST_SUITE_P(Every, LinearProductsTest,
                         testing::Values(ComputeType::kF32, ComputeType::kBF16, ComputeType::kInt8,
                                         ComputeType::kBF16Int8),
                         [](const auto& test) {
                           std::string name(NameOf(test.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace longheads
