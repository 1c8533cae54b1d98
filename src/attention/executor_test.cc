#include "attention/executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>

#include "attention/full.h"
#include "attention/longheads.h"
#include "rope/frequencies.h"
#include "tests/support/longheads_golden.h"
#include "tests/support/one_layer.h"

namespace longheads {
namespace {

constexpr HeadShape kShape{.n_heads = 6, .n_kv_heads = 2, .head_dim = 64};

class ExecutorTest : public testing::TestWithParam<Implementation<AttentionKernels>> {
 protected:
  void SetUp() override {
    if (!GetParam().declined.empty()) GTEST_SKIP() << GetParam().declined;
  }
  LayerSetup SetupFor(const Policy& policy, int n_threads = 1) const {
    return {.policy = policy,
            .kernels = *GetParam().table,
            .shape = kShape,
            .max_tokens = 1000,
            .n_threads = n_threads};
  }

  const FullAttention full_{kShape, 1000};
  const LongHeads longheads_{
      {.chunk = 20, .window = 80, .begin = 100, .compat = {}}, kShape, PairLayout::kHalfSplit, 1000};
};

TEST_P(ExecutorTest, GroupingQueriesIntoBlocksDoesNotChangeABit) {
  const LayerInputs inputs = UniformInputs(kShape, 300, 1);
  for (const Policy* const policy :
       {static_cast<const Policy*>(&full_), static_cast<const Policy*>(&longheads_)}) {
    OneLayer whole(SetupFor(*policy));
    whole.Prefill(inputs, 300);
    for (const int64_t query_block : {1, 3, 16, 255, 256, 299}) {
      OneLayer layer(SetupFor(*policy));
      layer.Prefill(inputs, 300, query_block);
      ASSERT_EQ(layer.out(), whole.out()) << query_block;
    }
  }
}

TEST_P(ExecutorTest, ABatchOfSequencesEqualsEachAlone) {
  for (const Policy* const policy :
       {static_cast<const Policy*>(&full_), static_cast<const Policy*>(&longheads_)}) {
    for (const int n_threads : {1, 3}) {
      const std::vector<int64_t> lengths = {1, 99, 100, 257, 400};
      std::vector<LayerInputs> inputs;
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        inputs.push_back(UniformInputs(kShape, lengths[s] + 30, 10 + s));
      }
      std::vector<OneLayer> alone, together;
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        alone.emplace_back(SetupFor(*policy));
        alone.back().Prefill(inputs[s], lengths[s]);
        together.push_back(alone.back().Fork());
      }
      std::vector<OneLayer*> batch;
      std::vector<const LayerInputs*> batch_inputs;
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        batch.push_back(&together[s]);
        batch_inputs.push_back(&inputs[s]);
      }
      // All share the first one's setup, threads included, which the others' own runs must not feel.
      LayerSetup setup = SetupFor(*policy, n_threads);
      OneLayer first(setup);
      first.Prefill(inputs[0], lengths[0]);
      together[0] = std::move(first);
      for (int step = 0; step < 30; ++step) {
        OneLayer::DecodeTogether(batch, batch_inputs);
        for (std::size_t s = 0; s < lengths.size(); ++s) alone[s].Decode(inputs[s]);
      }
      for (std::size_t s = 0; s < lengths.size(); ++s) ASSERT_EQ(together[s].out(), alone[s].out()) << s;
    }
  }
}

TEST_P(ExecutorTest, PrefillAndDecodeAgreeWithinRounding) {
  const LayerInputs inputs = UniformInputs(kShape, 400, 2);
  const double bound = 2 * BoundOf(inputs, /*max_logit=*/12).out;
  OneLayer prefilled(SetupFor(full_));
  prefilled.Prefill(inputs, 400);
  OneLayer decoded(SetupFor(full_));
  while (decoded.size() < 400) decoded.Decode(inputs);
  for (std::size_t i = 0; i < prefilled.out().size(); ++i) {
    ASSERT_NEAR(prefilled.out()[i], decoded.out()[i], bound);
  }
}

