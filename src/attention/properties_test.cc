// What holds of every method whatever its options and frequencies: random specs, random texts, random ways of
// feeding them. The seed is fixed; RC_PARAMS="seed=N max_success=M" in the environment looks further.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/layer_inputs.h"
#include "tests/support/method_case.h"

namespace longheads {
namespace {

constexpr int64_t kTrainedWindow = 4096;
constexpr int64_t kMostTokens = 150;

const bool kParameters = setenv("RC_PARAMS", "seed=20 max_success=50", /*overwrite=*/0) == 0;

// Evenly, from the first case on: RapidCheck would begin with small numbers.
int64_t In(int64_t least, int64_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(least, most + 1));
}
std::string Pick(const std::vector<std::string>& words) { return *rc::gen::elementOf(words); }

struct Drawn {
  std::string spec;
  int64_t equals_full_until = 0;  // tokens
  bool counts_twice = false;      // reproduces published code that counts some key twice
};

Drawn DrawFull() { return {"full", kMostTokens}; }

Drawn DrawLongHeads() {
  const int64_t chunk = In(1, 20), slots = In(3, 6), begin = (slots + In(0, 4)) * chunk;
  const std::string compat =
      Pick({"none", "chunk-end", "begin", "chunk-end+begin", "own-key", "own-key+begin", "all"});
  return {
      fmt::format(
          "longheads,chunk={},window={},begin={},reps={},select={},represent={},choose={},first={},fix={},"
          "compat={}",
          chunk, slots * chunk, begin, Pick({"head", "kv"}), Pick({"head", "kv"}),
          Pick({"paper", "mean", "last"}), Pick({"top", "last-k", "random", "random-keep"}),
          Pick({"on", "off"}), Pick({"none", "head", "layer", "both"}), compat),
      compat.ends_with("begin") || compat == "all" ? begin - 1 : begin,
      compat.starts_with("own-key") || compat == "all"};
}

Drawn DrawSelfExtend() {
  const int64_t window = In(1, 60);
  return {fmt::format("self-extend,group={},window={},fraction={},log_n={}", In(1, 9), window,
                      Pick({"floor", "exact"}), Pick({"on", "off"})),
          window};
}

Drawn DrawReRope() {
  const int64_t window = In(1, 60), log_n_base = In(2, 90);
  const bool log_n = In(0, 1) == 0;
  const std::string scale = log_n ? fmt::format("log_n=on,log_n_base={}", log_n_base) : "log_n=off";
  const int64_t until = log_n ? std::min(window, log_n_base) : window;
  if (In(0, 1) == 0) return {fmt::format("rerope,window={},{}", window, scale), until};
  return {fmt::format("leaky-rerope,window={},factor={},{}", window, In(1, 9), scale), until};
}

Drawn DrawStreamingLlm() {
  const int64_t start = In(0, 8), recent = In(1, 60);
  const std::string form = Pick({"slots", "chunk-safe"});
  return {fmt::format("streaming-llm,start={},recent={},form={}", start, recent, form),
          form == "slots" ? start + recent + 1 : recent};
}

Drawn DrawLmInfinite() {
  const int64_t local = In(1, 60);
  const std::string form = Pick({"official", "infllm"});
  const std::string more = form == "official" && In(0, 1) == 0
                               ? fmt::format("limit={}", In(1, 90))
                               : fmt::format("top_k={},top_k_from=0,top_k_at={}", In(0, 9), In(1, 60));
  return {fmt::format("lm-infinite,global={},local={},form={},{}", In(0, 8), local, form, more), local};
}

Drawn DrawInfLlm() {
  const int64_t local = In(8, 60), block = In(1, 12);
  const std::string compat = Pick({"none", "all"});
  return {
      fmt::format("infllm,n_init={},n_local={},block={},top_k={},representatives={},exec_block={},"
                  "per_head={},compat={}",
                  In(0, 10), local, block, In(1, 4), In(1, block), In(1, local), Pick({"on", "off"}), compat),
      local, compat == "all"};
}

Drawn DrawEsa() {
  const int64_t local = In(4, 40);
  const std::string score = Pick({"exact", "exact,share=individual", "compressed"});
  return {fmt::format("esa,n_init={},k={},n_local={},chunk={},eps={},dim={},score={}", In(0, 10), In(1, 30),
                      local, In(1, 20), In(0, 3), In(1, 64), score),
          local};
}

Drawn DrawQuest() {
  const int64_t page = In(1, 16), budget = page * In(3, 6);
  const std::string rule = Pick({"kernel", "evaluation"});
  // The published evaluation leaves a page out as soon as there are four, unless the last one is full.
  return {fmt::format("quest,page={},budget={},dense_layers={},rule={}", page, budget, In(0, 3) / 3, rule),
          rule == "kernel" ? budget : 3 * page};
}

Drawn DrawMoba() {
  const int64_t chunk = In(1, 20), top_k = In(1, 4);
  return {fmt::format("moba,chunk={},top_k={},decode={},full_layers={}", chunk, top_k,
                      Pick({"full", "gated"}), In(0, 3) / 3),
          chunk * top_k};
}

Drawn DrawLandmark() {
  const int64_t block = In(3, 12), top_k = In(0, 3), windows = In(1, 4);
  // A block's last token is its landmark, which is not seen as other tokens are.
  return {fmt::format("landmark,block={},top_k={},train_context={},token=1", block, top_k,
                      (top_k + 1 + windows) * block + In(0, block - 1)),
          block - 1};
}

struct Family {
  const char* name;
  Drawn (*draw)();
};

class EveryMethod : public testing::TestWithParam<Family> {
 protected:
  // A property, for specs and texts that RapidCheck draws.
  template <typename Property>
  void Check(const Property& property) {
    EXPECT_TRUE(rc::check([&] {
      Drawn drawn = GetParam().draw();
      drawn.spec =
          Pick({"", "", "pi:factor=3+", "ntk:factor=8+", "yarn:factor=20+", "llama3:factor=4+"}) + drawn.spec;
      RC_LOG(drawn.spec);
      property(drawn, AttentionOfCase(drawn.spec, kTrainedWindow));
    }));
  }
};

INSTANTIATE_TEST_SUITE_P(Properties, EveryMethod,
                         testing::Values(Family{"full", DrawFull}, Family{"longheads", DrawLongHeads},
                                         Family{"self_extend", DrawSelfExtend}, Family{"rerope", DrawReRope},
                                         Family{"streaming_llm", DrawStreamingLlm},
                                         Family{"lm_infinite", DrawLmInfinite}, Family{"infllm", DrawInfLlm},
                                         Family{"esa", DrawEsa}, Family{"quest", DrawQuest},
                                         Family{"moba", DrawMoba}, Family{"landmark", DrawLandmark}),
                         [](const auto& family) { return std::string(family.param.name); });

LayerInputs Text(int64_t n) { return UniformInputs(kCaseShape, n, static_cast<uint64_t>(In(1, 1000))); }

void DecodeTo(OneLayer& layer, const LayerInputs& inputs, int64_t n) {
  while (layer.size() < n) layer.Decode(inputs);
}

TEST_P(EveryMethod, SeesAKeyOnceAndNoneAhead) {
  Check([](const Drawn& drawn, const LayerAttention& attention) {
    const int64_t n = In(1, kMostTokens), n_prefill = In(0, n);
    const LayerInputs inputs = Text(n);
    OneLayer layer(CaseSetup(attention, n));
    if (n_prefill > 0) layer.Prefill(inputs, n_prefill);
    DecodeTo(layer, inputs, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t head = 0; head < kCaseShape.n_heads; ++head) {
        const SeenRow& seen = layer.seen(i, head);
        std::vector<int32_t> keys;
        for (const auto& [key, distance] : seen.keys) keys.push_back(key);
        std::sort(keys.begin(), keys.end());
        RC_ASSERT(drawn.counts_twice || std::adjacent_find(keys.begin(), keys.end()) == keys.end());
        RC_ASSERT(keys.empty() || (keys.front() >= 0 && keys.back() <= i));
        for (const int32_t x : seen.rotations) RC_ASSERT(x >= 0 && x < attention.policy->RotationBound(n));
      }
    }
  });
}

