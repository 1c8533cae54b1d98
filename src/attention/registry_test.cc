#include "attention/registry.h"

#include <gtest/gtest.h>

namespace longheads {
namespace {

AttentionModel Model(int64_t trained_window) {
  return {.shape = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 64},
          .n_layers = 3,
          .trained_window = trained_window,
          .layout = PairLayout::kInterleaved,
          .rope = {.rotary_dim = 64, .context_length = trained_window},
          .trained = {.theta = std::vector<double>(32, 0.5), .amplitude = 1}};
}

std::string Explain(const std::string& spec, int64_t trained_window) {
  const auto layers = MakeAttention(spec, Model(trained_window));
  return layers ? (*layers)[0].policy->Explain() : "refused: " + layers.error().message;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(MakeAttention, GivesEveryLayerThePolicyAndTheTrainedFrequencies) {
  for (const char* const spec : {"auto", "full", "longheads", "none", "none+longheads,chunk=128"}) {
    const auto layers = MakeAttention(spec, Model(8192));
    ASSERT_TRUE(layers) << layers.error().message;
    ASSERT_EQ(layers->size(), 3u);
    for (const LayerAttention& layer : *layers) {
      ASSERT_NE(layer.policy, nullptr);
      EXPECT_EQ(layer.policy, layers->front().policy);
      EXPECT_EQ(layer.frequencies.theta.size(), 32u);
    }
  }
}

// What the user reads says which begin, how many slots, which chunk and window the defaults come to.
TEST(MakeAttention, DefaultsFollowTheTrainedWindow) {
  const auto expect = [](const std::string& spec, int64_t trained, int64_t begin, int64_t slots,
                         int64_t chunk) {
    const std::string text = Explain(spec, trained);
    EXPECT_TRUE(Contains(text, "token " + std::to_string(begin) + ",")) << text;
    EXPECT_TRUE(
        Contains(text, "selects " + std::to_string(slots) + " chunks of " + std::to_string(chunk) + " "))
        << text;
    EXPECT_TRUE(Contains(text, "window " + std::to_string(slots * chunk) + ";")) << text;
  };
  for (const char* const name : {"auto", "longheads"}) {
    expect(name, 131072, 131072, 16, 256);
    expect(name, 8192, 8192, 16, 256);
    expect(name, 8200, 8192, 16, 256);
    expect(name, 4096, 4096, 8, 256);
    expect(name, 2048, 2048, 4, 256);
    expect(name, 1536, 1536, 3, 256);
    // Tiny windows: three chunks still fit in half of them.
    expect(name, 1535, 1408, 5, 128);
    expect(name, 512, 512, 4, 64);
    expect(name, 100, 96, 3, 16);
  }
  // A chunk of more than a sixth of the window: half of that holds less than three.
  expect("longheads,chunk=2048", 8192, 8192, 3, 2048);
  expect("longheads,chunk=2730", 8192, 8190, 3, 2730);
  for (const char* const name : {"auto", "longheads"}) {
    expect(name, 64, 64, 4, 8);
    expect(name, 6, 6, 3, 1);
  }
  expect("longheads,chunk=128", 8192, 8192, 32, 128);
  expect("longheads,begin=window", 8192, 4096, 16, 256);
  expect("longheads,window=2048,begin=window,compat=all", 8192, 2048, 8, 256);
  expect("longheads,window=2k", 8192, 8192, 8, 256);
  expect("longheads,window=8192", 8192, 8192, 32, 256);
  expect("longheads,begin=16384", 8192, 16384, 16, 256);
  expect("auto,chunk=16", 128, 128, 4, 16);
}

TEST(MakeAttention, RefusesWhatCannotApply) {
  const std::vector<std::tuple<std::string, int64_t, std::string>> cases = {
      {"longhads", 8192, "did you mean 'longheads'"},
      {"full,chunk=4", 8192, "full has no option 'chunk': it takes none"},
      {"longheads,chunks=4", 8192, "did you mean 'chunk'"},
      {"none:factor=2+full", 8192, "none has no option 'factor': it takes none"},
      {"longheads,window=1000", 8192, "window=1000 is not a multiple of chunk=256: try window=768"},
      {"longheads,window=100", 8192, "try window=768"},
      {"longheads,window=512", 8192, "window=512 holds 2 chunks of 256"},
      {"longheads,window=8448", 8192, "window=8448 is larger than the 8192 tokens"},
      {"longheads,window=4096,begin=2048", 8192, "begin=2048 is smaller than window=4096"},
      {"longheads,begin=5000", 8192, "begin=5000 is not a multiple of chunk=256: try begin=5120"},
      {"longheads,chunk=4096", 8192, "use at most chunk=2730"},
      {"longheads,compat=all+none", 8192, "compat is 'all+none', but must be none, all, or some of own-key"},
      {"longheads,chunk=1m,window=1m", 8192, "use at most chunk=2730"},
      {"longheads,chunk=0", 8192, "chunk must be at least 1"},
      {"longheads,window=0", 8192, "window must be at least 1"},
      {"longheads,chunk=-4", 8192, "'-4' is not a count"},
      {"longheads,chunk=4.5", 8192, "'4.5' is not a count"},
      {"longheads,chunk=99999999999999999999", 8192, "is not a count"},
      {"longheads,chunk=1099511627776", 8192, "use at most chunk=2730"},
      {"longheads,window=1099511627776", 8192, "is larger than the 8192 tokens"},
      {"longheads,begin=here", 8192, "'here' is not a count"},
      {"longheads,window=begin", 8192, "'begin' is not a count"},
      {"longheads,reps=all", 8192, "reps is 'all', but must be head or kv"},
      {"longheads,select=HEAD", 8192, "must be head or kv"},
      {"longheads,compat=some", 8192, "compat is 'some'"},
      {"longheads,compat=own-key+", 8192, "compat is 'own-key+'"},
      {"longheads,compat=+", 8192, "compat is '+'"},
      {"auto", 2, "window of 2 tokens is too short"},
      {"auto", 0, "use --attn full"},
      {"longheads,chunk=256", 512, "use at most chunk=170"},
      {"pi:factor=4+longheads,window=20k", 4096, "window=20480 is larger than the 16384 tokens"},
      {"pi:factor=4+longheads,chunk=8192", 4096, "use at most chunk=5461"},
      {"dynamic-ntk:mode=exact+longheads", 4096, "use dynamic-ntk:mode=freeze"},
      {"dynamic-ntk:mode=stale+rerope", 4096, "use dynamic-ntk:mode=freeze or mode=exact"},
      {"dynamic-ntk:mode=stale+lm-infinite", 4096, "use dynamic-ntk:mode=freeze"},
      {"dynamic-ntk:mode=stale+self-extend,group=8,window=512", 4096, "use dynamic-ntk:mode=freeze"},
      {"dynamic-ntk:mode=frozen", 4096, "mode is 'frozen', but must be freeze or exact or stale"},
  };
  for (const auto& [spec, trained, expected] : cases) {
    const auto layers = MakeAttention(spec, Model(trained));
    ASSERT_FALSE(layers) << spec;
    EXPECT_EQ(layers.error().kind, ErrorKind::kInvalidInput);
    EXPECT_TRUE(Contains(layers.error().message, expected)) << spec << ": " << layers.error().message;
  }
}

TEST(MakeAttention, TakesABeginAsFarAsOneLikes) {
  const auto layers = MakeAttention("longheads,begin=1099511627776", Model(8192));
  ASSERT_TRUE(layers) << layers.error().message;
  const Policy& policy = *layers->front().policy;
  EXPECT_EQ(policy.RotationBound(1000), 1256);
  EXPECT_NE(policy.Warning(10'000), "");
}

// What changes the window moves where selection begins and how far full attention may go; the paper's chunk
// and window stay ("w/ PI init" and the like).
TEST(MakeAttention, FrequenciesExtendTheWindowOfThePolicy) {
  const auto expect = [](const std::string& spec, int64_t begin, int64_t window, int64_t reach) {
    const std::string text = Explain(spec, 4096);
    EXPECT_TRUE(Contains(text, "token " + std::to_string(begin) + ",")) << spec << ": " << text;
    EXPECT_TRUE(Contains(text, "window " + std::to_string(window) + ";")) << spec << ": " << text;
    EXPECT_TRUE(Contains(text, "model's is " + std::to_string(reach) + ")")) << spec << ": " << text;
  };
  expect("longheads", 4096, 2048, 4096);
  expect("none+longheads", 4096, 2048, 4096);
  expect("pi+longheads,window=4096", 16384, 4096, 16384);
  expect("pi:factor=2+auto", 8192, 2048, 8192);
  expect("ntk:factor=2.5+longheads", 10240, 2048, 10240);
  expect("yarn:factor=8+longheads,begin=16384", 16384, 2048, 32768);
  expect("yarn:factor=8:orig_ctx=2k+longheads", 16384, 2048, 16384);
  expect("llama3+longheads", 32768, 2048, 32768);
  expect("pi:factor=4+longheads,window=8192", 16384, 8192, 16384);
  expect("pi:factor=1+longheads", 4096, 2048, 4096);

  // The paper's two, as docs/methods/longheads.md has them, for a text of 32k tokens.
  AttentionModel model = Model(4096);
  model.text_tokens = 32768;
  for (const char* const spec :
       {"pi:factor=4+longheads,window=4096", "dynamic-ntk:factor=2+longheads,window=4096,begin=16384"}) {
    const auto layers = MakeAttention(spec, model);
    ASSERT_TRUE(layers) << layers.error().message;
    const std::string text = (*layers)[0].policy->Explain();
    EXPECT_TRUE(Contains(text, "token 16384,") && Contains(text, "window 4096;")) << text;
    EXPECT_EQ((*layers)[0].policy->Warning(32768), "") << spec;
  }

  const auto warns = [](const std::string& spec, int64_t n) {
    return !(*MakeAttention(spec, Model(4096)))[0].policy->Warning(n).empty();
  };
  EXPECT_TRUE(warns("full", 4097));
  EXPECT_FALSE(warns("pi:factor=4+full", 16384));
  EXPECT_TRUE(warns("pi:factor=4+full", 16385));
  EXPECT_FALSE(warns("pi:factor=4+longheads,begin=16384", 100000));
  EXPECT_TRUE(warns("pi:factor=4+longheads,begin=32768", 100000));
  EXPECT_TRUE(warns("self-extend,group=2", 8192));
  EXPECT_FALSE(warns("pi:factor=4+self-extend,group=2", 8192));
  EXPECT_TRUE(warns("moba", 4097));
  EXPECT_FALSE(warns("pi:factor=4+moba", 16384));

  // Four times the window takes what the window does not, and no more than that.
  for (const std::string spec :
       {"streaming-llm,start=4,recent=", "lm-infinite,local=", "lm-infinite,top_k_at=", "infllm,n_local=",
        "esa,score=exact,chunk=1,n_local=", "self-extend,window=", "rerope,window=", "leaky-rerope,window=",
        "quest,page=", "moba,chunk="}) {
    const auto takes = [&](const std::string& frequencies, int64_t value) {
      return MakeAttention(frequencies + spec + std::to_string(value), Model(4096)).has_value();
    };
    EXPECT_FALSE(takes("", 16000)) << spec;
    EXPECT_TRUE(takes("pi:factor=4+", 16000)) << spec;
    EXPECT_FALSE(takes("pi:factor=4+", 16385)) << spec;
  }
  EXPECT_FALSE(MakeAttention("longheads,chunk=2048,window=6144", Model(4096)));
  EXPECT_TRUE(MakeAttention("pi:factor=4+longheads,chunk=2048,window=6144", Model(4096)));

  // Half the window: defaults shrink with it.
  for (const std::string method :
       {"longheads", "streaming-llm", "lm-infinite", "lm-infinite,top_k=5", "infllm", "esa,score=exact",
        "self-extend", "rerope", "leaky-rerope", "quest", "moba"}) {
    const auto layers = MakeAttention("yarn:orig_ctx=256:factor=1.5+" + method, Model(4096));
    EXPECT_TRUE(layers) << layers.error().message;
  }
}

TEST(FullSpec, NamesEveryOptionOfTheMethodAndOfItsFrequencies) {
  for (const MethodInfo& method : Methods()) {
    const Result<std::string> full = FullSpec(method.name);
    ASSERT_TRUE(full) << full.error().message;
    EXPECT_EQ(full->find("none+" + method.name), 0u) << *full;
    for (const OptionInfo& option : method.options) {
      EXPECT_NE(full->find("," + option.name + "=" + option.default_value), std::string::npos) << *full;
    }
  }
  const Result<std::string> given = FullSpec("yarn:factor=4+longheads,chunk=64");
  ASSERT_TRUE(given);
  EXPECT_EQ(given->find("yarn:factor=4"), 0u) << *given;
  EXPECT_NE(given->find(",chunk=64,"), std::string::npos) << *given;
  EXPECT_NE(given->find(",window="), std::string::npos) << *given;
  EXPECT_FALSE(FullSpec("nothing"));
}

TEST(Methods, AreFoundByNameAndExplained) {
  for (const std::string& name : PolicyNames()) {
    const MethodInfo* const method = FindMethod(name);
    ASSERT_NE(method, nullptr) << name;
    EXPECT_FALSE(method->summary.empty());
    EXPECT_FALSE(method->source.empty());
    for (const OptionInfo& option : method->options) {
      EXPECT_FALSE(option.type.empty());
      EXPECT_FALSE(option.default_value.empty());
      EXPECT_FALSE(option.meaning.empty());
    }
  }
  EXPECT_EQ(FindMethod("none"), nullptr);
  EXPECT_EQ(Methods().size(), PolicyNames().size());
}

}  // namespace
}  // namespace longheads
