#include "rope/schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <tuple>

namespace longheads {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Frequencies Plain(double base = 1e4, int64_t rotary_dim = 128) {
  return *TrainedFrequencies(base, rotary_dim, {});
}

// The largest relative difference of two tables.
double Difference(const Frequencies& a, const Frequencies& b) {
  if (a.theta.size() != b.theta.size()) return kInfinity;
  double worst = 0;
  for (std::size_t m = 0; m < a.theta.size(); ++m) {
    worst = std::max(worst, std::abs(a.theta[m] / b.theta[m] - 1));
  }
  return worst;
}

void ExpectRefused(const Result<Frequencies>& result, const std::string& part) {
  ASSERT_FALSE(result) << "not refused: " << part;
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(Schedules, WithAFactorOfOneGiveBackWhatTheyWereGiven) {
  std::vector<float> divisors(64, 1.0f);
  divisors[40] = 3;
  Frequencies own = *TrainedFrequencies(5e5, 128, divisors);
  own.amplitude = 1.25;
  const std::vector<float> ones(64, 1.0f);
  const LongropeOptions longrope{.short_factors = ones, .long_factors = ones, .original_context = 4096};
  for (const Result<Frequencies>& same :
       {PositionInterpolation(own, 1), NtkAware(own, 1), DynamicNtk(own, 1, 4096, 4096),
        DynamicNtk(own, 8, 4096, 1), Yarn(own, 5e5, {.factor = 1, .original_context = 8192}),
        Llama3(own, {.factor = 1}), Longrope(own, longrope, 10), Longrope(own, longrope, 10000)}) {
    ASSERT_TRUE(same) << same.error().message;
    EXPECT_EQ(same->theta, own.theta);
    EXPECT_EQ(same->amplitude, own.amplitude);
  }
}

TEST(Schedules, KeepTheOwnAmplitudeAsAFactor) {
  Frequencies own = Plain();
  own.amplitude = 2;
  EXPECT_EQ(PositionInterpolation(own, 4)->amplitude, 2);
  EXPECT_EQ(NtkAware(own, 4)->amplitude, 2);
  EXPECT_EQ(Llama3(own, {})->amplitude, 2);
  EXPECT_DOUBLE_EQ(Yarn(own, 1e4, {.factor = 4, .original_context = 4096})->amplitude,
                   2 * (0.1 * std::log(4) + 1));
}

TEST(Schedules, RefuseFactorsThatAreNone) {
  const auto yarn = [](double factor) {
    return Yarn(Plain(), 1e4, {.factor = factor, .original_context = 4096});
  };
  for (const double factor : {0.5, 0.0, -4.0, static_cast<double>(NAN), kInfinity}) {
    ExpectRefused(PositionInterpolation(Plain(), factor), "must be a number of at least 1");
    ExpectRefused(NtkAware(Plain(), factor), "must be a number of at least 1");
    ExpectRefused(DynamicNtk(Plain(), factor, 4096, 9000), "must be a number of at least 1");
    ExpectRefused(yarn(factor), "must be a number of at least 1");
    ExpectRefused(Llama3(Plain(), {.factor = factor}), "must be a number of at least 1");
  }
}

TEST(PositionInterpolation, DividesEveryFrequency) {
  const Frequencies own = Plain();
  const Frequencies scaled = *PositionInterpolation(own, 4);
  for (std::size_t m = 0; m < own.theta.size(); ++m) EXPECT_DOUBLE_EQ(scaled.theta[m], own.theta[m] / 4);
}

// Values of the new base: of YaRN's appendix and of a float64 calculation apart.
TEST(NtkAware, IsALargerBase) {
  const std::pair<double, double> cases[] = {{2, 20221.26}, {4, 40889.94}, {8, 82684.62}, {16, 167198.74}};
  for (const auto& [alpha, base] : cases) {
    const Frequencies scaled = *NtkAware(Plain(), alpha);
    EXPECT_LT(Difference(scaled, Plain(base)), 1e-6) << alpha;
    EXPECT_EQ(scaled.theta.front(), 1.0);
    EXPECT_NEAR(Plain().theta.back() / scaled.theta.back(), alpha, 1e-9);
  }
  ExpectRefused(NtkAware(Plain(1e4, 2), 2), "rotates 2 dimensions");
}

TEST(DynamicNtk, FollowsTheLengthPastTheWindow) {
  const std::tuple<double, int64_t, double> cases[] = {
      {2, 8192, 30527.74},  {2, 16384, 72195.86}, {2, 32768, 156588.32}, {1, 16384, 40889.94},
      {1, 32768, 82684.62}, {2, 4096, 1e4},       {2, 1, 1e4},
  };
  for (const auto& [alpha, n, base] : cases) {
    EXPECT_LT(Difference(*DynamicNtk(Plain(), alpha, 4096, n), Plain(base)), 1e-6) << alpha << " " << n;
  }
  ExpectRefused(DynamicNtk(Plain(), 2, 0, 10), "the window is 0");
}

TEST(Yarn, RampLiesWhereTheCodePutsIt) {
  const std::tuple<int64_t, double, int64_t, double, double> cases[] = {
      {128, 1e4, 4096, 20, 46}, {128, 5e5, 8192, 18, 35}, {128, 1e6, 32768, 23, 40}, {64, 1e4, 2048, 8, 21}};
  for (const auto& [d, base, original, low, high] : cases) {
    const YarnRamp ramp = YarnRampOf(base, d, {.original_context = original});
    EXPECT_EQ(ramp.low, low);
    EXPECT_EQ(ramp.high, high);
    const Frequencies own = Plain(base, d);
    const Frequencies scaled = *Yarn(own, base, {.factor = 8, .original_context = original});
    for (std::size_t m = 0; m < own.theta.size(); ++m) {
      const double gamma = std::clamp((high - static_cast<double>(m)) / (high - low), 0.0, 1.0);
      EXPECT_NEAR(scaled.theta[m] / (gamma * own.theta[m] + (1 - gamma) * own.theta[m] / 8), 1, 1e-14) << m;
    }
  }
}

TEST(Yarn, AmplitudeIsGivenOrFollowsTheFactor) {
  const auto amplitude = [](YarnOptions options) {
    options.original_context = 4096;
    return Yarn(Plain(), 1e4, options)->amplitude;
  };
  EXPECT_NEAR(amplitude({.factor = 2}), 1.06931, 5e-6);
  EXPECT_NEAR(amplitude({.factor = 4}), 1.13863, 5e-6);
  EXPECT_NEAR(amplitude({.factor = 8}), 1.20794, 5e-6);
  EXPECT_NEAR(amplitude({.factor = 16}), 1.27726, 5e-6);
  EXPECT_EQ(amplitude({.factor = 16, .attention_factor = 1.5}), 1.5);
  EXPECT_EQ(amplitude({.factor = 1, .attention_factor = 1.5}), 1.5);
  EXPECT_DOUBLE_EQ(amplitude({.factor = 40, .mscale = 1, .mscale_all_dim = 0.5}),
                   (0.1 * std::log(40) + 1) / (0.05 * std::log(40) + 1));
  EXPECT_DOUBLE_EQ(amplitude({.factor = 40, .mscale = 0.707}), 0.1 * std::log(40) + 1);  // one alone: neither
  EXPECT_DOUBLE_EQ(amplitude({.factor = 40, .mscale_all_dim = 0.707}), 0.1 * std::log(40) + 1);
  EXPECT_EQ(amplitude({.factor = 16, .ext_factor = 0}), 1);
}

TEST(Yarn, WithoutExtrapolationIsInterpolation) {
  const Frequencies all = *Yarn(Plain(), 1e4, {.factor = 4, .original_context = 4096, .ext_factor = 0});
  EXPECT_LT(Difference(all, *PositionInterpolation(Plain(), 4)), 1e-15);
}

TEST(Yarn, UnroundedBoundsAreInsideTheRoundedOnes) {
  const YarnRamp ramp = YarnRampOf(1e4, 128, {.original_context = 4096, .truncate = false});
  EXPECT_NEAR(ramp.low, 20.944482, 1e-6);
  EXPECT_NEAR(ramp.high, 45.026881, 1e-6);
}

// Bounds that meet make a step, and no division by zero.
TEST(Yarn, RampMayHaveNoWidth) {
  const YarnOptions options{
      .factor = 4, .original_context = 4096, .beta_fast = 8, .beta_slow = 8, .truncate = false};
  const YarnRamp ramp = YarnRampOf(1e4, 128, options);
  EXPECT_EQ(ramp.low, ramp.high);
  const Frequencies scaled = *Yarn(Plain(), 1e4, options);
  for (std::size_t m = 0; m < 64; ++m) {
    EXPECT_DOUBLE_EQ(Plain().theta[m] / scaled.theta[m], static_cast<double>(m) < ramp.low ? 1 : 4) << m;
  }
}

// Why the form matters: the paper's ramp, linear in rotations, is elsewhere by up to 0.367 of its height.
TEST(Yarn, IsNotThePapersRamp) {
  const Frequencies own = Plain();
  const YarnRamp ramp = YarnRampOf(1e4, 128, {.original_context = 4096});
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t m = 0; m < 64; ++m) {
    const double code =
        1 - std::clamp((static_cast<double>(m) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
    const double rotations = 4096 * own.theta[m] / (2 * std::numbers::pi);
    const double paper = std::clamp((rotations - 1) / (32 - 1), 0.0, 1.0);
    if (std::abs(code - paper) > worst) {
      worst = std::abs(code - paper);
      at = m;
    }
  }
  EXPECT_NEAR(worst, 0.367, 5e-4);
  EXPECT_EQ(at, 30u);
}

TEST(Yarn, RefusesNumbersThatMakeNoRamp) {
  const auto yarn = [](const YarnOptions& options, double base = 1e4) {
    return Yarn(Plain(), base, options);
  };
  ExpectRefused(yarn({.factor = 4}), "the original context is 0");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096, .beta_fast = 1, .beta_slow = 2}), "beta_fast");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096, .beta_slow = 0}), "beta_slow is 0");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096, .ext_factor = 2}), "ext_factor is 2");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096, .ext_factor = NAN}), "ext_factor is nan");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096, .attention_factor = 0}),
                "attention_factor is 0");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096, .mscale = -1}), "mscale is -1");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096, .mscale_all_dim = NAN}),
                "mscale_all_dim is nan");
  ExpectRefused(yarn({.factor = 4, .original_context = 4096}, 1), "RoPE base above 1");
}