TEST_P(ExecutorTest, RowsThatSeeNoKeyAreZero) {
  // A policy may leave a row without keys: its output is zero, not a division by zero.
  const LayerInputs inputs = UniformInputs(kShape, 40, 4);
  for (const bool decode : {false, true}) {
    OneLayer layer(SetupFor(full_));
    layer.Prefill(inputs, 39);
    layer.mutation = [](const QueryBlock&, Plan& plan) {
      for (PlanSegment& segment : plan.segments) segment.min_distance = 40;
    };
    if (decode) {
      layer.Decode(inputs);
    } else {
      layer.Prefill(inputs, 1);
    }
    for (std::size_t i = 39 * 6 * 64; i < layer.out().size(); ++i) ASSERT_EQ(layer.out()[i], 0.0f);
  }
}

TEST_P(ExecutorTest, ARaisedTokenStopsABlockBeforeItsOutput) {
  const LayerInputs inputs = UniformInputs(kShape, 300, 4);
  const RotationTable rotations(TrainedFrequencies(10000, 64, {})->theta, 64, PairLayout::kHalfSplit, 300);
  KvSequence sequence(KvPool::Create({.n_layers = 1, .n_kv_heads = 2, .head_dim = 64, .type = KvType::kF32}));
  sequence.Reserve(300);
  sequence.Write(0, 0, 0, 300, inputs.k.data(), 128, inputs.v.data(), 128);
  sequence.Commit(300);
  std::vector<float> out(300 * 6 * 64, 77);
  std::vector<QueryToken> tokens;
  for (int64_t i = 0; i < 300; ++i) {
    tokens.push_back({0, i, inputs.q.data() + i * 6 * 64, out.data() + i * 6 * 64});
  }
  const AttentionSequence sequences[] = {{.kv = &sequence, .rotations = &rotations, .scale = 0.125f}};
  const QueryBlock block{.layer = 0, .kv_head = 0, .tokens = tokens, .sequences = sequences};
  Plan plan;
  const auto scratch = full_.NewScratch();
  full_.BuildPlan(block, Phase::kPrefill, *GetParam().table, *scratch, plan);
  AttentionExecutor executor(*GetParam().table, kShape, 1);
  CancelToken cancel;
  cancel.Cancel();
  executor.RunBlock(block, plan, full_.Plane(), 0, &cancel);
  EXPECT_EQ(out, std::vector<float>(out.size(), 77));
  cancel.Reset();
  executor.RunBlock(block, plan, full_.Plane(), 0, &cancel);
  EXPECT_NE(out[0], 77);
  EXPECT_EQ(out[3 * 64], 77);  // the other KV head's rows are another block's
}

TEST_P(ExecutorTest, ACancelledExtendLeavesTheStateUsable) {
  const LayerInputs inputs = UniformInputs(kShape, 200, 4);
  const RotationTable rotations(TrainedFrequencies(10000, 64, {})->theta, 64, PairLayout::kHalfSplit, 300);
  KvSequence sequence(KvPool::Create({.n_layers = 1, .n_kv_heads = 2, .head_dim = 64, .type = KvType::kF32}));
  sequence.Reserve(200);
  for (int64_t head = 0; head < 2; ++head) {
    sequence.Write(0, head, 0, 200, inputs.k.data() + head * 64, 128, inputs.v.data() + head * 64, 128);
  }
  AttentionExecutor executor(*GetParam().table, kShape, 1);
  ThreadPool pool(1);
  CancelToken cancel;
  std::vector<std::unique_ptr<PolicyScratch>> scratches;
  scratches.push_back(longheads_.NewScratch());
  const AttentionSequence view{.kv = &sequence, .rotations = &rotations, .scale = 0.125f};
  const StepInput input{.layer = 0,
                        .sequence = &view,
                        .token_begin = 0,
                        .n_tokens = 200,
                        .q = inputs.q.data(),
                        .executor = &executor,
                        .pool = &pool,
                        .scratch = scratches,
                        .cancel = &cancel};
  const auto plan_of = [&](const PolicyState& state) {
    std::vector<float> out(6 * 64);
    const QueryToken tokens[] = {{0, 199, inputs.q.data() + 199 * 6 * 64, out.data()}};
    AttentionSequence seen = view;
    seen.state = &state;
    Plan plan;
    const auto scratch = longheads_.NewScratch();
    longheads_.BuildPlan({.layer = 0, .kv_head = 0, .tokens = tokens, .sequences = std::span(&seen, 1)},
                         Phase::kPrefill, *GetParam().table, *scratch, plan);
    std::vector<std::pair<int64_t, int64_t>> rows;
    for (const PlanSegment& segment : plan.segments) {
      for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
        rows.push_back({segment.key_begin, plan.rows[static_cast<std::size_t>(r)].row});
      }
    }
    return rows;
  };
  const auto fresh = longheads_.NewState();
  longheads_.Extend(input, *fresh);
  const auto state = longheads_.NewState();
  cancel.Cancel();
  longheads_.Extend(input, *state);
  EXPECT_EQ(state->RewindPoint(0), 0);
  const auto fork = state->Fork();
  cancel.Reset();
  longheads_.Extend(input, *state);  // the same tokens again
  EXPECT_EQ(plan_of(*state), plan_of(*fresh));
  longheads_.Extend(input, *fork);
  EXPECT_EQ(plan_of(*fork), plan_of(*fresh));
  EXPECT_EQ(plan_of(*state), plan_of(*fresh));
}

