#include "attention/frequency_registry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "rope/schedules.h"

namespace longheads {
namespace {

constexpr int64_t kWindow = 4096;

AttentionModel Model(const RopeDeclaration& rope) {
  return {.shape = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 128},
          .trained_window = DeclaredWindow(rope),
          .layout = PairLayout::kInterleaved,
          .rope = rope,
          .trained = *DeclaredFrequencies(rope, DeclaredWindow(rope))};
}

RopeDeclaration PlainRope() { return {.base = 1e4, .rotary_dim = 128, .context_length = kWindow}; }

RopeDeclaration LongropeFile() {
  RopeDeclaration rope = PlainRope();
  rope.scaling = RopeScaling::kLongrope;
  rope.context_length = 131072;
  rope.original_context = 4096;
  rope.short_factors.assign(64, 1);
  rope.long_factors.assign(64, 2);
  return rope;
}

// "name:option=value:option=value"
Result<ChosenFrequencies> Make(const std::string& text, const RopeDeclaration& rope = PlainRope()) {
  LH_ASSIGN(const AttentionSpec spec, ParseSpec(text + "+full"));
  return MakeFrequencies(spec.frequencies, spec.frequency_options, Model(rope));
}

void ExpectFrequencies(const std::string& text, const Result<Frequencies>& expected, int64_t window,
                       const RopeDeclaration& rope = PlainRope()) {
  const Result<ChosenFrequencies> chosen = Make(text, rope);
  ASSERT_TRUE(chosen) << text << ": " << chosen.error().message;
  EXPECT_EQ(chosen->frequencies.theta, expected->theta) << text;
  EXPECT_EQ(chosen->frequencies.amplitude, expected->amplitude) << text;
  EXPECT_EQ(chosen->window, window) << text;
  EXPECT_EQ(chosen->explain.empty(), text == "none") << text;
}

TEST(MakeFrequencies, GivesEverySchedulesFormulaWithItsDefaults) {
  const Frequencies own = *TrainedFrequencies(1e4, 128, {});
  ExpectFrequencies("none", own, kWindow);
  ExpectFrequencies("pi", PositionInterpolation(own, 4), 16384);
  ExpectFrequencies("pi:factor=2.5", PositionInterpolation(own, 2.5), 10240);
  ExpectFrequencies("ntk", NtkAware(own, 4), 16384);
  ExpectFrequencies("ntk:factor=8", NtkAware(own, 8), 32768);
  ExpectFrequencies("yarn", Yarn(own, 1e4, {.factor = 4, .original_context = kWindow}), 16384);
  ExpectFrequencies("llama3", Llama3(own, {.original_context = kWindow}), 32768);
}

TEST(MakeFrequencies, DynamicNtkFollowsTheTextsLength) {
  const Frequencies own = *TrainedFrequencies(1e4, 128, {});
  const auto make = [](const std::string& text, int64_t n) {
    const AttentionSpec spec = *ParseSpec(text);
    AttentionModel model = Model(PlainRope());
    model.text_tokens = n;
    return *MakeFrequencies(spec.frequencies, spec.frequency_options, model);
  };
  for (const int64_t inside : {0, 100, 4096}) {
    EXPECT_EQ(make("dynamic-ntk", inside).frequencies.theta, own.theta) << inside;
    EXPECT_EQ(make("dynamic-ntk", inside).window, kWindow) << inside;
  }
  for (const double alpha : {1.0, 2.0}) {
    const ChosenFrequencies chosen = make(fmt::format("dynamic-ntk:factor={}", alpha), 16384);
    EXPECT_EQ(chosen.frequencies.theta, NtkAware(own, alpha * 4 - (alpha - 1))->theta) << alpha;
    EXPECT_EQ(chosen.window, 16384);
    EXPECT_TRUE(chosen.follows_length);
  }
  EXPECT_EQ(make("dynamic-ntk", 16384).frequencies.theta, DynamicNtk(own, 2, kWindow, 16384)->theta);
  EXPECT_FALSE(make("ntk", 16384).follows_length);
}

TEST(MakeFrequencies, PassesEveryOptionOn) {
  const Frequencies own = *TrainedFrequencies(1e4, 128, {});
  ExpectFrequencies(
      "yarn:factor=8:orig_ctx=2k:beta_fast=16:beta_slow=2:ext_factor=0.5:attention_factor=1.5:"
      "truncate=off",
      Yarn(own, 1e4,
           {.factor = 8,
            .original_context = 2048,
            .beta_fast = 16,
            .beta_slow = 2,
            .ext_factor = 0.5,
            .truncate = false,
            .attention_factor = 1.5}),
      16384);
  ExpectFrequencies(
      "yarn:mscale=1:mscale_all_dim=0.5",
      Yarn(own, 1e4, {.factor = 4, .original_context = kWindow, .mscale = 1, .mscale_all_dim = 0.5}), 16384);
  ExpectFrequencies("llama3:factor=4:low_freq_factor=2:high_freq_factor=8:orig_ctx=8192",
                    Llama3(own, {.factor = 4, .low_freq_factor = 2, .high_freq_factor = 8}), 32768);
}

TEST(MakeFrequencies, WithAFactorOfOneIsNone) {
  for (const char* const text : {"pi:factor=1", "ntk:factor=1", "yarn:factor=1", "llama3:factor=1"}) {
    ExpectFrequencies(text, TrainedFrequencies(1e4, 128, {}), kWindow);
  }
}

// A file's own scaling is part of "none"; what multiplies every frequency can go on top of it.
TEST(MakeFrequencies, StartsFromWhatTheFileDeclares) {
  RopeDeclaration rope = PlainRope();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 2;
  rope.original_context = 4096;
  const Frequencies own = *PositionInterpolation(*TrainedFrequencies(1e4, 128, {}), 2);
  ExpectFrequencies("none", own, 8192, rope);
  ExpectFrequencies("pi:factor=2", PositionInterpolation(own, 2), 16384, rope);
  ExpectFrequencies("ntk:factor=2", NtkAware(own, 2), 16384, rope);

  RopeDeclaration llama3 = PlainRope();
  llama3.divisors.assign(64, 1);
  llama3.divisors[60] = 8;
  const Frequencies divided = *TrainedFrequencies(1e4, 128, llama3.divisors);
  ExpectFrequencies("yarn", Yarn(divided, 1e4, {.factor = 4, .original_context = kWindow}), 16384, llama3);
}

TEST(MakeFrequencies, LongropeTakesTheFilesTables) {
  RopeDeclaration rope = LongropeFile();
  const Frequencies is_short = *DeclaredFrequencies(rope, 1);
  const Frequencies is_long = *DeclaredFrequencies(rope, 131072);
  ExpectFrequencies("none", is_long, 131072, rope);
  ExpectFrequencies("longrope", is_long, 131072, rope);
  ExpectFrequencies("longrope:table=long", is_long, 131072, rope);
  ExpectFrequencies("longrope:table=short", is_short, 4096, rope);
  rope.attn_factor = 1.5;
  ExpectFrequencies("longrope:attention_factor=1.5", DeclaredFrequencies(rope, 131072), 131072,
                    LongropeFile());
  rope.attn_factor.reset();
  rope.factor = 64;
  rope.original_context = 8192;
  ExpectFrequencies("longrope:factor=64:orig_ctx=8192", DeclaredFrequencies(rope, 131072), 524288,
                    LongropeFile());
}

// s = 1 is none, whatever the windows are.
TEST(MakeFrequencies, TakesAFactorOfLongropeThatStretchesNothing) {
  RopeDeclaration rope = LongropeFile();
  rope.attn_factor = 1;
  const Frequencies same = *DeclaredFrequencies(rope, 131072);
  ASSERT_NE(DeclaredFrequencies(LongropeFile(), 131072)->amplitude, 1);
  for (const char* const spec : {"longrope:factor=1", "longrope:factor=0.5"}) {
    ExpectFrequencies(spec, same, 131072, LongropeFile());
  }
}

TEST(MakeFrequencies, RefusesWithASentence) {
  RopeDeclaration yarn_file = PlainRope();
  yarn_file.scaling = RopeScaling::kYarn;
  yarn_file.factor = 4;
  RopeDeclaration llama3_file = PlainRope();
  llama3_file.divisors.assign(64, 1);
  const std::vector<std::tuple<std::string, RopeDeclaration, std::string>> cases = {
      {"none:factor=2", PlainRope(), "none has no option 'factor': it takes none"},
      {"pi:factr=2", PlainRope(), "pi has no option 'factr': did you mean 'factor'?"},
      {"pi:factor=much", PlainRope(), "--attn pi: factor is 'much', but must be a number"},
      {"pi:factor=0.5", PlainRope(), "--attn pi: factor is 0.5, but must be a number of at least 1"},
      {"ntk:factor=inf", PlainRope(), "--attn ntk: factor is inf"},
      {"dynamic-ntk:mode=exact:factor=1.7e308", PlainRope(), "factor is inf"},  // behind some length
      {"ntk:factor=4x", PlainRope(), "factor is '4x'"},
      {"yarn:beta_fst=2", PlainRope(), "did you mean 'beta_fast'?"},
      {"yarn:orig_ctx=0", PlainRope(), "orig_ctx must be at least 1"},
      {"yarn:orig_ctx=many", PlainRope(), "orig_ctx: 'many' is not a count"},
      {"yarn:truncate=yes", PlainRope(), "truncate is 'yes', but must be on or off"},
      {"yarn:beta_slow=64", PlainRope(), "beta_fast (which may not be below beta_slow)"},
      {"yarn", yarn_file, "declares yarn scaling of its own"},
      {"llama3", yarn_file, "--rope-scaling none"},
      {"llama3", llama3_file, "as its rope_freqs tensor"},
      {"llama3:low_freq_factor=4", PlainRope(), "high_freq_factor is 4"},
      {"longrope", PlainRope(), "rope_factors_long.weight"},
      {"longrope:factor=0", LongropeFile(), "factor=0 must be a number above 0"},
      {"longrope:factor=-3", LongropeFile(), "factor=-3 must be a number above 0"},
      {"longrope:factor=nan", LongropeFile(), "factor"},
      {"longrope:table=middle", LongropeFile(), "must be auto or short or long"},
  };
  for (const auto& [text, rope, expected] : cases) {
    const Result<ChosenFrequencies> chosen = Make(text, rope);
    ASSERT_FALSE(chosen) << text;
    EXPECT_EQ(chosen.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(chosen.error().message.find(expected), std::string::npos) << chosen.error().message;
  }
}

TEST(MakeFrequencies, HoldsUnderNonsenseFactors) {
  EXPECT_EQ(Make("pi:factor=1e300")->window, int64_t{1} << 40);
  EXPECT_TRUE(MakeAttention("pi:factor=1e300+longheads", Model(PlainRope())));
}

TEST(FrequencyMethods, AreFoundByNameAndExplained) {
  EXPECT_EQ(FrequencyMethods().size(), FrequencyNames().size());
  const std::vector<std::string> policies = PolicyNames();
  for (const std::string& name : FrequencyNames()) {
    const MethodInfo* const method = FindFrequencyMethod(name);
    ASSERT_NE(method, nullptr) << name;
    EXPECT_FALSE(method->summary.empty());
    EXPECT_FALSE(method->source.empty());
    for (const OptionInfo& option : method->options) {
      EXPECT_FALSE(option.type.empty()) << name << " " << option.name;
      EXPECT_FALSE(option.default_value.empty()) << name << " " << option.name;
      EXPECT_FALSE(option.meaning.empty()) << name << " " << option.name;
    }
    EXPECT_EQ(std::count(policies.begin(), policies.end(), name), 0) << "a policy has the same name";
  }
  EXPECT_EQ(FindFrequencyMethod("full"), nullptr);
}

}  // namespace
}  // namespace longheads
