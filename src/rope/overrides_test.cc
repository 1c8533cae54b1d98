#include "rope/overrides.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rope/schedules.h"

namespace longheads {
namespace {

RopeDeclaration Plain() { return {.base = 1e4, .rotary_dim = 128, .context_length = 4096}; }

// As a file has it that names the extended window alone.
RopeDeclaration Linear() {
  RopeDeclaration rope = Plain();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4;
  rope.context_length = 16384;
  return rope;
}

RopeDeclaration DeclaredYarn() {
  RopeDeclaration rope = Plain();
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 4;
  rope.original_context = 4096;
  rope.attn_factor = 1.1;
  rope.beta_fast = 16;
  return rope;
}

RopeDeclaration DeclaredLongrope() {
  RopeDeclaration rope = Plain();
  rope.scaling = RopeScaling::kLongrope;
  rope.context_length = 131072;
  rope.original_context = 4096;
  rope.attn_factor = 1.19;
  rope.short_factors.assign(64, 1);
  rope.long_factors.assign(64, 2);
  return rope;
}

RopeDeclaration With(const RopeDeclaration& rope, const RopeOverrides& overrides) {
  const Result<RopeDeclaration> result = WithOverrides(rope, overrides);
  EXPECT_TRUE(result) << overrides.Text() << ": " << result.error().message;
  return result.value_or(Plain());
}

TEST(WithOverrides, NothingSaidChangesNothing) {
  for (const RopeDeclaration& rope : {Plain(), Linear(), DeclaredYarn(), DeclaredLongrope()}) {
    const RopeDeclaration same = With(rope, {});
    EXPECT_EQ(same.scaling, rope.scaling);
    EXPECT_EQ(DeclaredWindow(same), DeclaredWindow(rope));
    EXPECT_EQ(DeclaredFrequencies(same, 9000)->theta, DeclaredFrequencies(rope, 9000)->theta);
    EXPECT_EQ(DeclaredFrequencies(same, 9000)->amplitude, DeclaredFrequencies(rope, 9000)->amplitude);
  }
}

TEST(WithOverrides, AFactorAloneIsLinear) {
  for (const RopeOverrides& said : {RopeOverrides{.scale = 8}, RopeOverrides{.freq_scale = 0.125}}) {
    const RopeDeclaration rope = With(Plain(), said);
    EXPECT_EQ(DeclaredWindow(rope), 32768);
    EXPECT_EQ(DeclaredFrequencies(rope, 1)->theta[0], 0.125);
  }
  // In the place of the file's own, from the window without it.
  const RopeDeclaration rope = With(Linear(), {.scale = 8});
  EXPECT_EQ(DeclaredWindow(rope), 32768);
  EXPECT_EQ(DeclaredFrequencies(rope, 1)->theta[0], 0.125);
  // The file's scaling keeps its kind.
  EXPECT_EQ(With(DeclaredYarn(), {.scale = 8}).scaling, RopeScaling::kYarn);
  EXPECT_EQ(DeclaredWindow(With(DeclaredYarn(), {.scale = 8})), 32768);
  EXPECT_EQ(DeclaredWindow(With(DeclaredYarn(), {.scale = 2})), 8192);
}

TEST(WithOverrides, NoneLeavesTheFilesScalingOut) {
  for (const RopeDeclaration& declared : {Linear(), DeclaredYarn(), DeclaredLongrope()}) {
    const RopeDeclaration rope = With(declared, {.scaling = "none"});
    EXPECT_EQ(DeclaredWindow(rope), 4096);
    EXPECT_EQ(DeclaredFrequencies(rope, 9000)->theta, TrainedFrequencies(1e4, 128, {})->theta);
    EXPECT_EQ(DeclaredFrequencies(rope, 9000)->amplitude, 1);
  }
}

TEST(WithOverrides, YarnTakesEveryFlag) {
  const RopeDeclaration rope = With(Plain(), {.scaling = "yarn",
                                              .scale = 4,
                                              .freq_base = 5e5,
                                              .orig_ctx = 2048,
                                              .ext_factor = 0.5,
                                              .attn_factor = 1.5,
                                              .beta_slow = 2,
                                              .beta_fast = 16});
  EXPECT_EQ(DeclaredWindow(rope), 8192);
  const YarnOptions options{
      .factor = 4, .original_context = 2048, .beta_fast = 16, .beta_slow = 2, .ext_factor = 0.5};
  const Frequencies expected = *Yarn(*TrainedFrequencies(5e5, 128, {}), 5e5, options);
  EXPECT_EQ(DeclaredFrequencies(rope, 1)->theta, expected.theta);
  EXPECT_DOUBLE_EQ(DeclaredFrequencies(rope, 1)->amplitude, 1.5 * expected.amplitude);
}

TEST(WithOverrides, YarnInTheFileIsChangedInParts) {
  const RopeDeclaration rope = With(DeclaredYarn(), {.attn_factor = 2, .beta_slow = 3});
  EXPECT_EQ(rope.beta_fast, 16);
  EXPECT_EQ(rope.beta_slow, 3);
  EXPECT_DOUBLE_EQ(*rope.attn_factor, 2.2);
  EXPECT_EQ(DeclaredWindow(rope), 16384);
  // What was said of another scaling does not stay.
  EXPECT_EQ(DeclaredFrequencies(With(DeclaredYarn(), {.scaling = "linear"}), 1)->amplitude, 1);
  EXPECT_NEAR(DeclaredFrequencies(With(DeclaredLongrope(), {.scaling = "yarn", .scale = 4}), 1)->amplitude,
              1.13863, 5e-6);
}

TEST(WithOverrides, RefusesContradictions) {
  const std::vector<std::tuple<RopeDeclaration, RopeOverrides, std::string>> cases = {
      {Plain(), {.scaling = "Yarn"}, "--rope-scaling is 'Yarn', but must be none, linear or yarn"},
      {Plain(), {.scaling = "longrope"}, "must be none, linear or yarn"},
      {Plain(), {.scaling = "yarn"}, "needs its factor, as --rope-scale 4"},
      {DeclaredLongrope(), {.scaling = "linear"}, "needs its factor"},
      {DeclaredLongrope(), {.scale = 2}, "LongRoPE has factors of its own"},
      {Plain(), {.scaling = "none", .scale = 2}, "no factor can stand beside it"},
      {Plain(), {.scale = 2, .freq_scale = 0.5}, "only one of them"},
      {Plain(), {.scale = 0.5}, "--rope-scale is 0.5"},
      {Plain(), {.scale = NAN}, "--rope-scale is nan"},
      {Plain(), {.freq_scale = 2}, "--rope-freq-scale is 2"},
      {Plain(), {.freq_scale = 0}, "--rope-freq-scale is 0"},
      {Plain(), {.freq_base = 1}, "--rope-freq-base is 1"},
      {Plain(), {.freq_base = NAN}, "--rope-freq-base is nan"},
      {Plain(), {.beta_fast = 8}, "--yarn-beta-fast goes with YaRN, but the model's scaling is 'none'"},
      {Linear(), {.orig_ctx = 8}, "--yarn-orig-ctx goes with YaRN, but the model's scaling is 'linear'"},
      {DeclaredYarn(), {.scaling = "none", .ext_factor = 1}, "--yarn-ext-factor goes with YaRN"},
      {DeclaredYarn(), {.orig_ctx = 0}, "--yarn-orig-ctx is 0"},
      {DeclaredYarn(), {.attn_factor = 0}, "amplitude is 0"},
      {DeclaredYarn(), {.beta_fast = 0.5}, "beta_fast"},
      {DeclaredYarn(), {.ext_factor = -1}, "ext_factor is -1"},
  };
  for (const auto& [rope, said, expected] : cases) {
    const Result<RopeDeclaration> result = WithOverrides(rope, said);
    ASSERT_FALSE(result) << said.Text();
    EXPECT_NE(result.error().message.find(expected), std::string::npos) << result.error().message;
  }
}

TEST(RopeOverrides, AreWrittenAsTyped) {
  EXPECT_EQ(RopeOverrides{}.Text(), "");
  const RopeOverrides said{.scaling = "yarn", .scale = 4, .orig_ctx = 8192, .beta_fast = 16.5};
  EXPECT_EQ(said.Text(), "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192 --yarn-beta-fast 16.5");
}

}  // namespace
}  // namespace longheads
