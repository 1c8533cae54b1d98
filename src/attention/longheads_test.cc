// What LongHeads promises beside its definition: a sequence forks and rewinds without a trace, reduces to
// full attention where nothing is left out, and loses no more than bf16 does.
#include "attention/longheads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "attention/full.h"
#include "tests/support/longheads_golden.h"
#include "tests/support/one_layer.h"

namespace longheads {
namespace {

const AttentionKernels& Fastest() {
  return *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
}

constexpr HeadShape kShape{.n_heads = 4, .n_kv_heads = 2, .head_dim = 64};
constexpr int64_t kChunk = 4;
constexpr LongHeadsOptions kOptions{.chunk = kChunk, .window = 16, .begin = 24, .compat = {}};
constexpr int64_t kTokens = 75;

class LongHeadsTest : public testing::Test {
 protected:
  LayerSetup SetupFor(const Policy& policy, int64_t max_tokens = kTokens) const {
    return {.policy = policy, .kernels = Fastest(), .shape = kShape, .max_tokens = max_tokens};
  }

  const LongHeads policy_{kOptions, kShape, PairLayout::kHalfSplit, 1000};
  const LayerInputs inputs_ = UniformInputs(kShape, kTokens, 5);
  const LayerInputs others_ = UniformInputs(kShape, kTokens, 6);
};

TEST_F(LongHeadsTest, AForkAfterAnyTokenContinuesAsTheOriginalDoes) {
  OneLayer prefilled(SetupFor(policy_));
  prefilled.Prefill(inputs_, kTokens);
  for (int64_t m = 1; m < kTokens; ++m) {
    OneLayer original(SetupFor(policy_));
    original.Prefill(inputs_, m);
    OneLayer same = original.Fork();
    OneLayer other = original.Fork();
    OneLayer blocks = original.Fork();
    // Another text goes on first, so that whatever the forks share would be its own.
    other.Prefill(others_, std::min<int64_t>(kTokens - m, 3 * kChunk));
    while (original.size() < kTokens) {
      original.Decode(inputs_);
      same.Decode(inputs_);
      if (other.size() < kTokens) other.Decode(others_);
    }
    ASSERT_EQ(same.out(), original.out()) << m;
    blocks.Prefill(inputs_, kTokens - m);
    ASSERT_EQ(blocks.out(), prefilled.out()) << m;
    OneLayer unforked(SetupFor(policy_));
    unforked.Prefill(inputs_, m);
    while (unforked.size() < kTokens) unforked.Decode(inputs_);
    ASSERT_EQ(unforked.out(), original.out()) << m;
  }
}

TEST_F(LongHeadsTest, ForksInsideASharedBlockOfRepresentationsStayApart) {
  // More than one block of 64 representations, forked in the middle of one.
  constexpr int64_t kLong = 150 * kChunk + 1;
  const LayerInputs inputs = UniformInputs(kShape, kLong, 1);
  const LayerInputs others = UniformInputs(kShape, kLong, 2);
  OneLayer whole(SetupFor(policy_, kLong));
  whole.Prefill(inputs, kLong);
  for (const int64_t m : {63, 64, 65, 100}) {
    OneLayer original(SetupFor(policy_, kLong));
    original.Prefill(inputs, m * kChunk);
    OneLayer other = original.Fork();
    other.Prefill(others, kLong - other.size());
    original.Prefill(inputs, kLong - original.size());
    ASSERT_EQ(original.out(), whole.out()) << m;
  }
}

TEST_F(LongHeadsTest, RewindPointIsTheTokenItselfInTheOpenChunkElseItsChunksFirst) {
  OneLayer layer(SetupFor(policy_));
  layer.Prefill(inputs_, 10 * kChunk + 3);
  for (int64_t n = 0; n <= layer.size(); ++n) {
    EXPECT_EQ(layer.RewindPoint(n), n >= 10 * kChunk ? n : n / kChunk * kChunk) << n;
  }
}

TEST_F(LongHeadsTest, ATruncatedSequenceForgetsWithoutATrace) {
  OneLayer whole(SetupFor(policy_));
  whole.Prefill(inputs_, kTokens);
  for (int64_t n = 0; n <= kTokens; ++n) {
    for (const int64_t wrong : {int64_t{1}, kChunk, 3 * kChunk + 1}) {
      OneLayer layer(SetupFor(policy_));
      if (n > 0) layer.Prefill(inputs_, n);
      OneLayer fork = layer.Fork();
      // Another text, and back.
      if (n + wrong > kTokens) continue;
      layer.Prefill(others_, wrong);
      const int64_t m = layer.RewindPoint(n);
      ASSERT_LE(m, n);
      ASSERT_GT(m, n - kChunk);
      layer.Truncate(m);
      if (m < kTokens) layer.Prefill(inputs_, kTokens - m);
      ASSERT_EQ(layer.out(), whole.out()) << n << " " << wrong;
      if (n < kTokens) fork.Prefill(inputs_, kTokens - n);
      ASSERT_EQ(fork.out(), whole.out()) << n << " " << wrong;
    }
  }
}

// The largest difference of two runs' outputs over the rows that see the same keys; how many do not.
struct Agreement {
  double worst = 0;
  int64_t n_rows = 0;
  int64_t n_others = 0;
};

Agreement Agree(const OneLayer& a, const OneLayer& b, const HeadShape& shape) {
  Agreement result;
  for (int64_t i = 0; i < a.size(); ++i) {
    for (int64_t h = 0; h < shape.n_heads; ++h) {
      ++result.n_rows;
      if (a.seen(i, h).keys != b.seen(i, h).keys) {
        ++result.n_others;
        continue;
      }
      for (int64_t m = 0; m < shape.head_dim; ++m) {
        const auto at = static_cast<std::size_t>((i * shape.n_heads + h) * shape.head_dim + m);
        result.worst = std::max(result.worst, std::abs(static_cast<double>(a.out()[at]) - b.out()[at]));
      }
    }
  }
  return result;
}

TEST_F(LongHeadsTest, EqualsFullAttentionBeforeBegin) {
  const FullAttention full(kShape, kTokens);
  const LongHeads late({.chunk = kChunk, .window = 16, .begin = 76, .compat = {}}, kShape,
                       PairLayout::kHalfSplit, 1000);
  OneLayer expected(SetupFor(full));
  expected.Prefill(inputs_, kTokens);
  OneLayer layer(SetupFor(late));
  layer.Prefill(inputs_, kTokens);
  const Agreement agreement = Agree(layer, expected, kShape);
  EXPECT_EQ(agreement.n_others, 0);
  // Both sides round.
  EXPECT_LE(agreement.worst, 2 * BoundOf(inputs_, /*max_logit=*/12).out);
}

TEST_F(LongHeadsTest, EqualsFullAttentionWhereEveryChunkHasASlot) {
  constexpr int64_t kMore = 80;
  const LayerInputs inputs = UniformInputs(kShape, kMore, 9);
  const FullAttention full(kShape, kMore);
  OneLayer expected(SetupFor(full, kMore));
  expected.Prefill(inputs, kMore);
  // From `begin` on there are more chunks than slots. With compat=begin decode selects one token earlier,
  // when exactly K chunks exist: all of them.
  const LongHeads early({.chunk = kChunk, .window = 80, .begin = 80, .compat = {.begin = true}}, kShape,
                        PairLayout::kHalfSplit, 1000);
  OneLayer selecting(SetupFor(early, kMore));
  selecting.Prefill(inputs, kMore - 1);
  selecting.Decode(inputs);
  const Agreement agreement = Agree(selecting, expected, kShape);
  EXPECT_EQ(agreement.n_others, 0);
  EXPECT_LE(agreement.worst, 2 * BoundOf(inputs, /*max_logit=*/12).out);
}

TEST_F(LongHeadsTest, PlacesTheChosenChunksInSlots) {
  // l = 4, K = 4, token 30: chunk 7, offset 2. Keys are zero but in chunk 3, where they are what token 30
  // looks for on a pair that hardly turns: it sees chunks 0, 3, 6 and 7, at x = 14, 10, 6 and 2.
  LayerInputs inputs{
      .shape = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 64}, .n = 31, .q = {}, .k = {}, .v = {}};
  inputs.q.assign(31 * 64, 0);
  inputs.k.assign(31 * 64, 0);
  inputs.v.assign(31 * 64, 1);
  inputs.q[30 * 64 + 31] = 1;
  for (int64_t j = 12; j < 16; ++j) inputs.k[static_cast<std::size_t>(j * 64 + 31)] = 1;
  const LongHeads policy({.chunk = 4, .window = 16, .begin = 16, .compat = {}}, inputs.shape,
                         PairLayout::kHalfSplit, 16);
  OneLayer layer({.policy = policy, .kernels = Fastest(), .shape = inputs.shape, .max_tokens = 31});
  layer.Prefill(inputs, 31);
  const SeenRow& row = layer.seen(30, 0);
  EXPECT_EQ(row.segments, (std::vector<int64_t>{0, 12, 24, 28}));
  EXPECT_EQ(row.rotations, (std::vector<int32_t>{14, 10, 6, 2}));
  ASSERT_EQ(row.keys.size(), 15u);
  EXPECT_EQ(row.keys.front(), std::make_pair(0, 14));
  EXPECT_EQ(row.keys[4], std::make_pair(12, 10));  // chunk 3 sits in slot 1
  EXPECT_EQ(row.keys.back(), std::make_pair(30, 0));
  EXPECT_LE(row.rotations.front(), policy.RotationBound(31));
}

TEST_F(LongHeadsTest, Bf16StoresLoseNoMoreThanTheirRoundings) {
  const LongHeads fixed({.chunk = kChunk, .window = 12, .begin = 12, .compat = {}}, kShape,
                        PairLayout::kHalfSplit, 1000);
  // Every key's element is off by 2^-9 of itself at most, so that a logit is by 2^-9 |q| |k| / sqrt(d), and
  // every value by 2^-9 of itself.
  double q_norm = 0, k_norm = 0;
  const auto norm = [](const std::vector<float>& x, std::size_t row) {
    double sum = 0;
    for (std::size_t m = 0; m < 64; ++m) sum += static_cast<double>(x[row * 64 + m]) * x[row * 64 + m];
    return std::sqrt(sum);
  };
  for (std::size_t row = 0; row < inputs_.q.size() / 64; ++row)
    q_norm = std::max(q_norm, norm(inputs_.q, row));
  for (std::size_t row = 0; row < inputs_.k.size() / 64; ++row)
    k_norm = std::max(k_norm, norm(inputs_.k, row));
  const double logit_error = 0x1p-9 * q_norm * k_norm / 8;
  const double bound = 2 * BoundOf(inputs_, /*max_logit=*/12, logit_error, 0x1p-9).out;
  for (const LongHeads* const policy : {&fixed, &policy_}) {
    for (const bool decode : {false, true}) {
      LayerSetup setup = SetupFor(*policy);
      OneLayer exact(setup);
      setup.kv = KvType::kBF16;
      OneLayer half(setup);
      for (OneLayer* const layer : {&exact, &half}) {
        layer->Prefill(inputs_, decode ? 1 : kTokens);
        while (layer->size() < kTokens) layer->Decode(inputs_);
      }
      const Agreement agreement = Agree(half, exact, kShape);
      EXPECT_LE(agreement.worst, bound);
      EXPECT_GT(agreement.worst, 0);
      // With three slots there is no choice that rounding could turn; else close scores may change places.
      EXPECT_LE(agreement.n_others, policy == &fixed ? 0 : agreement.n_rows / 20);
    }
  }
}

TEST_F(LongHeadsTest, AcceptsABf16StoreBitForBitInAnyBlocks) {
  LayerSetup setup = SetupFor(policy_);
  setup.kv = KvType::kBF16;
  OneLayer whole(setup);
  whole.Prefill(inputs_, kTokens);
  OneLayer parts(setup);
  while (parts.size() < kTokens) parts.Prefill(inputs_, std::min<int64_t>(7, kTokens - parts.size()));
  EXPECT_EQ(parts.out(), whole.out());
}

// Of every choice of a decode step: the candidates that come after those that were taken.
class NextBest : public SelectionObserver {
 public:
  void OnChoice(const BlockChoice& choice) override {
    const std::scoped_lock lock(mutex_);
    std::vector<int64_t> ranked(static_cast<std::size_t>(choice.n_candidates));
    std::iota(ranked.begin(), ranked.end(), choice.first);
    const auto score = [&choice](int64_t chunk) {
      return choice.scores[static_cast<std::size_t>(chunk - choice.first)];
    };
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&score](int64_t a, int64_t b) { return score(a) > score(b); });
    for (std::size_t i = choice.taken.size(); i < std::min(2 * choice.taken.size(), ranked.size()); ++i) {
      expected.emplace_back(choice.head_begin / kShape.group(), ranked[i] * kChunk);
    }
  }
  void OnPlan(const Policy&, const QueryBlock& block, Phase, Plan& plan) override {
    const std::scoped_lock lock(mutex_);
    for (const PlanHint& hint : plan.hints) {
      EXPECT_EQ(hint.key_end, hint.key_begin + kChunk);
      hinted.emplace_back(block.kv_head, hint.key_begin);
    }
  }
  void Sort() {
    std::sort(expected.begin(), expected.end());
    std::sort(hinted.begin(), hinted.end());
  }

  std::vector<std::pair<int64_t, int64_t>> expected, hinted;  // (KV head, first key of the chunk)

 private:
  std::mutex mutex_;
};

