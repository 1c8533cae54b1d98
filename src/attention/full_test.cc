#include "attention/full.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rope/frequencies.h"
#include "tests/support/longheads_golden.h"
#include "tests/support/method_golden.h"
#include "tests/support/one_layer.h"

namespace longheads {
namespace {

constexpr HeadShape kShape{.n_heads = 6, .n_kv_heads = 2, .head_dim = 64};

// One output row in float64, over every key before it. Half-split pairs.
std::vector<double> Attend(const LayerInputs& inputs, int64_t i, int64_t head) {
  const int64_t d = kShape.head_dim;
  const std::vector<double> theta = TrainedFrequencies(10000, d, {})->theta;
  const auto rotate = [&](const float* x, int64_t position) {
    std::vector<double> y(static_cast<std::size_t>(d));
    for (int64_t m = 0; m < d / 2; ++m) {
      const double angle = static_cast<double>(position) * theta[static_cast<std::size_t>(m)];
      y[static_cast<std::size_t>(m)] = x[m] * std::cos(angle) - x[m + d / 2] * std::sin(angle);
      y[static_cast<std::size_t>(m + d / 2)] = x[m + d / 2] * std::cos(angle) + x[m] * std::sin(angle);
    }
    return y;
  };
  const int64_t kv_head = head / kShape.group();
  const std::vector<double> q = rotate(inputs.q.data() + (i * kShape.n_heads + head) * d, i);
  std::vector<double> out(static_cast<std::size_t>(d));
  double sum = 0;
  for (int64_t j = 0; j <= i; ++j) {
    const int64_t row = (j * kShape.n_kv_heads + kv_head) * d;
    const std::vector<double> k = rotate(inputs.k.data() + row, j);
    double logit = 0;
    for (std::size_t m = 0; m < k.size(); ++m) logit += q[m] * k[m];
    const double p = std::exp(logit / std::sqrt(static_cast<double>(d)));
    sum += p;
    for (int64_t m = 0; m < d; ++m)
      out[static_cast<std::size_t>(m)] += p * inputs.v[static_cast<std::size_t>(row + m)];
  }
  for (double& value : out) value /= sum;
  return out;
}

class FullAttentionTest : public testing::TestWithParam<Implementation<AttentionKernels>> {
 protected:
  void SetUp() override {
    if (!GetParam().declined.empty()) GTEST_SKIP() << GetParam().declined;
  }
};

TEST_P(FullAttentionTest, EqualsAFloat64LoopAroundPages) {
  const FullAttention policy(kShape, 1000);
  constexpr int64_t kLongest = 700;
  const LayerInputs half_split = UniformInputs(kShape, kLongest, 3);
  const LayerInputs interleaved = Interleaved(half_split);
  const double bound = BoundOf(half_split, /*max_logit=*/12).out;
  for (const PairLayout layout : {PairLayout::kHalfSplit, PairLayout::kInterleaved}) {
    const LayerInputs& inputs = layout == PairLayout::kHalfSplit ? half_split : interleaved;
    for (const int64_t n : {1, 255, 256, 257, 700}) {
      const LayerSetup setup{
          .policy = policy, .kernels = *GetParam().table, .shape = kShape, .layout = layout, .max_tokens = n};
      OneLayer prefilled(setup);
      prefilled.Prefill(inputs, n);
      OneLayer decoded(setup);
      if (n > 1) decoded.Prefill(inputs, n - 1);
      decoded.Decode(inputs);
      for (const int64_t i : {int64_t{0}, n / 2, n - 1}) {
        for (int64_t head = 0; head < kShape.n_heads; ++head) {
          const std::vector<double> expected = Attend(half_split, i, head);
          for (int64_t m = 0; m < kShape.head_dim; ++m) {
            const auto at = static_cast<std::size_t>((i * kShape.n_heads + head) * kShape.head_dim + m);
            ASSERT_NEAR(prefilled.out()[at], expected[static_cast<std::size_t>(m)], bound) << n << " " << i;
            ASSERT_NEAR(decoded.out()[at], expected[static_cast<std::size_t>(m)], bound) << n << " " << i;
          }
        }
      }
    }
  }
}

TEST_P(FullAttentionTest, SeesEveryKeyAtItsTrueDistance) {
  const FullAttention policy(kShape, 1000);
  const LayerInputs inputs = UniformInputs(kShape, 300, 3);
  OneLayer layer({.policy = policy, .kernels = *GetParam().table, .shape = kShape, .max_tokens = 300});
  layer.Prefill(inputs, 299);
  layer.Decode(inputs);
  for (int64_t i = 0; i < 300; ++i) {
    for (int64_t head = 0; head < kShape.n_heads; ++head) {
      const auto& keys = layer.seen(i, head).keys;
      ASSERT_EQ(static_cast<int64_t>(keys.size()), i + 1);
      for (int32_t j = 0; j <= i; ++j) {
        ASSERT_EQ(keys[static_cast<std::size_t>(j)], std::make_pair(j, static_cast<int32_t>(i) - j));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, FullAttentionTest,
                         testing::ValuesIn(AttentionImplementations().begin(),
                                           AttentionImplementations().end()),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(FullAttention, GoldensNoticeALostKeyAndAnotherDistance) {
  for (const char* const name : {"full-mha", "full-gqa", "full-past-the-window", "full-yarn"}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) { ++plan.segments[0].min_distance; }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) { ++plan.segments[0].key_begin; }));
    EXPECT_TRUE(Notices(name, [](const QueryBlock&, Plan& plan) {
      for (PlanRow& row : plan.rows) ++row.x;
    }));
  }
}

TEST(FullAttention, WarnsPastTheTrainedWindow) {
  const FullAttention policy(kShape, 1000);
  EXPECT_EQ(policy.Warning(1000), "");
  EXPECT_NE(policy.Warning(1001).find("1000"), std::string::npos);
}

}  // namespace
}  // namespace longheads
