// What InfLLM promises beside its definition, which the goldens hold it to.
#include "attention/infllm.h"

#include <gtest/gtest.h>

#include "tests/support/method_case.h"

namespace longheads {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

constexpr int64_t kDim = kCaseShape.head_dim;
constexpr const char* kSmall =
    "infllm,n_init=6,n_local=32,block=8,top_k=3,representatives=2,exec_block=16,max_cached_block=4";

Pairs Sorted(Pairs keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(InfLlm, SeesFirstTokensBlocksAndRemainderAtOneDistanceAndNewestTokensAtTheirOwn) {
  // Before token 11 is decoded, 7 of 11 tokens are no longer local: two first ones, blocks {2, 3} and {4, 5},
  // and token 6, which waits for another. Token 7 goes with it now.
  const auto all = MakeCase("infllm,n_init=2,n_local=4,block=2,top_k=8,exec_block=4", 64);
  const Pairs everything = {{0, 3}, {1, 3}, {2, 3}, {3, 3}, {4, 3},  {5, 3},
                            {6, 3}, {7, 3}, {8, 3}, {9, 2}, {10, 1}, {11, 0}};
  for (const bool decode : {false, true}) EXPECT_EQ(LastSees(*all, 12, decode), everything);
  // With one block to choose, the others are out of sight.
  const auto one = MakeCase("infllm,n_init=2,n_local=4,block=2,top_k=1,exec_block=4", 64);
  EXPECT_EQ(LastSees(*one, 12, /*decode=*/true).size(), 10u);
  // In the exec block [8, 12) only block {2, 3} exists.
  EXPECT_EQ(LastSees(*one, 12, /*decode=*/false), everything);
}

// What every query looks for lies on a pair that hardly turns; all other keys are zero.
LayerInputs Planted(int64_t n, const std::vector<std::tuple<int64_t, int64_t, float>>& loud) {
  LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
  std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
  std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
  for (std::size_t at = kDim / 2 - 1; at < inputs.q.size(); at += kDim) inputs.q[at] = 1;
  for (const auto& [token, kv_head, size] : loud) {
    inputs.k[static_cast<std::size_t>((token * kCaseShape.n_kv_heads + kv_head) * kDim + kDim / 2 - 1)] =
        size;
  }
  return inputs;
}

// Far keys past the first tokens.
std::vector<int32_t> FarKeys(const OneLayer& layer, int64_t i, int64_t head, int64_t n_init,
                             int64_t n_local) {
  std::vector<int32_t> keys;
  for (const auto& [key, distance] : Sorted(layer.seen(i, head).keys)) {
    if (key >= n_init && i - key >= n_local) keys.push_back(key);
  }
  return keys;
}

TEST(InfLlm, ChoosesForAllHeadsByTheKeysThatAttentionWentTo) {
  // Token 15 is loud, 21 louder: blocks {14 .. 17} and {18 .. 21} of four, to the heads of KV head 1 alone.
  const LayerInputs inputs = Planted(60, {{15, 1, 2.0f}, {21, 1, 3.0f}});
  for (const KvType kv : {KvType::kF32, KvType::kBF16}) {
    for (const auto& [options, of_0, of_3] :
         {std::tuple{"top_k=1", 18, 18}, std::tuple{"top_k=1,per_head=on", 2, 18}}) {
      const auto policy = MakeCase(
          std::string("infllm,n_init=2,n_local=10,block=4,representatives=1,exec_block=5,") + options, 64);
      LayerSetup setup = CaseSetup(*policy, 60);
      setup.kv = kv;
      OneLayer layer(setup);
      layer.Prefill(inputs, 40);
      while (layer.size() < 60) layer.Decode(inputs);
      // 40 - 10 - 2 = 28: seven blocks end before token 30.
      const auto block = [](int32_t first) {
        return std::vector<int32_t>{first, first + 1, first + 2, first + 3};
      };
      EXPECT_EQ(FarKeys(layer, 40, 0, 2, 10).size(), 5u);  // token 30 is in no block yet
      for (const auto& [head, first] : {std::pair{0, of_0}, std::pair{1, of_0}, std::pair{3, of_3}}) {
        std::vector<int32_t> keys = FarKeys(layer, 40, head, 2, 10);
        keys.pop_back();
        EXPECT_EQ(keys, block(first)) << options << " head " << head;
        // A block that ends at the local tokens' edge leaves nothing over: 59 - 10 - 1 = 12 blocks.
        keys = FarKeys(layer, 59, head, 2, 10);
        keys.resize(4);
        EXPECT_EQ(keys, block(first)) << options << " head " << head;
      }
    }
  }
}

TEST(InfLlm, QueriesOfAnExecBlockChooseTogetherAndPromptsCutThem) {
  const auto policy = MakeCase(kSmall, 64);
  const LayerInputs inputs = UniformInputs(kCaseShape, 200, 4);
  const auto blocks_at = [&](const OneLayer& layer, int64_t i) {
    // Past the remainder, which grows from query to query.
    std::vector<int32_t> keys = FarKeys(layer, i, 0, 6, 32);
    keys.resize(24);
    return keys;
  };
  OneLayer whole(CaseSetup(*policy, 200));
  whole.Prefill(inputs, 200);
  int64_t n_changes = 0;
  for (int64_t i = 97; i < 200; ++i) {
    const bool changed = blocks_at(whole, i) != blocks_at(whole, i - 1);
    EXPECT_TRUE(!changed || i % 16 == 0) << i;
    n_changes += changed;
  }
  EXPECT_GT(n_changes, 2);
  // Whole exec blocks in each call: the same. Else they begin anew.
  OneLayer same(CaseSetup(*policy, 200));
  same.Prefill(inputs, 96);
  same.Prefill(inputs, 104);
  EXPECT_EQ(same.out(), whole.out());
  OneLayer other(CaseSetup(*policy, 200));
  other.Prefill(inputs, 101);
  other.Prefill(inputs, 99);
  EXPECT_NE(other.out(), whole.out());
}

TEST(InfLlm, EqualsFullAttentionWhileTheTextIsLocal) {
  for (const char* const compat : {"", ",compat=all"}) {
    const auto policy =
        MakeCase(std::string("infllm,n_init=4,n_local=50,block=8,exec_block=16") + compat, 64);
    EXPECT_LE(DifferenceFromFull(*policy, 50), 1);
    EXPECT_GT(DifferenceFromFull(*policy, 51), 1);  // token 0 is seen at 49
  }
}

TEST(InfLlm, DoubleCountsAsThePublishedCodeDoes) {
  // Query u of an exec block of 16 sees 15 - u keys twice; before the text is longer than n_local, the block
  // [32, 48) sees what is past at its end.
  for (const bool compat : {false, true}) {
    const auto policy = MakeCase(std::string(kSmall) + (compat ? ",compat=all" : ""), 64);
    const LayerInputs inputs = UniformInputs(kCaseShape, 170, 1);
    OneLayer layer(CaseSetup(*policy, 170));
    layer.Prefill(inputs, 165);
    while (layer.size() < 170) layer.Decode(inputs);
    for (int64_t i = 0; i < 170; ++i) {
      int64_t n_twice = 0;
      const Pairs keys = Sorted(layer.seen(i, 0).keys);
      for (std::size_t at = 1; at < keys.size(); ++at) n_twice += keys[at].first == keys[at - 1].first;
      const int64_t in_block = std::min<int64_t>(16, 165 - i / 16 * 16);
      const int64_t expected = i < 32 || i >= 165 ? 0 : in_block - 1 - i % 16;
      EXPECT_EQ(n_twice, compat ? expected : 0) << i;
    }
  }
}

TEST(InfLlm, TakesBackTheNewestStepAndTheAnswerExactly) {
  const auto policy = MakeCase(kSmall, 64);
  const LayerInputs inputs = UniformInputs(kCaseShape, 160, 3);
  const LayerInputs others = UniformInputs(kCaseShape, 160, 4);
  OneLayer prompt(CaseSetup(*policy, 160));
  prompt.Prefill(inputs, 90);
  const auto points = [](const OneLayer& layer, const std::vector<int64_t>& of) {
    std::vector<int64_t> result;
    for (const int64_t n : of) result.push_back(layer.RewindPoint(n));
    return result;
  };
  EXPECT_EQ(points(prompt, {90, 89, 80, 79, 16, 0}), (std::vector<int64_t>{90, 80, 80, 0, 0, 0}));
  OneLayer answer = prompt.Fork();
  while (answer.size() < 120) answer.Decode(inputs);
  EXPECT_EQ(points(answer, {120, 119, 118, 90, 89, 0}), (std::vector<int64_t>{120, 119, 90, 90, 0, 0}));

  const auto expect_same_answer = [&](OneLayer layer, const char* what) {
    while (layer.size() < 120) layer.Decode(inputs);
    EXPECT_EQ(layer.out(), answer.out()) << what;
    EXPECT_EQ(InfLlm::StatisticsOf(layer.state()).hits, InfLlm::StatisticsOf(answer.state()).hits) << what;
    EXPECT_EQ(InfLlm::StatisticsOf(layer.state()).misses, InfLlm::StatisticsOf(answer.state()).misses)
        << what;
  };
  OneLayer layer = answer.Fork();
  layer.Truncate(119);
  EXPECT_EQ(points(layer, {119, 118, 89}), (std::vector<int64_t>{119, 90, 0}));
  expect_same_answer(layer.Fork(), "a token");
  layer.Decode(others);  // another one, and back
  layer.Truncate(119);
  expect_same_answer(layer.Fork(), "another token");
  layer.Truncate(90);
  expect_same_answer(layer.Fork(), "the answer");
  while (layer.size() < 110) layer.Decode(others);  // another answer, with blocks of its own, and back
  layer.Truncate(90);
  expect_same_answer(layer.Fork(), "another answer");
  layer.Truncate(0);
  layer.Prefill(others, 130);
  layer.Truncate(0);
  layer.Prefill(inputs, 90);
  expect_same_answer(layer.Fork(), "everything");
  // The exec block that a prompt ends with.
  layer.Truncate(0);
  layer.Prefill(inputs, 80);
  layer.Prefill(others, 10);
  layer.Truncate(80);
  layer.Prefill(inputs, 10);
  expect_same_answer(layer.Fork(), "an exec block");
  // A second prompt after the answer: back to where the first ended.
  layer = answer.Fork();
  layer.Prefill(others, 20);
  EXPECT_EQ(points(layer, {139, 135, 100, 90}), (std::vector<int64_t>{136, 90, 90, 90}));
  layer.Truncate(90);
  expect_same_answer(layer.Fork(), "an answer and a prompt");
}

TEST(InfLlm, ForeseesTheMemoryOfItsState) {
  for (const char* const options : {",n_init=6,block=8", ",n_init=0,block=3"}) {
    const auto policy =
        MakeCase(std::string("infllm,n_local=20,representatives=2,exec_block=16") + options, 64);
    for (const int64_t n : {0, 1, 20, 35, 36, 37, 255, 256, 257, 300, 900}) {
      const LayerInputs inputs = UniformInputs(kCaseShape, n + 1, 5);
      OneLayer layer(CaseSetup(*policy, n + 1));
      if (n > 0) layer.Prefill(inputs, n);
      EXPECT_EQ(layer.state().Bytes(), policy->StateBytes(n)) << n;
      layer.Decode(inputs);
      EXPECT_EQ(layer.state().Bytes(), policy->StateBytes(n + 1)) << n;
      layer.Truncate(n);
      EXPECT_EQ(layer.state().Bytes(), policy->StateBytes(n)) << n;
      layer.Truncate(0);
      EXPECT_EQ(layer.state().Bytes(), policy->StateBytes(0)) << n;
    }
  }
}

TEST(InfLlm, CountsWhatACacheOfBlocksWouldHaveHeld) {
  // Odd tokens look for block 1, even ones for block 2.
  LayerInputs inputs = Planted(40, {});
  for (int64_t i = 0; i < 40; ++i) {
    const auto pair = static_cast<std::size_t>(i % 2 == 0 ? kDim / 2 - 1 : kDim / 2 - 2);
    for (int64_t h = 0; h < kCaseShape.n_heads; ++h) {
      float* const q = inputs.q.data() + (i * kCaseShape.n_heads + h) * kDim;
      std::fill_n(q, kDim, 0.0f);
      q[pair] = 1;
    }
    if (i != 6 && i != 9) continue;
    for (int64_t h = 0; h < kCaseShape.n_kv_heads; ++h) {
      inputs.k[static_cast<std::size_t>((i * kCaseShape.n_kv_heads + h) * kDim) +
               (i == 6 ? kDim / 2 - 2 : kDim / 2 - 1)] = 5;
    }
  }
  const auto statistics = [&](const std::string& options) {
    const auto policy =
        MakeCase("infllm,n_init=2,n_local=8,block=3,top_k=1,representatives=1,exec_block=1," + options, 64);
    OneLayer layer(CaseSetup(*policy, 40));
    // Three blocks: {2, 3, 4}, {5, 6, 7} and {8, 9, 10}. The last is there from token 19 on, which is odd.
    layer.Prefill(inputs, 20);
    const auto before = InfLlm::StatisticsOf(layer.state());
    while (layer.size() < 30) layer.Decode(inputs);
    EXPECT_EQ(FarKeys(layer, 28, 0, 2, 8)[0], 8) << options;
    EXPECT_EQ(FarKeys(layer, 29, 0, 2, 8)[0], 5) << options;
    const auto after = InfLlm::StatisticsOf(layer.state());
    const OneLayer fork = layer.Fork();
    layer.Truncate(20);
    EXPECT_EQ(InfLlm::StatisticsOf(layer.state()).hits, before.hits) << options;
    EXPECT_EQ(InfLlm::StatisticsOf(fork.state()).hits, after.hits) << options;
    return std::pair{after.hits - before.hits, after.misses - before.misses};
  };
  EXPECT_EQ(statistics("max_cached_block=1"), (std::pair<int64_t, int64_t>{0, 10}));
  EXPECT_EQ(statistics("max_cached_block=2"), (std::pair<int64_t, int64_t>{9, 1}));
  EXPECT_EQ(statistics("max_cached_block=1,per_head=on"), (std::pair<int64_t, int64_t>{0, 40}));
  EXPECT_EQ(statistics("max_cached_block=2,per_head=on"), (std::pair<int64_t, int64_t>{36, 4}));
}

TEST(InfLlm, CacheDropsWhatWasUnusedForLongest) {
  // All blocks that exist, up to three: each is missed once. The fourth makes a choice necessary.
  const auto policy = MakeCase(
      "infllm,n_init=0,n_local=4,block=2,top_k=3,representatives=2,exec_block=1,max_cached_block=3", 64);
  const LayerInputs inputs = Planted(30, {});  // all blocks tie: the lowest are chosen
  OneLayer layer(CaseSetup(*policy, 30));
  const auto expect = [&](int64_t n, int64_t hits, int64_t misses) {
    while (layer.size() < n) layer.Decode(inputs);
    EXPECT_EQ(InfLlm::StatisticsOf(layer.state()).hits, hits) << n;
    EXPECT_EQ(InfLlm::StatisticsOf(layer.state()).misses, misses) << n;
  };
  expect(6, 0, 0);  // a block is there after the sixth token, for the seventh
  expect(7, 0, 1);
  expect(8, 1, 1);
  expect(9, 2, 2);
  expect(10, 4, 2);
  expect(11, 6, 3);
  expect(13, 12, 3);
  expect(30, 63, 3);
}

TEST(InfLlm, ReadsOnlyWhatItSeesHoweverLongTheText) {
  // 6 first tokens, 3 blocks of 8, the local 32 and what waits for a block: 8 at most.
  const auto policy = MakeCase(kSmall, 64);
  for (const int64_t n : {150, 600}) {
    const KeysRead keys = ReadForLast(*policy, n);
    EXPECT_EQ(keys.read, keys.seen);
    EXPECT_GE(keys.seen, 62);
    EXPECT_LE(keys.seen, 70);
  }
}

TEST(InfLlm, RotationsStayBelowTheirBound) {
  const auto policy = MakeCase(kSmall, 64);
  for (const int64_t n : {1, 20, 33, 80}) {
    const LayerInputs inputs = UniformInputs(kCaseShape, n, 1);
    OneLayer layer(CaseSetup(*policy, n));
    layer.Prefill(inputs, n);
    for (const int32_t x : layer.seen(n - 1, 0).rotations) EXPECT_LT(x, policy->RotationBound(n));
  }
}

// The goldens' comparison would notice each of these.
TEST(InfLlm, GoldensNoticeEveryMutation) {
  const auto far = [](const PlanSegment& segment) { return !segment.absolute; };
  const auto past_first = [&](const PlanSegment& segment) { return far(segment) && segment.key_begin > 0; };
  const auto each = [](Plan& plan, const auto& of, const auto& change) {
    for (PlanSegment& segment : plan.segments) {
      if (of(segment)) change(segment);
    }
  };
  const std::vector<std::pair<std::string, Mutation>> mutations = {
      {"far keys at n_local",
       [&](const QueryBlock&, Plan& plan) {
         each(plan, far, [&](PlanSegment& segment) {
           for (int64_t r = segment.row_begin; r < segment.row_end; ++r) {
             ++plan.rows[static_cast<std::size_t>(r)].x;
           }
         });
       }},
      {"no first token",
       [&](const QueryBlock&, Plan& plan) {
         each(plan, far, [](PlanSegment& segment) { segment.key_begin += segment.key_begin == 0; });
       }},
      {"blocks one token on",
       [&](const QueryBlock&, Plan& plan) {
         each(plan, past_first, [](PlanSegment& segment) {
           ++segment.key_begin;
           ++segment.key_end;
         });
       }},
      {"no remainder",
       [&](const QueryBlock&, Plan& plan) {
         PlanSegment* last = nullptr;
         each(plan, past_first, [&](PlanSegment& segment) { last = &segment; });
         if (last != nullptr) last->key_end = last->key_begin;
       }},
      {"one local key less", [](const QueryBlock&, Plan& plan) { --plan.segments.back().max_distance; }},
      {"no own key", [](const QueryBlock&, Plan& plan) { plan.segments.back().min_distance = 1; }},
  };
  for (const char* const golden : {"infllm-mha", "infllm-uneven", "infllm-compat-gqa", "infllm-per-head"}) {
    EXPECT_TRUE(MutatedDifferences(golden, [](const QueryBlock&, Plan&) {}).none());
    for (const auto& [what, mutation] : mutations) {
      const MethodDifferences differences = MutatedDifferences(golden, mutation);
      EXPECT_GT(differences.n_sets, 0) << golden << ": " << what;
      EXPECT_GT(differences.n_outputs, 0) << golden << ": " << what;
    }
  }
}

TEST(InfLlm, DefaultsFollowTheTrainedWindow) {
  const auto expect = [](const std::string& spec, int64_t trained, const std::string& part) {
    const std::string text = MakeCase(spec, trained)->Explain();
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const int64_t trained : {8192, 131072}) {
    expect("infllm", trained,
           "last 4096 tokens up to itself, and at distance 4095 the first 128 of the text");
    expect("infllm", trained,
           "and 16 blocks of 128 tokens between, chosen for all heads together for every 512");
  }
  expect("infllm", 4096, "last 2048 tokens up to itself, and at distance 2047 the first 128 of");
  expect("infllm", 2048, "last 1024 tokens up to itself, and at distance 1023 the first 64 of");
  expect("infllm", 64, "the first 2 of the text and 16 blocks of 2 tokens between");
  expect("infllm", 64, "for every 32 tokens of a prompt");
  expect("infllm", 1, "last 1 tokens up to itself, and at distance 0 the first 1 of");
  expect("infllm,block=3", 8192, "blocks of 3 ");  // with representatives to suit
  expect("infllm,n_local=100", 8192, "for every 100 tokens");
  expect("infllm,top_k=64", 8192, "64 blocks");  // with a cache to suit
  expect("infllm,per_head=on", 8192, "chosen by each head");
  expect("infllm,n_init=0", 8192, "the first 0 of");
}

TEST(InfLlm, RefusesWhatCannotApply) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"infllm,n_local=65", "n_local=65 is larger than the model's window of 64 tokens"},
      {"infllm,n_local=1m", "use at most n_local=64"},
      {"infllm,n_local=0", "n_local must be at least 1"},
      {"infllm,n_init=-1", "'-1' is not a count"},
      {"infllm,block=0", "block must be at least 1"},
      {"infllm,top_k=0", "top_k must be at least 1"},
      {"infllm,representatives=0", "representatives must be at least 1"},
      {"infllm,block=4,representatives=5", "representatives=5 is more than the block=4 tokens"},
      {"infllm,n_local=16,exec_block=17", "use at most exec_block=16"},
      {"infllm,exec_block=0", "exec_block must be at least 1"},
      {"infllm,top_k=64,max_cached_block=32", "use at least max_cached_block=64"},
      {"infllm,per_head=yes", "per_head is 'yes', but must be on or off"},
      {"infllm,compat=some", "compat is 'some', but must be none or all"},
      {"infllm,topk=4", "did you mean 'top_k'"},
  };
  for (const auto& [spec, expected] : cases) {
    const std::string message = RefusalOf(spec, 64);
    EXPECT_NE(message.find(expected), std::string::npos) << spec << ": " << message;
  }
  EXPECT_EQ(RefusalOf("infllm,n_local=64,exec_block=64,block=1,n_init=1m,top_k=1m", 64), "");
  EXPECT_NE(RefusalOf("infllm", 0), "");
}

}  // namespace
}  // namespace longheads