TEST_F(LongHeadsTest, DecodeHintsAtTheNextBestChunksWherePagesMayBeOnDisk) {
  for (const bool on_disk : {true, false}) {
    LayerSetup setup = SetupFor(policy_);
    setup.on_disk = on_disk;
    OneLayer layer(setup);
    layer.Prefill(inputs_, 40);
    for (; layer.size() < kTokens;) {
      NextBest next;
      layer.observer = &next;
      layer.Decode(inputs_);
      next.Sort();
      ASSERT_FALSE(next.expected.empty());
      if (!on_disk) next.expected.clear();
      EXPECT_EQ(next.hinted, next.expected) << layer.size();
    }
  }
}

// The scores by which a step's heads chose.
class ScoresOfHeads : public SelectionObserver {
 public:
  void OnChoice(const BlockChoice& choice) override {
    const std::scoped_lock lock(mutex_);
    for (int64_t head = choice.head_begin; head < choice.head_end; ++head) {
      std::vector<float>& scores = of_token[choice.token_begin][head];
      EXPECT_TRUE(scores.empty());  // told once
      scores.assign(choice.scores.begin(), choice.scores.end());
    }
  }
  std::map<int64_t, std::map<int64_t, std::vector<float>>> of_token;

 private:
  std::mutex mutex_;
};