TEST(Llama3, ScalesLongWavesAlone) {
  const Frequencies own = Plain(5e5);
  const Frequencies scaled = *Llama3(own, {});
  const auto divisor = [&](std::size_t m) { return own.theta[m] / scaled.theta[m]; };
  for (std::size_t m = 0; m <= 28; ++m) EXPECT_DOUBLE_EQ(divisor(m), 1) << m;
  for (std::size_t m = 35; m < 64; ++m) EXPECT_DOUBLE_EQ(divisor(m), 8) << m;
  EXPECT_NEAR(divisor(29), 1.207484, 1e-6);
  EXPECT_NEAR(divisor(30), 1.553415, 1e-6);
  EXPECT_NEAR(divisor(32), 2.694530, 1e-6);
  EXPECT_NEAR(divisor(34), 5.257327, 1e-6);
  EXPECT_EQ(scaled.amplitude, 1);
}

// GGUF ships the divisors as float32 data: to its precision the same table.
TEST(Llama3, EqualsItsDivisorsAsData) {
  const Frequencies own = Plain(5e5);
  const Frequencies scaled = *Llama3(own, {});
  std::vector<float> divisors;
  for (std::size_t m = 0; m < 64; ++m) divisors.push_back(static_cast<float>(own.theta[m] / scaled.theta[m]));
  EXPECT_LT(Difference(*TrainedFrequencies(5e5, 128, divisors), scaled), 1e-7);
}

