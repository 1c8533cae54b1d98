// The counts over a prompt's tokens against a recount of what was recorded token by token.
#include "attention/selection_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "attention/selection_recorder.h"
#include "tests/support/method_case.h"
#include "tests/support/one_layer.h"

namespace longheads {
namespace {

// Passes what it hears to two others.
struct Both : SelectionObserver {
  SelectionObserver* a;
  SelectionObserver* b;
  void OnChoice(const BlockChoice& choice) override {
    a->OnChoice(choice);
    b->OnChoice(choice);
  }
  void OnPlan(const Policy& policy, const QueryBlock& block, Phase phase, Plan& plan) override {
    a->OnPlan(policy, block, phase, plan);
    b->OnPlan(policy, block, phase, plan);
  }
  void OnLayerDone(int64_t layer) override {
    a->OnLayerDone(layer);
    b->OnLayerDone(layer);
  }
};

class CountedMethod : public testing::TestWithParam<const char*> {};

TEST_P(CountedMethod, EqualsARecountOfItsTokens) {
  constexpr int64_t kTokens = 300, kEnd = 250;
  const auto policy = MakeCase(GetParam(), 128);
  const LayerInputs inputs = UniformInputs(kCaseShape, kTokens, 11);
  const BlockGrid blocks = policy->Blocks().value_or(BlockGrid{});
  for (const int64_t block : {int64_t{64}, int64_t{300}, int64_t{1}}) {
    for (const int64_t least : {int64_t{1}, int64_t{24}, int64_t{1000}}) {
      const BlockGrid columns = CountColumns(policy->Blocks(), least);
      EXPECT_EQ(columns.tokens % blocks.tokens, 0);
      EXPECT_GE(columns.tokens, least);
      std::vector<TokenSelection> tokens;
      std::vector<PromptCounts> counted;
      SelectionRecorder recorder(1, kCaseShape, 0, [&](const TokenSelection& t) { tokens.push_back(t); });
      SelectionCounter counter({.n_layers = 1,
                                .shape = kCaseShape,
                                .end = kEnd,
                                .block = block,
                                .blocks = blocks,
                                .columns = columns},
                               [&](const PromptCounts& counts) { counted.push_back(counts); });
      Both both;
      both.a = &recorder;
      both.b = &counter;
      LayerSetup setup = CaseSetup(*policy, kTokens);
      setup.n_threads = 2;
      OneLayer layer(setup);
      layer.observer = &both;
      layer.Prefill(inputs, 130, /*query_block=*/32);
      layer.Prefill(inputs, kTokens - 130, /*query_block=*/48);

      ASSERT_EQ(tokens.size(), static_cast<std::size_t>(kTokens));
      ASSERT_EQ(counted.size(), static_cast<std::size_t>((kEnd + block - 1) / block));
      int64_t at = 0;
      for (const PromptCounts& counts : counted) {
        EXPECT_EQ(counts.token_begin, at);
        EXPECT_EQ(counts.token_end, std::min(kEnd, at + block));
        at = counts.token_end;
        ASSERT_EQ(counts.heads.size(), static_cast<std::size_t>(kCaseShape.n_heads));
        for (std::size_t h = 0; h < counts.heads.size(); ++h) {
          std::map<int32_t, int32_t> seen, taken, scored;
          std::map<int32_t, double> sums;
          for (int64_t i = counts.token_begin; i < counts.token_end; ++i) {
            const HeadSelection& head = tokens[static_cast<std::size_t>(i)].heads[h];
            const auto column_of = [&](int64_t key) {
              int32_t column = 0;  // counted up, block by block
              for (int64_t end = columns.first > 0 ? columns.first : columns.tokens; end <= key;) {
                ++column;
                end += columns.tokens;
              }
              return column;
            };
            std::set<int32_t> of_token;
            for (const KeyRange& range : head.seen) {
              for (int64_t j = range.begin; j < range.end; ++j) of_token.insert(column_of(j));
            }
            for (const int32_t column : of_token) ++seen[column];
            for (const TakenBlock& block_taken : head.taken) {
              const int32_t column = column_of(blocks.Begin(block_taken.block));
              ++taken[column];
              if (std::isnan(block_taken.score)) continue;
              ++scored[column];
              sums[column] += static_cast<double>(block_taken.score);
            }
          }
          std::map<int32_t, int32_t> actual_seen, actual_taken;
          for (const HeadCounts::Seen& one : counts.heads[h].seen) actual_seen[one.column] = one.tokens;
          for (const HeadCounts::Taken& one : counts.heads[h].taken) {
            actual_taken[one.column] = one.times;
            const double mean = static_cast<double>(one.mean_score);
            if (scored[one.column] == 0) {
              EXPECT_TRUE(std::isnan(mean));
            } else {
              // Added up in another order.
              EXPECT_NEAR(mean, sums[one.column] / scored[one.column], 1e-4 * std::abs(mean) + 1e-6);
            }
          }
          ASSERT_EQ(actual_seen, seen) << counts.token_begin << " " << h;
          ASSERT_EQ(actual_taken, taken) << counts.token_begin << " " << h;
        }
      }
      EXPECT_EQ(at, kEnd);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, CountedMethod,
                         testing::Values("longheads,chunk=16,window=64,begin=64",
                                         "infllm,n_init=5,n_local=40,block=8,top_k=3,exec_block=20",
                                         "quest,page=4,budget=16,dense_layers=0", "moba,chunk=16,top_k=3",
                                         "esa,n_init=4,k=12,n_local=40,chunk=24,score=exact",
                                         "landmark,block=9,top_k=2,token=1", "full",
                                         "streaming-llm,start=4,recent=32"));

}  // namespace
}  // namespace longheads