// ---- What plans can say beyond runs of stored keys, against float64 sums over an explicit list of keys.

constexpr int64_t kTextTokens = 700;  // three pages

// A policy whose plans a test writes.
class Scripted : public Policy {
 public:
  using Script = std::function<void(const QueryBlock&, Plan&)>;
  Scripted(KeyPlane plane, Script script) : plane_(plane), script_(std::move(script)) {}

  KeyPlane Plane() const override { return plane_; }
  int64_t RotationBound(int64_t n) const override { return plane_.unit * n; }
  void BuildPlan(const QueryBlock& block, Phase, const AttentionKernels&, PolicyScratch&,
                 Plan& plan) const override {
    script_(block, plan);
  }
  std::string Warning(int64_t) const override { return ""; }
  std::string Explain() const override { return ""; }

 private:
  KeyPlane plane_;
  Script script_;
};

// All rows of a block, each rotated by x(position).
void AddRows(const QueryBlock& block, const std::function<int64_t(int64_t)>& x, PlanSegment& segment,
             Plan& plan) {
  segment.row_begin = static_cast<int64_t>(plan.rows.size());
  for (std::size_t t = 0; t < block.tokens.size(); ++t) {
    for (int64_t g = 0; g < kShape.group(); ++g) {
      plan.rows.push_back({static_cast<int32_t>(static_cast<int64_t>(t) * kShape.group() + g),
                           static_cast<int32_t>(x(block.tokens[t].position))});
    }
  }
  segment.row_end = static_cast<int64_t>(plan.rows.size());
}

// One key that a query sees, in float64.
struct SeenKey {
  int64_t key;
  double distance;
};

// tau * q . R(-distance) k, half-split pairs.
double Logit(const LayerInputs& inputs, int64_t i, int64_t head, const SeenKey& seen) {
  const int64_t d = kShape.head_dim;
  const float* const q = inputs.q.data() + (i * kShape.n_heads + head) * d;
  const float* const k = inputs.k.data() + (seen.key * kShape.n_kv_heads + head / kShape.group()) * d;
  double dot = 0;
  for (int64_t m = 0; m < d / 2; ++m) {
    const double angle =
        -seen.distance * std::pow(10000.0, -2.0 * static_cast<double>(m) / static_cast<double>(d));
    const double c = std::cos(angle), s = std::sin(angle);
    dot += q[m] * (k[m] * c - k[m + d / 2] * s) + q[m + d / 2] * (k[m] * s + k[m + d / 2] * c);
  }
  return dot / std::sqrt(static_cast<double>(d));
}