TEST_F(LongHeadsTest, ScoresOfHeadsThatChooseTogetherAreTheSumsOfTheirs) {
  constexpr HeadShape kGrouped{.n_heads = 6, .n_kv_heads = 2, .head_dim = 64};
  constexpr int64_t kEnd = 150 * kChunk + 2;  // representations lie in blocks of 64 chunks
  constexpr int64_t kScored = 80;             // a prompt's tokens are scored 64 at a time
  const LayerInputs inputs = UniformInputs(kGrouped, kEnd, 3);
  using Grouping = LongHeadsOptions::Grouping;
  for (const auto represent : {LongHeadsOptions::Represent::kPaper, LongHeadsOptions::Represent::kMean}) {
    const auto scores_by = [&](Grouping reps, Grouping select) {
      LongHeadsOptions options = kOptions;
      options.represent = represent;
      options.reps = reps;
      options.select = select;
      const LongHeads policy(options, kGrouped, PairLayout::kHalfSplit, 1000);
      LayerSetup setup = SetupFor(policy, kEnd);
      setup.shape = kGrouped;
      OneLayer layer(setup);
      ScoresOfHeads scores;
      layer.Prefill(inputs, kEnd - kScored);
      layer.observer = &scores;
      layer.Prefill(inputs, kScored - 1);
      layer.Decode(inputs);
      return scores.of_token;
    };
    const auto own = scores_by(Grouping::kHead, Grouping::kHead);
    const auto shared = scores_by(Grouping::kKv, Grouping::kHead);
    if (represent == LongHeadsOptions::Represent::kMean) {
      EXPECT_EQ(shared, own);  // by the same vectors
    }
    for (const auto& [each, sums] : {std::pair(own, scores_by(Grouping::kHead, Grouping::kKv)),
                                     std::pair(shared, scores_by(Grouping::kKv, Grouping::kKv))}) {
      ASSERT_EQ(sums.size(), kScored);
      for (const auto& [token, of_head] : sums) {
        ASSERT_EQ(of_head.size(), kGrouped.n_heads);
        for (const auto& [head, scores] : of_head) {
          ASSERT_GE(scores.size(), 125U);
          for (std::size_t chunk = 0; chunk < scores.size(); ++chunk) {
            double sum = 0;
            for (int64_t g = 0; g < 3; ++g) sum += each.at(token).at(head / 3 * 3 + g)[chunk];
            // 64 products and a few sums round, of numbers whose magnitudes add up to 3 x 64 at most.
            EXPECT_NEAR(scores[chunk], sum, 70 * 192 * std::ldexp(1.0, -23)) << token << " " << head;
          }
        }
      }
    }
  }
}

TEST_F(LongHeadsTest, StateBytesForeseesWhatTheStateHolds) {
  for (const int64_t n : {0, 3, 4, 255, 256, 257, 1000}) {
    const LayerInputs inputs = UniformInputs(kShape, n + 1, 5);
    OneLayer layer(SetupFor(policy_, n + 1));
    if (n > 0) layer.Prefill(inputs, n);
    EXPECT_EQ(layer.state().Bytes(), policy_.StateBytes(n)) << n;
  }
}

TEST_F(LongHeadsTest, WarnsWhereFullAttentionGoesPastTheTrainedWindow) {
  const LongHeads late({.chunk = 4, .window = 16, .begin = 2000, .compat = {}}, kShape,
                       PairLayout::kHalfSplit, 1000);
  EXPECT_EQ(late.Warning(1000), "");
  EXPECT_NE(late.Warning(1001), "");
  EXPECT_EQ(policy_.Warning(1'000'000), "");
  EXPECT_NE(policy_.Explain().find("24"), std::string::npos);
}

}  // namespace
}  // namespace longheads