TEST_P(EveryMethod, GoesOnFromAForkAsTheOriginalDoes) {
  Check([](const Drawn&, const LayerAttention& attention) {
    const int64_t n = In(2, kMostTokens), n_prefill = In(0, n - 1), at = In(n_prefill, n - 1);
    const LayerInputs inputs = Text(n);
    OneLayer layer(CaseSetup(attention, n));
    if (n_prefill > 0) layer.Prefill(inputs, n_prefill);
    DecodeTo(layer, inputs, at);
    OneLayer fork = layer.Fork();
    DecodeTo(layer, inputs, n);
    DecodeTo(fork, inputs, n);
    RC_ASSERT(fork.out() == layer.out());
    // Back to where it can go, and on again.
    const int64_t point = fork.RewindPoint(In(at, n));
    if (point < at) return;
    fork.Truncate(point);
    DecodeTo(fork, inputs, n);
    RC_ASSERT(fork.out() == layer.out());
  });
}

// As prompts and as generated tokens, up to n.
void Feed(OneLayer& layer, const LayerInputs& inputs, int64_t n) {
  while (layer.size() < n) {
    const int64_t here = In(1, n - layer.size());
    if (In(0, 1) == 0) {
      layer.Prefill(inputs, here);
    } else {
      DecodeTo(layer, inputs, layer.size() + here);
    }
  }
}