TEST(Llama3, RefusesBandsThatAreNone) {
  ExpectRefused(Llama3(Plain(), {.low_freq_factor = 0}), "low_freq_factor is 0");
  ExpectRefused(Llama3(Plain(), {.low_freq_factor = 4, .high_freq_factor = 4}), "high_freq_factor is 4");
  ExpectRefused(Llama3(Plain(), {.high_freq_factor = NAN}), "high_freq_factor is nan");
  ExpectRefused(Llama3(Plain(), {.original_context = 0}), "the original context is 0");
}

class LongropeTest : public ::testing::Test {
 protected:
  LongropeTest() {
    for (int m = 0; m < 48; ++m) {
      short_.push_back(1.0f + 0.01f * static_cast<float>(m));
      long_.push_back(1.0f + static_cast<float>(m));
    }
  }
  LongropeOptions Options() const {
    return {.short_factors = short_, .long_factors = long_, .original_context = 4096, .factor = 32};
  }

  std::vector<float> short_, long_;
  Frequencies own_ = Plain(1e4, 96);
};

TEST_F(LongropeTest, TakesTheTableOfTheLength) {
  const Frequencies at = *Longrope(own_, Options(), 4096);
  const Frequencies past = *Longrope(own_, Options(), 4097);
  for (std::size_t m = 0; m < 48; ++m) {
    EXPECT_DOUBLE_EQ(at.theta[m], own_.theta[m] / static_cast<double>(short_[m]));
    EXPECT_DOUBLE_EQ(past.theta[m], own_.theta[m] / static_cast<double>(long_[m]));
  }
}

TEST_F(LongropeTest, AmplitudeIsOneForBothTables) {
  EXPECT_NEAR(Longrope(own_, Options(), 1)->amplitude, 1.190238, 5e-7);  // Phi-3, 4k to 128k
  EXPECT_EQ(Longrope(own_, Options(), 1)->amplitude, Longrope(own_, Options(), 100000)->amplitude);
  LongropeOptions options = Options();
  options.attention_factor = 1.5;
  EXPECT_EQ(Longrope(own_, options, 1)->amplitude, 1.5);
  options = Options();
  options.factor = 0.5;
  EXPECT_EQ(Longrope(own_, options, 1)->amplitude, 1);
}

TEST_F(LongropeTest, RefusesTablesThatDoNotFit) {
  LongropeOptions options = Options();
  options.short_factors = options.short_factors.first(47);
  ExpectRefused(Longrope(own_, options, 1), "has 47 entries, but 48 were expected");
  options = Options();
  options.long_factors = {};
  ExpectRefused(Longrope(own_, options, 1), "has 0 entries");
  long_[7] = 0;  // also where the other table would be used
  ExpectRefused(Longrope(own_, Options(), 1), "a LongRoPE factor is 0");
  long_[7] = NAN;
  ExpectRefused(Longrope(own_, Options(), 1), "a LongRoPE factor is nan");
  long_[7] = 1;
  options = Options();
  options.original_context = 1;
  ExpectRefused(Longrope(own_, options, 1), "the original context is 1");
  options = Options();
  options.factor = 0;
  ExpectRefused(Longrope(own_, options, 1), "factor is 0");
  options = Options();
  options.attention_factor = -1;
  ExpectRefused(Longrope(own_, options, 1), "attention_factor is -1");
}

}  // namespace
}  // namespace longheads