// softmax(logits) over the keys, times their values; [head_dim] each.
struct Part {
  std::vector<double> out = std::vector<double>(64);
  double log_sum = -std::numeric_limits<double>::infinity();
  std::vector<double> probability;
};
Part Attend(const LayerInputs& inputs, int64_t i, int64_t head, const std::vector<SeenKey>& keys,
            double factor = 1) {
  Part part;
  double sum = 0;
  for (const SeenKey& seen : keys) {
    const double p = std::exp(factor * Logit(inputs, i, head, seen));
    part.probability.push_back(p);
    sum += p;
    const float* const v =
        inputs.v.data() + (seen.key * kShape.n_kv_heads + head / kShape.group()) * kShape.head_dim;
    for (std::size_t m = 0; m < 64; ++m) part.out[m] += p * v[m];
  }
  for (double& p : part.probability) p /= sum;
  for (double& value : part.out) value /= sum;
  part.log_sum = std::log(sum);
  return part;
}

// The layer's output of each row, in prefill and in decode, against `expected`.
void ExpectOutputs(const LayerSetup& setup, const LayerInputs& inputs,
                   const std::function<std::vector<double>(int64_t i, int64_t head)>& expected) {
  const double bound = 4 * BoundOf(inputs, /*max_logit=*/12).out;
  for (const bool decode : {false, true}) {
    OneLayer layer(setup);
    if (decode) {
      layer.Prefill(inputs, inputs.n - 3);
      while (layer.size() < inputs.n) layer.Decode(inputs);
    } else {
      layer.Prefill(inputs, inputs.n, 100);
    }
    for (int64_t i = decode ? inputs.n - 3 : 0; i < inputs.n; i += decode ? 1 : 37) {
      for (int64_t head = 0; head < kShape.n_heads; ++head) {
        const std::vector<double> out = expected(i, head);
        for (std::size_t m = 0; m < 64; ++m) {
          ASSERT_NEAR(layer.out()[static_cast<std::size_t>(i * kShape.n_heads + head) * 64 + m], out[m],
                      bound)
              << "token " << i << " head " << head << (decode ? " decoded" : "");
        }
      }
    }
  }
}

TEST_P(ExecutorTest, KeysComeToTheAbsolutePlaneFromAnyOther) {
  const LayerInputs inputs = UniformInputs(kShape, kTextTokens, 5);
  const std::pair<KeyPlane, const char*> planes[] = {
      {KeyPlane::Absolute(), "absolute"},
      {KeyPlane::Unrotated(), "unrotated"},
      {KeyPlane::ChunkLocal(20), "chunk"},
      {{.group = 7}, "grouped"},
      {{.factor = 1, .unit = 16}, "scaled"},  // stored at j / 16
      {{.factor = 5, .group = 5, .unit = 5}, "grouped in fifths"}};
  for (const auto& [plane, name] : planes) {
    SCOPED_TRACE(name);
    const int64_t unit = plane.unit;
    const Scripted policy(plane, [&](const QueryBlock& block, Plan& plan) {
      PlanSegment segment{.key_begin = 3, .key_end = kTextTokens, .max_distance = 400, .absolute = true};
      AddRows(
          block, [unit](int64_t i) { return unit * i; }, segment, plan);
      plan.segments.push_back(segment);
    });
    LayerSetup setup = SetupFor(policy);
    ExpectOutputs(setup, inputs, [&](int64_t i, int64_t head) {
      std::vector<SeenKey> keys;
      for (int64_t j = std::max<int64_t>(3, i - 399); j <= i; ++j) {
        keys.push_back({j, static_cast<double>(i - j)});
      }
      return keys.empty() ? std::vector<double>(64) : Attend(inputs, i, head, keys).out;
    });
  }
}