TEST_P(EveryMethod, GoesOnFromItsSavedStateAsTheOriginalDoes) {
  Check([](const Drawn&, const LayerAttention& attention) {
    const int64_t n = kMostTokens;
    const LayerInputs inputs = Text(n);
    OneLayer layer(CaseSetup(attention, n));
    std::vector<SavedState> saves;
    int64_t unchanged = 0;  // tokens that are as they were at the last save
    for (int64_t left = In(1, 4); left > 0; --left) {
      Feed(layer, inputs, In(layer.size(), n - left));
      if (In(0, 1) == 0) {
        layer.Truncate(layer.RewindPoint(In(0, layer.size())));
        unchanged = std::min(unchanged, layer.size());
        Feed(layer, inputs, In(layer.size(), n - left));
      }
      saves.push_back(layer.Save(unchanged));
      unchanged = layer.size();
    }
    const SavedState whole = layer.Save(0);
    auto from_saves = layer.Restored(saves);
    auto from_whole = layer.Restored(std::span(&whole, 1));
    RC_ASSERT(from_saves.has_value() && from_whole.has_value());
    RC_ASSERT(from_saves->Save(0) == whole);
    RC_ASSERT(from_whole->Save(0) == whole);
    RC_ASSERT(from_saves->RewindPoint(layer.size()) == layer.size());
    for (int64_t m = 0; m <= layer.size(); ++m) RC_ASSERT(from_saves->RewindPoint(m) <= layer.RewindPoint(m));

    OneLayer fork = from_saves->Fork();
    OneLayer original = layer.Fork();
    const int64_t point = from_saves->RewindPoint(In(0, layer.size()));
    for (OneLayer* const one : {&fork, &original}) {
      one->Truncate(point);
      if (point < n - 1) one->Prefill(inputs, (n - point) / 2);
      DecodeTo(*one, inputs, n);
    }
    RC_ASSERT(fork.out() == original.out());
    const int64_t n_prompt = In(0, n - 1 - layer.size());
    for (OneLayer* const one : {&layer, &*from_saves, &*from_whole}) {
      if (n_prompt > 0) one->Prefill(inputs, n_prompt);
      DecodeTo(*one, inputs, n);
    }
    RC_ASSERT(from_saves->out() == layer.out());
    RC_ASSERT(from_whole->out() == layer.out());
    RC_ASSERT(from_saves->Save(0) == layer.Save(0));
  });
}

TEST_P(EveryMethod, DoesNotFeelHowAPromptIsCut) {
  Check([](const Drawn&, const LayerAttention& attention) {
    const int64_t n = In(1, kMostTokens);
    const LayerInputs inputs = Text(n);
    OneLayer whole(CaseSetup(attention, n));
    whole.Prefill(inputs, n);
    OneLayer cut(CaseSetup(attention, n));
    while (cut.size() < n) {
      // Each is a call of its own, and ends where the method says that calls may.
      const int64_t unit = attention.policy->CallUnit() == 0 ? n : attention.policy->CallUnit();
      const int64_t left = n - cut.size();
      cut.Prefill(inputs, std::min(left, unit * In(1, (left + unit - 1) / unit)), In(1, n));
    }
    RC_ASSERT(cut.out() == whole.out());
  });
}

TEST_P(EveryMethod, EqualsFullAttentionWhileTheTextFits) {
  Check([](const Drawn& drawn, const LayerAttention& attention) {
    if (drawn.counts_twice) return;
    RC_ASSERT(DifferenceFromFull(attention, In(1, std::min(drawn.equals_full_until, kMostTokens))) <= 1);
  });
}

}  // namespace
}  // namespace longheads
