// LongHeads against the goldens of its naive float64 twin: on equal inputs the attended (key, distance) sets
// are equal to the last pair, and the outputs within float32's roundings; in both pair layouts, on every
// implementation of the kernels, in prefill and in decode. And mutations, which the comparison must notice.
#include "tests/support/longheads_golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "attention/longheads.h"
#include "tests/support/one_layer.h"
#include "tests/support/sanitized.h"

namespace longheads {
namespace {

// A golden's text in one pair layout and one implementation of the kernels.
struct Variant {
  const LongHeadsGolden& golden;
  PairLayout layout;
  std::string backend;
  LayerInputs inputs;
  LongHeads policy;
  LayerSetup setup;

  Variant(const LongHeadsGolden& g, PairLayout pair_layout, const Implementation<AttentionKernels>& kernels)
      : golden(g),
        layout(pair_layout),
        backend(kernels.name),
        inputs(layout == PairLayout::kInterleaved ? Interleaved(g.inputs) : g.inputs),
        policy(g.options, g.inputs.shape, layout, g.options.begin),
        setup{.policy = policy,
              .kernels = *kernels.table,
              .shape = g.inputs.shape,
              .layout = layout,
              .frequencies = g.frequencies,
              .max_tokens = g.inputs.n} {}

  // The first n tokens as the golden divides them into prefill and decode.
  OneLayer Run(int64_t n) const {
    OneLayer layer(setup);
    layer.Prefill(inputs, std::min(n, golden.n_prefill.value_or(n)));
    while (layer.size() < n) layer.Decode(inputs);
    return layer;
  }
  std::string Describe() const {
    return golden.name + ", " + backend + (layout == PairLayout::kInterleaved ? ", interleaved" : "");
  }
};

void ForEachVariant(const std::string& name, const std::function<void(const Variant&)>& test) {
  const LongHeadsGolden golden = LoadLongHeadsGolden(name);
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
  }
}

void ExpectSame(const OneLayer& a, const OneLayer& b, const HeadShape& shape) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.out(), b.out());
  for (int64_t i = 0; i < a.size(); ++i) {
    for (int64_t h = 0; h < shape.n_heads; ++h)
      ASSERT_EQ(a.seen(i, h).keys, b.seen(i, h).keys) << i << " " << h;
  }
}

class LongHeadsGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(LongHeadsGoldenTest, EqualsTheTwinAtEveryLength) {
  double worst = 0;
  ForEachVariant(GetParam(), [&](const Variant& v) {
    for (const int64_t n : v.golden.lengths) {
      const GoldenDifferences differences = Compare(v.golden, v.Run(n));
      EXPECT_TRUE(differences.none()) << n << " tokens: " << differences.first;
      worst = std::max(worst, differences.worst);
    }
  });
  RecordProperty("worst_share_of_bound", std::to_string(worst));
}

TEST_P(LongHeadsGoldenTest, PrefillBlocksDoNotChangeABit) {
  ForEachVariant(GetParam(), [](const Variant& v) {
    const int64_t n = v.golden.n_prefill.value_or(v.golden.inputs.n);
    const int64_t l = v.golden.options.chunk;
    const bool slow = n > 1000 && v.backend == "ref";
    if (n > 1000 && v.layout == PairLayout::kInterleaved) return;
    OneLayer whole(v.setup);
    whole.Prefill(v.inputs, n);
    const std::vector<std::vector<int64_t>> splits = {{1},
                                                      {l - 1},
                                                      {l},
                                                      {l + 1},
                                                      {l - 1, 1, 1},
                                                      {2 * l + 3, 1, l, 5 * l - 1},
                                                      {v.golden.options.begin, 1, l}};
    for (const std::vector<int64_t>& blocks : splits) {
      if ((slow || kSanitized) && blocks.size() < 3) continue;
      OneLayer layer(v.setup);
      for (std::size_t b = 0; layer.size() < n; ++b) {
        layer.Prefill(v.inputs, std::min(blocks[b % blocks.size()], n - layer.size()));
      }
      ExpectSame(layer, whole, v.inputs.shape);
    }
    for (const int64_t query_block : {int64_t{1}, l - 1, l + 1, int64_t{37}}) {
      if (slow && query_block != l + 1) continue;
      OneLayer layer(v.setup);
      layer.Prefill(v.inputs, n, query_block);
      ExpectSame(layer, whole, v.inputs.shape);
    }
  });
}

TEST_P(LongHeadsGoldenTest, DecodeEqualsTheTwinToo) {
  ForEachVariant(GetParam(), [](const Variant& v) {
    if (v.golden.n_prefill) return;  // its decode is part of the golden
    const int64_t begin = v.golden.options.begin;
    for (const int64_t n_prefill : {int64_t{0}, begin - 1, begin + v.golden.options.chunk + 1}) {
      if (n_prefill == 0 && v.golden.inputs.n > 400) continue;
      OneLayer layer(v.setup);
      if (n_prefill > 0) layer.Prefill(v.inputs, n_prefill);
      while (layer.size() < std::min(v.golden.inputs.n, n_prefill + 300)) layer.Decode(v.inputs);
      const GoldenDifferences differences = Compare(v.golden, layer);
      EXPECT_TRUE(differences.none()) << n_prefill << " in prefill: " << differences.first;
    }
  });
}