// Whatever the number of threads, among which a prompt's queries are divided.
TEST_P(ExecutorTest, EachOfAPromptsQueriesIsInOneBlockOfEachHead) {
  constexpr HeadShape kOneEach{.n_heads = 3, .n_kv_heads = 3, .head_dim = 16};
  constexpr int64_t kMost = 2048;
  const LayerInputs inputs = UniformInputs(kOneEach, kMost, 5);
  const RotationTable rotations(TrainedFrequencies(10000, 16, {})->theta, 16, PairLayout::kHalfSplit, kMost);
  std::mutex mutex;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> blocks(3);  // of each head: first token, and how many
  const Scripted policy(KeyPlane::Absolute(), [&](const QueryBlock& block, Plan&) {
    const std::scoped_lock lock(mutex);
    blocks[static_cast<std::size_t>(block.kv_head)].emplace_back(block.tokens.front().position,
                                                                 block.tokens.size());
  });
  const auto state = policy.NewState();
  for (const int n_threads : {1, 2, 3, 5, 16, 28, 29, 31}) {
    ThreadPool pool(n_threads);
    AttentionRunner runner(*GetParam().table, FastestVectorKernels(), kOneEach, pool);
    for (const int64_t most : {kMost, int64_t{42}, int64_t{7}}) {
      runner.max_query_block = most;
      for (const int64_t n : {int64_t{1}, int64_t{33}, int64_t{64}, int64_t{500}, int64_t{1805}, kMost}) {
        SCOPED_TRACE(fmt::format("{} tokens, {} threads, at most {}", n, n_threads, most));
        KvSequence kv(KvPool::Create({.n_layers = 1, .n_kv_heads = 3, .head_dim = 16, .type = KvType::kF32}));
        kv.Reserve(n);
        std::vector<float> k = inputs.k, out(inputs.q.size());
        for (auto& of_head : blocks) of_head.clear();
        ASSERT_TRUE(runner.Prefill(
            policy, {.kv = &kv, .state = state.get(), .rotations = &rotations},
            {.q = inputs.q.data(), .k = k.data(), .v = inputs.v.data(), .out = out.data()}, n, nullptr));
        for (auto& of_head : blocks) {
          std::sort(of_head.begin(), of_head.end());
          int64_t next = 0;
          for (const auto& [begin, size] : of_head) {
            EXPECT_EQ(begin, next);
            EXPECT_LE(size, most);
            EXPECT_LE(std::abs(size - of_head.front().second), 1);
            next = begin + size;
          }
          EXPECT_EQ(next, n);
        }
      }
    }
  }
}

// Some definitions look at where the model's call begins or ends: a prompt's blocks all know.
TEST_P(ExecutorTest, PlansKnowTheModelsCall) {
  const LayerInputs inputs = UniformInputs(kShape, 100, 5);
  std::vector<std::array<int64_t, 3>> calls;  // of each token: its position, and the call that fed it
  const Scripted policy(KeyPlane::Absolute(), [&](const QueryBlock& block, Plan&) {
    if (block.kv_head != 0) return;
    for (const QueryToken& token : block.tokens) {
      const auto sequence = static_cast<std::size_t>(token.sequence);
      const AttentionSequence& view = block.sequences[sequence];
      calls.push_back({token.position, view.call_begin, view.call_end});
    }
  });
  const RotationTable rotations(TrainedFrequencies(10000, 64, {})->theta, 64, PairLayout::kHalfSplit, 100);
  ThreadPool pool(1);
  AttentionRunner runner(*GetParam().table, *VectorImplementations().back().table, kShape, pool);
  runner.max_query_block = 20;
  std::vector<float> k = inputs.k;
  std::vector<float> out(inputs.q.size());
  std::vector<KvSequence> kvs;
  for (int s = 0; s < 2; ++s) {
    kvs.emplace_back(KvPool::Create({.n_layers = 1, .n_kv_heads = 2, .head_dim = 64, .type = KvType::kF32}));
    kvs.back().Reserve(100);
  }
  const auto state = policy.NewState();
  const AttentionRows rows{.q = inputs.q.data(), .k = k.data(), .v = inputs.v.data(), .out = out.data()};
  const auto prefill = [&](KvSequence& kv, int64_t n, int64_t n_preceding, int64_t n_following) {
    calls.clear();
    const AttendingSequence sequence{.kv = &kv,
                                     .state = state.get(),
                                     .rotations = &rotations,
                                     .n_preceding = n_preceding,
                                     .n_following = n_following};
    EXPECT_TRUE(runner.Prefill(policy, sequence, rows, n, nullptr));
    kv.Commit(kv.size() + n);
    std::sort(calls.begin(), calls.end());
  };
  const auto expect = [&](int64_t begin, int64_t n, int64_t call_begin, int64_t call_end) {
    ASSERT_EQ(static_cast<int64_t>(calls.size()), n);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(calls[static_cast<std::size_t>(i)], (std::array{begin + i, call_begin, call_end}));
    }
  };
  prefill(kvs[0], 40, 0, 5);  // a prompt of 45
  expect(0, 40, 0, 45);
  prefill(kvs[0], 5, 40, 0);
  expect(40, 5, 0, 45);
  prefill(kvs[0], 10, 0, 0);  // another call
  expect(45, 10, 45, 55);
  prefill(kvs[1], 7, 0, 0);
  calls.clear();
  std::vector<AttendingSequence> batch;
  for (KvSequence& kv : kvs) batch.push_back({.kv = &kv, .state = state.get(), .rotations = &rotations});
  runner.Decode(policy, batch, rows);
  EXPECT_EQ(calls, (std::vector<std::array<int64_t, 3>>{{55, 55, 56}, {7, 7, 8}}));
}

