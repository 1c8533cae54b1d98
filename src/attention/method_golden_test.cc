// Every method against the goldens of its naive float64 twin, made by the spec that a user would type: on
// equal inputs the attended (key, distance) sets are equal to the last pair, and the outputs within float32's
// roundings; in both pair layouts, on every implementation of the kernels, in prefill and in decode. And what
// must not change a bit: blocks, threads, forks, going back.
#include "tests/support/method_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "attention/registry.h"
#include "rope/frequencies.h"
#include "tests/support/sanitized.h"

namespace longheads {
namespace {

// A golden's text in one pair layout and one implementation of the kernels.
struct Variant {
  const MethodGolden& golden;
  std::string backend;
  PairLayout layout;
  LayerInputs inputs;
  std::optional<LayerInputs> first_layer;
  LayerAttention attention;
  LayerSetup setup;

  Variant(const MethodGolden& g, PairLayout pair_layout, const Implementation<AttentionKernels>& kernels)
      : golden(g),
        backend(kernels.name),
        layout(pair_layout),
        inputs(layout == PairLayout::kInterleaved ? Interleaved(g.inputs) : g.inputs),
        first_layer(FirstLayer(g, layout)),
        attention(AttentionOf(g, layout)),
        setup{.policy = *attention.policy,
              .kernels = *kernels.table,
              .shape = g.inputs.shape,
              .layout = layout,
              .frequencies = attention.frequencies,
              .max_tokens = g.inputs.n,
              .layer = g.layer,
              .first_layer = first_layer ? &*first_layer : nullptr} {}

  // Where a method's later layers look at the first one's choices, the golden says what that one's inputs
  // are.
  static std::optional<LayerInputs> FirstLayer(const MethodGolden& golden, PairLayout layout) {
    if (!golden.extra.contains("first_layer_seed")) return std::nullopt;
    const LayerInputs inputs =
        UniformInputs(golden.inputs.shape, golden.inputs.n, golden.extra["first_layer_seed"]);
    return layout == PairLayout::kInterleaved ? Interleaved(inputs) : inputs;
  }

  MethodDifferences Differences(const OneLayer& layer) const {
    return Compare(golden, layer, attention.policy->Plane().unit);
  }
  std::string Describe() const {
    return golden.name + ", " + backend + (layout == PairLayout::kInterleaved ? ", interleaved" : "");
  }
};

void ForEachVariant(const std::string& name, const std::function<void(const Variant&)>& test) {
  const MethodGolden golden = LoadMethodGolden(name);
  PairLayout other = PairLayout::kHalfSplit;
  for (const Implementation<AttentionKernels>& kernels : AttentionImplementations()) {
    if (!kernels.declined.empty()) continue;
    other = other == PairLayout::kHalfSplit ? PairLayout::kInterleaved : PairLayout::kHalfSplit;
    for (const PairLayout layout : {PairLayout::kHalfSplit, PairLayout::kInterleaved}) {
      if (kSanitized && layout == other) continue;
      const Variant variant(golden, layout, kernels);
      SCOPED_TRACE(variant.Describe());
      test(variant);
    }
    if (kSanitized) return;  // the fastest kernels; LongHeads' goldens take the others
  }
}

// The fastest kernels alone.
void OnBest(const std::string& name, const std::function<void(Variant&)>& test) {
  const MethodGolden golden = LoadMethodGolden(name);
  Variant variant(golden, PairLayout::kInterleaved,
                  *ChooseImplementation(AttentionImplementations(), "auto", "attention"));
  test(variant);
}

// Tokens in prefill of a run over the first n.
int64_t Prefilled(const MethodGolden& golden, int64_t n) { return std::min(n, golden.n_prefill.value_or(n)); }

// The first n tokens as the golden divides them; where calls do not matter, in blocks of these lengths, in
// turn.
OneLayer Feed(const Variant& v, int64_t n, std::vector<int64_t> blocks = {1 << 20},
              int64_t query_block = 1 << 20) {
  OneLayer layer(v.setup);
  if (v.golden.calls) blocks = *v.golden.calls;
  const int64_t n_prefill = Prefilled(v.golden, n);
  for (std::size_t b = 0; layer.size() < n_prefill; ++b) {
    layer.Prefill(v.inputs, std::min(blocks[b % blocks.size()], n_prefill - layer.size()), query_block);
  }
  while (layer.size() < n) layer.Decode(v.inputs);
  return layer;
}

void ExpectSame(const OneLayer& a, const OneLayer& b, const HeadShape& shape) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.out(), b.out());
  for (int64_t i = 0; i < a.size(); ++i) {
    for (int64_t h = 0; h < shape.n_heads; ++h) {
      ASSERT_EQ(a.seen(i, h).keys, b.seen(i, h).keys) << i << " " << h;
    }
  }
}

class MethodGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(MethodGoldenTest, EqualsTheTwinAtEveryLength) {
  double worst = 0;
  ForEachVariant(GetParam(), [&](const Variant& v) {
    for (const int64_t n : v.golden.lengths) {
      const MethodDifferences differences = v.Differences(Feed(v, n));
      EXPECT_TRUE(differences.none()) << n << " tokens: " << differences.first << " (sets "
                                      << differences.n_sets << ", outputs " << differences.n_outputs << ")";
      worst = std::max(worst, differences.worst);
    }
  });
  RecordProperty("worst_share_of_bound", std::to_string(worst));
}

TEST_P(MethodGoldenTest, DecodeEqualsTheTwinToo) {
  ForEachVariant(GetParam(), [](const Variant& v) {
    if (v.golden.n_prefill) return;  // its decode is part of the golden
    const int64_t n = v.golden.inputs.n;
    for (const int64_t n_prefill : {int64_t{0}, n / 2}) {
      OneLayer layer(v.setup);
      if (n_prefill > 0) layer.Prefill(v.inputs, n_prefill);
      while (layer.size() < n) layer.Decode(v.inputs);
      const MethodDifferences differences = v.Differences(layer);
      EXPECT_TRUE(differences.none()) << n_prefill << " in prefill: " << differences.first;
    }
  });
}

TEST_P(MethodGoldenTest, BlocksDoNotChangeABit) {
  OnBest(GetParam(), [](Variant& v) {
    const int64_t n = v.golden.inputs.n;
    const OneLayer whole = Feed(v, n);
    for (const int64_t query_block : {1, 3, 37, 64})
      ExpectSame(Feed(v, n, {1 << 20}, query_block), whole, v.inputs.shape);
    if (v.golden.calls) return;
    for (const std::vector<int64_t>& blocks :
         std::vector<std::vector<int64_t>>{{1}, {63, 1, 1}, {7, 64, 2, 31}, {100}}) {
      ExpectSame(Feed(v, n, blocks), whole, v.inputs.shape);
    }
  });
}

TEST_P(MethodGoldenTest, ThreadsDoNotChangeABit) {
  OnBest(GetParam(), [](Variant& v) {
    const int64_t n = v.golden.inputs.n;
    const OneLayer one = Feed(v, n);
    for (const int n_threads : {2, 3}) {
      v.setup.n_threads = n_threads;
      ExpectSame(Feed(v, n), one, v.inputs.shape);
    }
  });
}

// A fork goes on as the original does, and neither feels the other; going back to what the state allows and
// feeding the same tokens again gives the same.
TEST_P(MethodGoldenTest, ForksAndRewindsDoNotChangeABit) {
  OnBest(GetParam(), [](Variant& v) {
    const int64_t n = v.golden.inputs.n;
    OneLayer layer = Feed(v, n * 3 / 4);
    if (layer.size() < v.golden.n_prefill.value_or(0) && v.golden.calls) layer = Feed(v, *v.golden.n_prefill);
    const int64_t at = layer.size();
    const auto decode_to = [&](OneLayer& to, int64_t end) {
      while (to.size() < end) to.Decode(v.inputs);
    };
    OneLayer fork = layer.Fork();
    OneLayer other = layer.Fork();
    LayerInputs different = v.inputs;
    std::reverse(different.k.begin(), different.k.end());
    while (other.size() < n) other.Decode(different);
    decode_to(layer, n);
    decode_to(fork, n);
    ExpectSame(layer, fork, v.inputs.shape);

    // Every state takes back its newest token.
    OneLayer back = fork.Fork();
    ASSERT_EQ(back.RewindPoint(n - 1), n - 1);
    back.Truncate(n - 1);
    decode_to(back, n);
    ExpectSame(back, layer, v.inputs.shape);
    // And goes back further to where it says, among tokens that were decoded.
    for (const int64_t m : {n - 2, (at + n) / 2, at}) {
      const int64_t point = fork.RewindPoint(m);
      ASSERT_LE(point, m);
      if (point < at) continue;  // in the prompt
      OneLayer again = fork.Fork();
      again.Truncate(point);
      decode_to(again, n);
      ExpectSame(again, layer, v.inputs.shape);
    }
  });
}

// Of every method that the registry has; under sanitizers a third of each.
std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const std::string& method : PolicyNames()) {
    std::vector<std::string> of_method = MethodGoldenNames(method);
    for (std::size_t i = 0; i < of_method.size(); i += kSanitized ? 3 : 1) {
      names.push_back(std::move(of_method[i]));
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, MethodGoldenTest, testing::ValuesIn(Names()), [](const auto& p) {
  std::string name = p.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(MethodGoldens, ExistForEveryMethod) {
  for (const std::string& method : PolicyNames()) {
    if (method == "auto") continue;  // LongHeads by another name
    EXPECT_FALSE(MethodGoldenNames(method).empty()) << method;
  }
}

}  // namespace
}  // namespace longheads
