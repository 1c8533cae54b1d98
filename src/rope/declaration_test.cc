#include "rope/declaration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rope/schedules.h"

namespace longheads {
namespace {

RopeDeclaration Plain() { return {.base = 1e4, .rotary_dim = 128, .context_length = 4096}; }

TEST(DeclaredFrequencies, OfAPlainModelAreTheTrainedOnes) {
  const Frequencies own = *DeclaredFrequencies(Plain(), 4096);
  EXPECT_EQ(own.theta, TrainedFrequencies(1e4, 128, {})->theta);
  EXPECT_EQ(own.amplitude, 1);
  EXPECT_EQ(DeclaredWindow(Plain()), 4096);
}

TEST(DeclaredFrequencies, FollowTheDeclaredScaling) {
  const Frequencies plain = *TrainedFrequencies(1e4, 128, {});
  RopeDeclaration rope = Plain();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4;
  EXPECT_EQ(DeclaredFrequencies(rope, 1)->theta, PositionInterpolation(plain, 4)->theta);

  rope.scaling = RopeScaling::kYarn;
  const Frequencies yarn = *Yarn(plain, 1e4, {.factor = 4, .original_context = 4096});
  EXPECT_EQ(DeclaredFrequencies(rope, 1)->theta, yarn.theta);
  EXPECT_EQ(DeclaredFrequencies(rope, 1)->amplitude, yarn.amplitude);
  rope.attn_factor = 0.5;
  EXPECT_DOUBLE_EQ(DeclaredFrequencies(rope, 1)->amplitude, yarn.amplitude / 2);
  rope.magnitude = 1.5;
  EXPECT_DOUBLE_EQ(DeclaredFrequencies(rope, 1)->amplitude, 0.75);
  rope.attn_factor.reset();
  rope.magnitude.reset();
  rope.log_multiplier = 0.5;
  EXPECT_DOUBLE_EQ(DeclaredFrequencies(rope, 1)->amplitude,
                   (0.1 * std::log(4) + 1) / (0.05 * std::log(4) + 1));
  rope.original_context = 2048;
  EXPECT_EQ(DeclaredFrequencies(rope, 1)->theta,
            Yarn(plain, 1e4, {.factor = 4, .original_context = 2048})->theta);
}

TEST(DeclaredFrequencies, OfLongropeFollowTheLength) {
  RopeDeclaration rope = Plain();
  rope.scaling = RopeScaling::kLongrope;
  rope.context_length = 131072;
  rope.original_context = 4096;
  rope.short_factors.assign(64, 1);
  rope.long_factors.assign(64, 2);
  EXPECT_EQ(DeclaredFrequencies(rope, 4096)->theta[0], 1);
  EXPECT_EQ(DeclaredFrequencies(rope, 4097)->theta[0], 0.5);
  EXPECT_NEAR(DeclaredFrequencies(rope, 1)->amplitude, 1.190238, 5e-7);
  EXPECT_EQ(DeclaredWindow(rope), 131072);
  rope.attn_factor = 1.25;
  EXPECT_EQ(DeclaredFrequencies(rope, 1)->amplitude, 1.25);
  rope.long_factors.clear();
  EXPECT_FALSE(DeclaredFrequencies(rope, 1));
}

TEST(DeclaredFrequencies, RefuseWhatAFileCanGetWrong) {
  RopeDeclaration rope = Plain();
  rope.attn_factor = 0;
  EXPECT_FALSE(DeclaredFrequencies(rope, 1));
  rope = Plain();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 0.25;
  EXPECT_FALSE(DeclaredFrequencies(rope, 1));
  rope.factor = NAN;
  EXPECT_FALSE(DeclaredFrequencies(rope, 1));
}

// Files write either window as the context length.
TEST(DeclaredWindow, IsTheExtendedOne) {
  RopeDeclaration rope = Plain();
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 4;
  EXPECT_EQ(DeclaredWindow(rope), 4096);  // no word of another
  rope.original_context = 4096;
  EXPECT_EQ(DeclaredWindow(rope), 16384);
  rope.context_length = 16384;
  EXPECT_EQ(DeclaredWindow(rope), 16384);
  rope.context_length = 20000;
  EXPECT_EQ(DeclaredWindow(rope), 20000);
  rope.factor = 1e300;
  EXPECT_EQ(DeclaredWindow(rope), int64_t{1} << 40);
}

TEST(DescribeRope, SaysAllThatIsNotPlain) {
  RopeDeclaration rope = Plain();
  EXPECT_EQ(DescribeRope(rope), "base 10000");
  rope.divisors.assign(64, 1);
  rope.attn_factor = 1.5;
  EXPECT_EQ(DescribeRope(rope),
            "base 10000, frequencies divided as rope_freqs says (llama3 scaling), amplitude x 1.5");
  rope = Plain();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 2.5;
  EXPECT_EQ(DescribeRope(rope), "base 10000, positions / 2.5");
  rope.scaling = RopeScaling::kYarn;
  EXPECT_EQ(DescribeRope(rope), "base 10000, YaRN with factor 2.5 from 4096 tokens");
  rope.scaling = RopeScaling::kLongrope;
  rope.original_context = 1024;
  EXPECT_EQ(DescribeRope(rope),
            "base 10000, LongRoPE with one table of factors up to 1024 tokens and one beyond");
}

TEST(RopeScalingName, IsReadBack) {
  for (const RopeScaling scaling :
       {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kYarn, RopeScaling::kLongrope}) {
    EXPECT_EQ(RopeScalingOf(RopeScalingName(scaling)), scaling);
  }
  EXPECT_FALSE(RopeScalingOf("Yarn"));
}

}  // namespace
}  // namespace longheads