TEST_P(ExecutorTest, ListedKeysAreSeenByAllRowsAtTheDistancesOfTheirPlane) {
  const LayerInputs inputs = UniformInputs(kShape, kTextTokens, 6);
  for (const bool absolute : {false, true}) {
    // More than a page of them, from all pages, in no order.
    std::vector<int32_t> list;
    for (int32_t at = 0; at < 300; ++at) list.push_back((at * 389 + 11) % 650);
    const Scripted policy(KeyPlane::Unrotated(), [&](const QueryBlock& block, Plan& plan) {
      plan.keys = {-1, -1};  // not this segment's
      plan.keys.insert(plan.keys.end(), list.begin(), list.end());
      PlanSegment segment{.key_begin = 2, .key_end = 302, .listed = true, .absolute = absolute};
      AddRows(
          block, [](int64_t) { return 690; }, segment, plan);
      plan.segments.push_back(segment);
    });
    ExpectOutputs(SetupFor(policy), inputs, [&](int64_t i, int64_t head) {
      std::vector<SeenKey> keys;
      for (const int32_t j : list) keys.push_back({j, absolute ? 690.0 - j : 690.0});
      return Attend(inputs, i, head, keys).out;
    });
  }
}

TEST_P(ExecutorTest, TokenScalesMultiplyLogits) {
  const LayerInputs inputs = UniformInputs(kShape, kTextTokens, 7);
  const auto factor = [](int64_t i) { return 1 + static_cast<float>(i % 5) / 8; };
  const Scripted policy(KeyPlane::Absolute(), [&](const QueryBlock& block, Plan& plan) {
    PlanSegment segment{.key_begin = 0, .key_end = kTextTokens};
    AddRows(
        block, [](int64_t i) { return i; }, segment, plan);
    plan.segments.push_back(segment);
    for (const QueryToken& token : block.tokens) plan.token_scales.push_back(factor(token.position));
  });
  ExpectOutputs(SetupFor(policy), inputs, [&](int64_t i, int64_t head) {
    std::vector<SeenKey> keys;
    for (int64_t j = 0; j <= i; ++j) keys.push_back({j, static_cast<double>(i - j)});
    return Attend(inputs, i, head, keys, factor(i)).out;
  });
}

