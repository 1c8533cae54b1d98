#include "attention/executor.h"

#include <gtest/gtest.h>

#include <cmath>

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
  LayerSetup Setup(const Policy& policy, int n_threads = 1) const {
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
    OneLayer whole(Setup(*policy));
    whole.Prefill(inputs, 300);
    for (const int64_t query_block : {1, 3, 16, 255, 256, 299}) {
      OneLayer layer(Setup(*policy));
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
        alone.emplace_back(Setup(*policy));
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
      LayerSetup setup = Setup(*policy, n_threads);
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
  OneLayer prefilled(Setup(full_));
  prefilled.Prefill(inputs, 400);
  OneLayer decoded(Setup(full_));
  while (decoded.size() < 400) decoded.Decode(inputs);
  for (std::size_t i = 0; i < prefilled.out().size(); ++i) {
    ASSERT_NEAR(prefilled.out()[i], decoded.out()[i], bound);
  }
}

TEST_P(ExecutorTest, RowsThatSeeNoKeyAreZero) {
  // A policy may leave a row without keys: its output is zero, not a division by zero.
  const LayerInputs inputs = UniformInputs(kShape, 40, 4);
  for (const bool decode : {false, true}) {
    OneLayer layer(Setup(full_));
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
  const KvSequence* const sequences[] = {&sequence};
  const QueryBlock block{.layer = 0, .kv_head = 0, .tokens = tokens, .sequences = sequences};
  Plan plan;
  const auto scratch = full_.NewScratch();
  full_.BuildPlan(block, Phase::kPrefill, {}, *GetParam().table, *scratch, plan);
  AttentionExecutor executor(*GetParam().table, kShape, 1);
  CancelToken cancel;
  cancel.Cancel();
  executor.RunBlock(block, plan, rotations, 0.125f, 0, &cancel);
  EXPECT_EQ(out, std::vector<float>(out.size(), 77));
  cancel.Reset();
  executor.RunBlock(block, plan, rotations, 0.125f, 0, &cancel);
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
  ExtendInput input{.layer = 0,
                    .sequence = &sequence,
                    .token_begin = 0,
                    .n_tokens = 200,
                    .q = inputs.q.data(),
                    .executor = &executor,
                    .rotations = &rotations,
                    .scale = 0.125f,
                    .pool = &pool,
                    .cancel = &cancel};
  const auto plan_of = [&](const PolicyState& state) {
    std::vector<float> out(6 * 64);
    const QueryToken tokens[] = {{0, 199, inputs.q.data() + 199 * 6 * 64, out.data()}};
    const KvSequence* const sequences[] = {&sequence};
    const PolicyState* const states[] = {&state};
    Plan plan;
    const auto scratch = longheads_.NewScratch();
    longheads_.BuildPlan({.layer = 0, .kv_head = 0, .tokens = tokens, .sequences = sequences},
                         Phase::kPrefill, states, *GetParam().table, *scratch, plan);
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

INSTANTIATE_TEST_SUITE_P(Every, ExecutorTest,
                         testing::ValuesIn(AttentionImplementations().begin(),
                                           AttentionImplementations().end()),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace longheads
