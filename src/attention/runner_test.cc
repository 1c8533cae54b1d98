// Frequencies that change between the calls of a model: keys that are turned with them, and keys that stay
// behind.
#include "attention/runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attention/registry.h"
#include "rope/schedules.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/method_case.h"

namespace longheads {
namespace {

constexpr int64_t kDim = kCaseShape.head_dim;
constexpr int64_t kPrompt = 290, kTokens = 300;  // some past a page's end

// NTK-aware frequencies, another base for each call: far enough apart that no rounding hides it.
Frequencies At(int64_t call) {
  return *NtkAware(*TrainedFrequencies(10000, kDim, {}), 1 + static_cast<double>(call) / 4);
}

RotationTable Table(int64_t call, int64_t unit) {
  std::vector<double> theta = At(call).theta;
  for (double& value : theta) value /= static_cast<double>(unit);
  return {theta, kDim, PairLayout::kHalfSplit, 2 * unit * kTokens};
}

// One text in one layer, whose calls may each have frequencies of their own.
class Text {
 public:
  Text(const Policy& policy, bool keys_unrotated)
      : policy_(policy),
        keys_unrotated_(keys_unrotated),
        inputs_(UniformInputs(kCaseShape, kTokens, 5)),
        kv_(KvPool::Create(
            {.n_layers = 1, .n_kv_heads = kCaseShape.n_kv_heads, .head_dim = kDim, .type = KvType::kF32})),
        state_(policy.NewState()),
        pool_(2),
        runner_(*ChooseImplementation(AttentionImplementations(), "auto", "attention")->table,
                FastestVectorKernels(), kCaseShape, pool_),
        out_(static_cast<std::size_t>(kTokens * kCaseShape.n_heads * kDim)) {}

  void Read(int64_t n, const RotationTable& rotations, bool decode) {
    const int64_t at = kv_.size();
    kv_.Reserve(at + n);
    const AttendingSequence sequence{.kv = &kv_,
                                     .state = state_.get(),
                                     .first_state = state_.get(),
                                     .rotations = &rotations,
                                     .scale = kScale,
                                     .keys_unrotated = keys_unrotated_};
    LayerInputs inputs = inputs_;  // keys are rotated in place
    const AttentionRows rows{.layer = 0,
                             .q = inputs.q.data() + at * kCaseShape.n_heads * kDim,
                             .k = inputs.k.data() + at * kCaseShape.n_kv_heads * kDim,
                             .v = inputs.v.data() + at * kCaseShape.n_kv_heads * kDim,
                             .out = out_.data() + at * kCaseShape.n_heads * kDim};
    if (decode) {
      runner_.Decode(policy_, std::span(&sequence, 1), rows);
    } else {
      ASSERT_TRUE(runner_.Prefill(policy_, sequence, rows, n, nullptr));
    }
    kv_.Commit(at + n);
  }

  const LayerInputs& inputs() const { return inputs_; }
  // [n_heads, head_dim] of the last token.
  std::span<const float> last() const {
    return std::span(out_).last(static_cast<std::size_t>(kCaseShape.n_heads * kDim));
  }

  static constexpr float kScale = 0.125f;