// Keys [230, 300) enter as key 310, across a page's end, beside what else is seen.
TEST_P(ExecutorTest, SegmentEntersTheMergeAsOneKey) {
  const LayerInputs inputs = UniformInputs(kShape, kTextTokens, 8);
  const Scripted policy(KeyPlane::Absolute(), [&](const QueryBlock& block, Plan& plan) {
    PlanSegment far{.key_begin = 230, .key_end = 300, .as_key = 310};
    AddRows(
        block, [](int64_t i) { return i; }, far, plan);
    PlanSegment near = far;
    near.as_key = PlanSegment::kNoKey;
    near.key_begin = 400;
    near.key_end = kTextTokens;
    plan.segments = {far, near};
  });
  ExpectOutputs(SetupFor(policy), inputs, [&](int64_t i, int64_t head) {
    const auto run = [i](int64_t begin, int64_t end) {
      std::vector<SeenKey> keys;
      for (int64_t j = begin; j < std::min(end, i + 1); ++j) keys.push_back({j, static_cast<double>(i - j)});
      return keys;
    };
    std::vector<double> out(64);
    if (i < 310) return out;  // not the key: nothing enters
    const Part far = Attend(inputs, i, head, run(230, 300));
    const double as_key = std::exp(Logit(inputs, i, head, {310, static_cast<double>(i - 310)}));
    const std::vector<SeenKey> keys = run(400, kTextTokens);
    const Part near = Attend(inputs, i, head, keys);
    const double sum = keys.empty() ? 0 : std::exp(near.log_sum);
    for (std::size_t m = 0; m < 64; ++m) {
      out[m] = (as_key * far.out[m] + (keys.empty() ? 0 : sum * near.out[m])) / (as_key + sum);
    }
    return out;
  });
}

// What InfLLM sums up: the probability that rows give each key, over one of two segments, with the softmax
// over both.
TEST_P(ExecutorTest, ColumnMassIsTheProbabilityThatRowsGiveAKey) {
  const LayerInputs inputs = UniformInputs(kShape, kTextTokens, 9);
  const int64_t first = 500;
  const RotationTable rotations(TrainedFrequencies(10000, 64, {})->theta, 64, PairLayout::kHalfSplit,
                                kTextTokens);
  KvSequence sequence(KvPool::Create({.n_layers = 1, .n_kv_heads = 2, .head_dim = 64, .type = KvType::kF32}));
  sequence.Reserve(kTextTokens);
  for (int64_t head = 0; head < 2; ++head) {
    sequence.Write(0, head, 0, kTextTokens, inputs.k.data() + head * 64, 128, inputs.v.data() + head * 64,
                   128);
  }
  std::vector<float> out(inputs.q.size()), softmax(static_cast<std::size_t>(kTextTokens * 6 * 2));
  std::vector<QueryToken> tokens;
  for (int64_t i = first; i < kTextTokens; ++i) {
    tokens.push_back(
        {0, i, inputs.q.data() + i * 6 * 64, out.data() + i * 6 * 64, softmax.data() + i * 6 * 2});
  }
  const AttentionSequence view{.kv = &sequence, .rotations = &rotations, .scale = 0.125f};
  AttentionExecutor executor(*GetParam().table, kShape, 1);
  // Stored unrotated: near keys are brought to the absolute plane, far ones seen at 150.
  for (int64_t kv_head = 0; kv_head < 2; ++kv_head) {
    const QueryBlock block{
        .layer = 0, .kv_head = kv_head, .tokens = tokens, .sequences = std::span(&view, 1)};
    Plan plan;
    PlanSegment far{.key_begin = 20, .key_end = 300};
    AddRows(
        block, [](int64_t) { return 150; }, far, plan);
    PlanSegment near{.key_begin = 310, .key_end = kTextTokens, .max_distance = 180, .absolute = true};
    AddRows(
        block, [](int64_t i) { return i; }, near, plan);
    plan.segments = {far, near};
    executor.RunBlock(block, plan, KeyPlane::Unrotated(), 0, nullptr);
    const int64_t n_keys = kTextTokens - 310;
    std::vector<float> mass(static_cast<std::size_t>(3 * n_keys), 0.5f);
    executor.ColumnMass(block, plan, near, KeyPlane::Unrotated(), 0, nullptr, mass.data(), n_keys);
    for (int64_t g = 0; g < 3; ++g) {
      std::vector<double> expected(static_cast<std::size_t>(n_keys), 0.5);
      for (int64_t i = first; i < kTextTokens; ++i) {
        std::vector<SeenKey> keys;
        for (int64_t j = std::max<int64_t>(310, i - 179); j <= i; ++j)
          keys.push_back({j, static_cast<double>(i - j)});
        const std::size_t n_near = keys.size();
        for (int64_t j = 20; j < 300; ++j) keys.push_back({j, 150});
        const Part part = Attend(inputs, i, kv_head * 3 + g, keys);
        for (std::size_t at = 0; at < n_near; ++at) {
          expected[static_cast<std::size_t>(keys[at].key - 310)] += part.probability[at];
        }
      }
      for (int64_t at = 0; at < n_keys; ++at) {
        // 180 probabilities, each to within the roundings of its logit.
        ASSERT_NEAR(mass[static_cast<std::size_t>(g * n_keys + at)], expected[static_cast<std::size_t>(at)],
                    2e-5 * expected[static_cast<std::size_t>(at)])
            << at;
      }
    }
  }
}