TEST_P(LongHeadsGoldenTest, ThreadsDoNotChangeABit) {
  const LongHeadsGolden golden = LoadLongHeadsGolden(GetParam());
  Variant v(golden, PairLayout::kInterleaved,
            *ChooseImplementation(AttentionImplementations(), "auto", "attention"));
  const int64_t n = std::min<int64_t>(golden.inputs.n, golden.options.begin + 5 * golden.options.chunk);
  const int64_t n_prefill = std::min(golden.n_prefill.value_or(n), n * 2 / 3);
  std::optional<OneLayer> first;
  for (const int n_threads : {1, 2, 3}) {
    v.setup.n_threads = n_threads;
    OneLayer layer(v.setup);
    layer.Prefill(v.inputs, n_prefill);
    while (layer.size() < n) layer.Decode(v.inputs);
    if (first) {
      ExpectSame(layer, *first, v.inputs.shape);
    } else {
      first.emplace(std::move(layer));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, LongHeadsGoldenTest, testing::ValuesIn(LongHeadsGoldenNames()),
                         [](const auto& p) {
                           std::string name = p.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// ---- The comparison notices what it is for

class MutationTest : public testing::Test {
 protected:
  GoldenDifferences RunMutated(const std::function<void(const QueryBlock&, Plan&)>& mutation,
                               bool decode = false) {
    Variant v(golden_, PairLayout::kInterleaved, AttentionImplementations().back());
    OneLayer layer(v.setup);
    layer.mutation = mutation;
    if (!decode) layer.Prefill(v.inputs, v.inputs.n);
    while (layer.size() < v.inputs.n) layer.Decode(v.inputs);
    return Compare(golden_, layer);
  }

  const LongHeadsGolden golden_ = LoadLongHeadsGolden("gqa-head-head");
};

TEST_F(MutationTest, NoneIsNoticedWhereThereIsNone) {
  EXPECT_TRUE(RunMutated(nullptr).none());
  EXPECT_TRUE(RunMutated([](const QueryBlock&, Plan&) {}, /*decode=*/true).none());
}

TEST_F(MutationTest, DroppingTheFirstChunkIsNoticed) {
  const auto drop = [](const QueryBlock&, Plan& plan) {
    std::erase_if(plan.segments, [](const PlanSegment& segment) { return segment.key_begin == 0; });
  };
  for (const bool decode : {false, true}) {
    const GoldenDifferences differences = RunMutated(drop, decode);
    EXPECT_EQ(differences.n_sets, golden_.inputs.n);
    EXPECT_EQ(differences.n_chunks, golden_.inputs.n * golden_.inputs.shape.n_heads);
    EXPECT_GT(differences.n_outputs, golden_.inputs.n);
    EXPECT_GT(differences.n_attended, 0);
  }
}

TEST_F(MutationTest, ASlotOffByOneIsNoticed) {
  const int64_t l = golden_.options.chunk;
  const auto shift = [&](const QueryBlock& block, Plan& plan) {
    for (const PlanSegment& segment : plan.segments) {
      if (segment.key_begin != 0) continue;
      for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
        PlanRow& row = plan.rows[static_cast<std::size_t>(r)];
        const int64_t group = golden_.inputs.shape.group();
        if (block.tokens[static_cast<std::size_t>(row.row / group)].position == golden_.inputs.n - 1) {
          row.x -= static_cast<int32_t>(l);
        }
      }
    }
  };
  for (const bool decode : {false, true}) {
    const GoldenDifferences differences = RunMutated(shift, decode);
    EXPECT_EQ(differences.n_sets, 1);  // one token, and all its heads by one chunk
    EXPECT_EQ(differences.n_chunks, 0);
    EXPECT_GT(differences.n_outputs, 0);
  }
}

TEST_F(MutationTest, AKeyTooFewIsNoticed) {
  const auto cut = [](const QueryBlock&, Plan& plan) {
    for (PlanSegment& segment : plan.segments) segment.min_distance = 1;  // as compat=own-key, but everywhere
  };
  EXPECT_EQ(RunMutated(cut).n_sets, golden_.inputs.n);
}

TEST_F(MutationTest, AnUnpermutedMeanIsNoticed) {
  // Interleaved keys under a policy that takes them for half-split: only the representations can tell.
  for (const char* const name : {"mha", "gqa-kv-head", "chunks-of-32"}) {
    const LongHeadsGolden golden = LoadLongHeadsGolden(name);
    const Variant right(golden, PairLayout::kInterleaved, AttentionImplementations().back());
    const LongHeads wrong(golden.options, golden.inputs.shape, PairLayout::kHalfSplit, golden.options.begin);
    OneLayer layer({.policy = wrong,
                    .kernels = right.setup.kernels,
                    .shape = golden.inputs.shape,
                    .layout = PairLayout::kInterleaved,
                    .frequencies = golden.frequencies,
                    .max_tokens = golden.inputs.n});
    layer.Prefill(right.inputs, right.inputs.n);
    const GoldenDifferences differences = Compare(golden, layer);
    EXPECT_GT(differences.n_sets, 0) << name;
    EXPECT_GT(differences.n_outputs, 0) << name;
  }
}

}  // namespace
}  // namespace longheads