 private:
  const Policy& policy_;
  bool keys_unrotated_;
  LayerInputs inputs_;
  KvSequence kv_;
  std::unique_ptr<PolicyState> state_;
  ThreadPool pool_;
  AttentionRunner runner_;
  std::vector<float> out_;
};

// A prompt, then single tokens, the frequencies of each call being another's.
std::unique_ptr<Text> ReadUnderChangingFrequencies(const Policy& policy, bool keys_unrotated) {
  auto text = std::make_unique<Text>(policy, keys_unrotated);
  const int64_t unit = policy.Plane().unit;
  text->Read(kPrompt, Table(0, unit), false);
  for (int64_t i = kPrompt; i < kTokens; ++i) text->Read(1, Table(i - kPrompt + 1, unit), true);
  return text;
}

double Largest(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

// Values are below 1 in size, logits below 64 * 0.125: a few roundings of them.
constexpr double kRoundings = 2e-5;

TEST(AttentionRunner, TurnsUnrotatedKeysToTheFrequenciesOfTheCall) {
  for (const char* const spec :
       {"full", "streaming-llm,start=4,recent=100", "self-extend,group=3,window=40", "rerope,window=40",
        "self-extend,group=5,window=42,fraction=exact", "leaky-rerope,window=40,factor=4",
        "lm-infinite,global=10,local=120,limit=100"}) {
    SCOPED_TRACE(spec);
    const auto policy = MakeCase(spec, 256);
    ASSERT_FALSE(policy->ReadsKeys());
    const auto changing = ReadUnderChangingFrequencies(*policy, true);
    // As if the last call's frequencies had been there from the start.
    Text fresh(*policy, false);
    const RotationTable last = Table(kTokens - kPrompt, policy->Plane().unit);
    fresh.Read(kTokens - 1, last, false);
    fresh.Read(1, last, true);
    EXPECT_LT(Largest(changing->last(), fresh.last()), kRoundings);
    // Keys that keep their rotation give something else, unless the method stores them unrotated anyway.
    const double stale = Largest(ReadUnderChangingFrequencies(*policy, false)->last(), fresh.last());
    if (policy->Plane().factor == 0) {
      EXPECT_LT(stale, kRoundings);
    } else {
      EXPECT_GT(stale, 100 * kRoundings);
    }
  }
}

// R_new(i) q against R_old(j) k, each key with the frequencies of the call that brought it.
TEST(AttentionRunner, LeavesRotatedKeysWithTheFrequenciesTheyCameWith) {
  const auto policy = MakeCase("full", 256);
  const auto text = ReadUnderChangingFrequencies(*policy, false);
  const auto rotated = [](const float* vector, int64_t position, int64_t call) {
    const std::vector<double> theta = At(call).theta;
    std::vector<double> out(kDim);
    for (int64_t m = 0; m < kDim / 2; ++m) {
      const double angle = static_cast<double>(position) * theta[static_cast<std::size_t>(m)];
      const double a = vector[m], b = vector[m + kDim / 2];
      out[static_cast<std::size_t>(m)] = a * std::cos(angle) - b * std::sin(angle);
      out[static_cast<std::size_t>(m + kDim / 2)] = a * std::sin(angle) + b * std::cos(angle);
    }
    return out;
  };
  const LayerInputs& inputs = text->inputs();
  for (int64_t head = 0; head < kCaseShape.n_heads; ++head) {
    const int64_t kv_head = head / kCaseShape.group();
    const std::vector<double> q = rotated(
        inputs.q.data() + ((kTokens - 1) * kCaseShape.n_heads + head) * kDim, kTokens - 1, kTokens - kPrompt);
    double sum = 0;
    std::vector<double> expected(kDim);
    for (int64_t j = 0; j < kTokens; ++j) {
      const int64_t row = (j * kCaseShape.n_kv_heads + kv_head) * kDim;
      const std::vector<double> k = rotated(inputs.k.data() + row, j, j < kPrompt ? 0 : j - kPrompt + 1);
      double dot = 0;
      for (int64_t m = 0; m < kDim; ++m)
        dot += q[static_cast<std::size_t>(m)] * k[static_cast<std::size_t>(m)];
      const double weight = std::exp(dot * static_cast<double>(Text::kScale));
      sum += weight;
      for (int64_t m = 0; m < kDim; ++m)
        expected[static_cast<std::size_t>(m)] +=
            weight * static_cast<double>(inputs.v[static_cast<std::size_t>(row + m)]);
    }
    for (int64_t m = 0; m < kDim; ++m) {
      EXPECT_NEAR(text->last()[static_cast<std::size_t>(head * kDim + m)],
                  expected[static_cast<std::size_t>(m)] / sum, kRoundings);
    }
  }
}

}  // namespace
}  // namespace longheads