// Memory has room for 64 pages, and for 10 of these beside 48 that a prompt needs and the ends of two texts.
TEST_P(ExecutorTest, KeepsForATokenWhatThePromptsNewestTokensReadFirst) {
  const KvGeometry geometry{.n_layers = 1, .n_kv_heads = 1, .head_dim = 64, .type = KvType::kBF16};
  const auto stride = static_cast<uint64_t>(geometry.PageStride());
  const auto pool = KvPool::Create(geometry);
  ASSERT_TRUE(pool->UseDisk({.ram_bytes = KvPool::kLeastPages * stride,
                             .file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0),
                             .io = "threads"}));
  constexpr int64_t kPages = 24;
  KvSequence kv(pool), other(pool);
  for (const auto& [sequence, n_pages] : {std::pair{&kv, kPages}, {&other, int64_t{120}}}) {
    const std::vector<float> zeros(static_cast<std::size_t>(kPageTokens * geometry.head_dim));
    sequence->Reserve(n_pages * kPageTokens);
    for (int64_t page = 0; page < n_pages; ++page) {
      sequence->Write(0, 0, page * kPageTokens, kPageTokens, zeros.data(), geometry.head_dim, zeros.data(),
                      geometry.head_dim);
      KvPage* const one = sequence->PageAt(0, 0, page);
      ASSERT_TRUE(pool->Flush(std::span(&one, 1)));
    }
    sequence->Commit(n_pages * kPageTokens);
  }
  // Three tokens of two heads each: the first reads pages 1 to 10, the last one pages 12 to 19, and one of
  // its heads page 10 from a list.
  std::vector<QueryToken> tokens;
  for (int64_t t = 0; t < 3; ++t)
    tokens.push_back({.sequence = 0, .position = kPages * kPageTokens - 3 + t, .q = nullptr, .out = nullptr});
  Plan plan;
  for (int32_t row = 0; row < 6; ++row) plan.rows.push_back({.row = row, .x = 0});
  plan.keys = {10 * kPageTokens + 5};
  plan.segments = {
      {.key_begin = kPageTokens, .key_end = 11 * kPageTokens, .row_begin = 0, .row_end = 2},
      {.key_begin = 12 * kPageTokens, .key_end = 20 * kPageTokens - 1, .row_begin = 4, .row_end = 6},
      {.key_begin = 0, .key_end = 1, .row_begin = 5, .row_end = 6, .listed = true}};
  const AttentionSequence view{.kv = &kv};
  AttentionExecutor executor(*GetParam().table, {.n_heads = 2, .n_kv_heads = 1, .head_dim = 64}, 1);
  executor.KeepForToken({.tokens = tokens, .sequences = std::span(&view, 1)}, plan, 0);
  for (int64_t page = 0; page < kPages; ++page) kv.Stored(0, 0, page);
  for (int64_t page = 10; page < 110; ++page) other.Stored(0, 0, page);
  std::vector<int64_t> near;
  for (int64_t page = 1; page < kPages - 2; ++page) {
    if (kv.IsNear(0, 0, page)) near.push_back(page);
  }
  EXPECT_EQ(near, (std::vector<int64_t>{1, 10, 12, 13, 14, 15, 16, 17, 18, 19}));
}

INSTANTIATE_TEST_SUITE_P(Every, ExecutorTest,
                         testing::ValuesIn(AttentionImplementations().begin(),
                                           AttentionImplementations().end()),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace longheads
