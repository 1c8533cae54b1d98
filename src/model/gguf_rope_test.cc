#include "model/gguf_rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/config.h"
#include "rope/schedules.h"
#include "tests/support/gguf_builder.h"

namespace longheads {
namespace {

constexpr int64_t kDim = 64;

Result<RopeDeclaration> Read(const GgufBuilder& builder, int64_t context_length = 4096) {
  const std::vector<std::byte> bytes = builder.Build();
  LH_ASSIGN(const GgufFile file, GgufFile::Parse(bytes, "test.gguf"));
  return ReadRope(file, "llama.", kDim, context_length);
}

Frequencies Own(const GgufBuilder& builder, int64_t n_tokens = 1, int64_t context_length = 4096) {
  const Result<RopeDeclaration> rope = Read(builder, context_length);
  EXPECT_TRUE(rope) << rope.error().message;
  return rope ? *DeclaredFrequencies(*rope, n_tokens) : Frequencies();
}

Frequencies Plain(double base = 10000) { return *TrainedFrequencies(base, kDim, {}); }

std::vector<float> Ramp(float first) {
  std::vector<float> values;
  for (int m = 0; m < kDim / 2; ++m) values.push_back(first + static_cast<float>(m));
  return values;
}

GgufBuilder Longrope() {
  GgufBuilder builder;
  builder.Set("llama.rope.scaling.original_context_length", uint32_t{1024})
      .Tensor("rope_factors_short.weight", DType::kF32, {kDim / 2}, Ramp(1))
      .Tensor("rope_factors_long.weight", DType::kF32, {kDim / 2}, Ramp(5));
  return builder;
}

TEST(ReadRope, NothingSaidIsPlainRope) {
  EXPECT_EQ(Own(GgufBuilder()).theta, Plain().theta);
  EXPECT_EQ(Own(GgufBuilder().Set("llama.rope.freq_base", 5e5f)).theta, Plain(5e5).theta);
  EXPECT_EQ(Own(GgufBuilder().Set("llama.rope.scaling.type", "none")).theta, Plain().theta);
}

TEST(ReadRope, LinearScalingHasAnOldAndANewName) {
  const Frequencies expected = *PositionInterpolation(Plain(), 4);
  GgufBuilder named, unnamed, old, both, none;
  named.Set("llama.rope.scaling.type", "linear").Set("llama.rope.scaling.factor", 4.0f);
  unnamed.Set("llama.rope.scaling.factor", 4.0f);
  old.Set("llama.rope.scale_linear", 4.0f);
  both.Set("llama.rope.scale_linear", 2.0f).Set("llama.rope.scaling.factor", 4.0f);
  for (const GgufBuilder& builder : {named, unnamed, old, both}) {
    EXPECT_EQ(Own(builder).theta, expected.theta);
  }
  // As llama.cpp: with type none no factor counts, and a factor of 0 says nothing.
  none.Set("llama.rope.scaling.type", "none").Set("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(Own(none).theta, Plain().theta);
  EXPECT_EQ(Own(GgufBuilder().Set("llama.rope.scaling.factor", 0.0f)).theta, Plain().theta);
}

GgufBuilder YarnFile() {
  GgufBuilder builder;
  builder.Set("llama.rope.scaling.type", "yarn")
      .Set("llama.rope.scaling.factor", 4.0f)
      .Set("llama.rope.scaling.original_context_length", uint32_t{4096});
  return builder;
}

TEST(ReadRope, YarnWithItsKeys) {
  const Frequencies plain = *Yarn(Plain(), 1e4, {.factor = 4, .original_context = 4096});
  EXPECT_EQ(Own(YarnFile()).theta, plain.theta);
  EXPECT_EQ(Own(YarnFile()).amplitude, plain.amplitude);
  EXPECT_EQ(DeclaredWindow(*Read(YarnFile())), 16384);

  GgufBuilder tuned = YarnFile();
  tuned.Set("llama.rope.scaling.attn_factor", 0.5f)
      .Set("llama.rope.scaling.yarn_beta_fast", 16.0f)
      .Set("llama.rope.scaling.yarn_beta_slow", 2.0f)
      .Set("llama.rope.scaling.yarn_ext_factor", 0.25f);
  const YarnOptions options{
      .factor = 4, .original_context = 4096, .beta_fast = 16, .beta_slow = 2, .ext_factor = 0.25};
  EXPECT_EQ(Own(tuned).theta, Yarn(Plain(), 1e4, options)->theta);
  EXPECT_DOUBLE_EQ(Own(tuned).amplitude, 0.5 * Yarn(Plain(), 1e4, options)->amplitude);

  GgufBuilder unset = YarnFile();
  unset.Set("llama.rope.scaling.yarn_ext_factor", -1.0f).Set("llama.rope.scaling.yarn_attn_factor", 1.0f);
  EXPECT_EQ(Own(unset).theta, plain.theta);
  EXPECT_EQ(Own(unset).amplitude, plain.amplitude);

  GgufBuilder deepseek = YarnFile();
  deepseek.Set("llama.rope.scaling.yarn_log_multiplier", 0.5f);
  EXPECT_DOUBLE_EQ(Own(deepseek).amplitude, (0.1 * std::log(4) + 1) / (0.05 * std::log(4) + 1));
  GgufBuilder given = YarnFile();
  given.Set("llama.rope.scaling.yarn_attn_factor", 1.5f);
  EXPECT_EQ(Own(given).amplitude, 1.5);
}

// Hugging Face's null factor.
TEST(ReadRope, YarnWithoutAFactorIsTheRatioOfTheWindows) {
  GgufBuilder builder;
  builder.Set("llama.rope.scaling.type", "yarn")
      .Set("llama.rope.scaling.original_context_length", uint32_t{1024});
  EXPECT_EQ(Own(builder).theta, Yarn(Plain(), 1e4, {.factor = 4, .original_context = 1024})->theta);
}

TEST(ReadRope, Llama3AsDivisors) {
  GgufBuilder builder;
  builder.Tensor("rope_freqs.weight", DType::kF32, {kDim / 2}, Ramp(1));
  EXPECT_EQ(Own(builder).theta, TrainedFrequencies(1e4, kDim, Ramp(1))->theta);
}

TEST(ReadRope, LongropeByItsTables) {
  GgufBuilder named = Longrope();
  named.Set("llama.rope.scaling.type", "longrope");
  for (const GgufBuilder& builder : {Longrope(), named}) {
    EXPECT_EQ(Own(builder, 1024).theta, TrainedFrequencies(1e4, kDim, Ramp(1))->theta);
    EXPECT_EQ(Own(builder, 1025).theta, TrainedFrequencies(1e4, kDim, Ramp(5))->theta);
    EXPECT_DOUBLE_EQ(Own(builder).amplitude, std::sqrt(1 + std::log(4) / std::log(1024)));
  }
  named.Set("llama.rope.scaling.attn_factor", 1.25f);
  EXPECT_EQ(Own(named).amplitude, 1.25);
}

TEST(ReadRope, RefusesContradictions) {
  const std::vector<float> ramp = Ramp(1);
  GgufBuilder nameless, other, twice, short_table, wrong_type, small, unknown, negative, endless, no_beta;
  nameless.Set("llama.rope.scaling.type", "longrope");
  other = Longrope();
  other.Set("llama.rope.scaling.type", "yarn");
  twice = Longrope();
  twice.Tensor("rope_freqs.weight", DType::kF32, {kDim / 2}, Ramp(1));
  short_table.Tensor("rope_freqs.weight", DType::kF32, {kDim / 2 - 1},
                     std::span<const float>(ramp).first(kDim / 2 - 1));
  wrong_type.Tensor("rope_factors_long.weight", DType::kF16, {kDim / 2}, Ramp(1));
  small.Set("llama.rope.scaling.factor", 0.5f);
  unknown.Set("llama.rope.scaling.type", "spiral");
  negative.Set("llama.rope.scaling.original_context_length", int32_t{-1});
  endless.Set("llama.rope.scaling.factor", std::numeric_limits<float>::infinity());
  no_beta = YarnFile();
  no_beta.Set("llama.rope.scaling.yarn_beta_slow", 0.0f);
  GgufBuilder one_table;
  one_table.Tensor("rope_factors_long.weight", DType::kF32, {kDim / 2}, Ramp(1));
  const std::vector<std::pair<GgufBuilder, std::string>> cases = {
      {nameless, "'longrope', but has no tables"},
      {other, "'yarn', but holds tables"},
      {twice, "only one can hold"},
      {short_table, "rope_freqs.weight must hold 32 numbers"},
      {wrong_type, "rope_factors_long.weight must hold 32 numbers of type F32"},
      {one_table, "a table of LongRoPE factors has 0 entries"},
      {small, "factor is 0.5"},
      {unknown, "RoPE scaling 'spiral', which is not served"},
      {negative, "original_context_length is -1"},
      {endless, "rope.scaling.factor is inf"},
      {no_beta, "beta_slow is 0"},
  };
  for (const auto& [builder, expected] : cases) {
    const Result<RopeDeclaration> rope = Read(builder);
    ASSERT_FALSE(rope) << expected;
    EXPECT_NE(rope.error().message.find(expected), std::string::npos) << rope.error().message;
    EXPECT_NE(rope.error().message.find("test.gguf"), std::string::npos);
  }
}

TEST(ReadConfig, TakesTheWindowThatTheScalingGives) {
  GgufBuilder builder = TinyLlamaBuilder({.context_length = 512});
  builder.Set("llama.rope.scaling.type", "yarn")
      .Set("llama.rope.scaling.factor", 4.0f)
      .Set("llama.rope.scaling.original_context_length", uint32_t{512});
  const std::vector<std::byte> bytes = builder.Build();
  const Result<GgufFile> file = GgufFile::Parse(bytes, "tiny");
  ASSERT_TRUE(file);
  const Result<ModelConfig> config = ReadConfig(*file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->trained_window, 2048);
  EXPECT_EQ(config->rope.scaling, RopeScaling::kYarn);
}

}  // namespace
}  // namespace longheads
