// What `longheads info` says of a method's work and memory is what they are: kernels that count stand in for
// the fastest ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "attention/runner.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/method_case.h"

namespace longheads {
namespace {

// Kernels are plain functions: what they count is the process's.
struct Counts {
  int64_t attended = 0;
  int64_t products = 0;
} counts;

const AttentionKernels& Fastest() {
  static const AttentionKernels& kernels =
      *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
  return kernels;
}

int64_t Pairs(std::span<const RotatedRow> rows) {
  int64_t n = 0;
  for (const RotatedRow& row : rows) n += row.key_end - row.key_begin;
  return n;
}

const AttentionKernels& Counting() {
  static const AttentionKernels kernels = [] {
    AttentionKernels k = Fastest();
    k.attend = [](std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                  float* workspace) {
      counts.attended += Pairs(rows);
      Fastest().attend(rows, run, table, workspace);
    };
    k.attend_bf16 = [](std::span<const RotatedRow> rows, const Bf16KeyPages& pages,
                       const RotationTable& table, float* workspace) {
      counts.attended += Pairs(rows);
      Fastest().attend_bf16(rows, pages, table, workspace);
    };
    if (Fastest().attend_bf16 == nullptr) k.attend_bf16 = nullptr;
    k.attend_few = [](std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                      float* workspace) {
      counts.attended += Pairs(rows);
      Fastest().attend_few(rows, run, table, workspace);
    };
    k.attend_few_bf16 = [](std::span<const RotatedRow> rows, const Bf16KeyRun& run,
                           const RotationTable& table, float* workspace) {
      counts.attended += Pairs(rows);
      Fastest().attend_few_bf16(rows, run, table, workspace);
    };
    k.attend_few_q8 = [](std::span<const RotatedRow> rows, const Q8KeyRun& run, const RotationTable& table,
                         float* workspace) {
      counts.attended += Pairs(rows);
      Fastest().attend_few_q8(rows, run, table, workspace);
    };
    k.column_mass = [](std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                       float* mass, float* workspace) {
      counts.products += Pairs(rows) * run.head_dim;
      Fastest().column_mass(rows, run, table, mass, workspace);
    };
    k.column_mass_few = [](std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                           float* masses, float* workspace) {
      counts.products += Pairs(rows) * run.head_dim;
      Fastest().column_mass_few(rows, run, table, masses, workspace);
    };
    k.column_mass_few_bf16 = [](std::span<const RotatedRow> rows, const Bf16KeyRun& run,
                                const RotationTable& table, float* masses, float* workspace) {
      counts.products += Pairs(rows) * run.head_dim;
      Fastest().column_mass_few_bf16(rows, run, table, masses, workspace);
    };
    k.scores = [](std::span<const float* const> q, const float* vectors, int64_t n, int64_t head_dim,
                  float* scores, int64_t stride, float* workspace) {
      counts.products += static_cast<int64_t>(q.size()) * n * head_dim;
      Fastest().scores(q, vectors, n, head_dim, scores, stride, workspace);
    };
    k.scores_of_columns = [](std::span<const float* const> q, const float* columns, int64_t begin,
                             int64_t end, int64_t head_dim, float* scores, int64_t stride, float* workspace) {
      counts.products += static_cast<int64_t>(q.size()) * (end - begin) * head_dim;
      Fastest().scores_of_columns(q, columns, begin, end, head_dim, scores, stride, workspace);
    };
    return k;
  }();
  return kernels;
}

void ExpectNear(double predicted, int64_t measured) {
  EXPECT_LE(std::abs(predicted - static_cast<double>(measured)), 0.05 * static_cast<double>(measured))
      << predicted << " was said, " << measured << " counted";
}

// A span of tokens after a prompt, generated or as a second prompt, is what is counted.
void ExpectWork(const std::string& spec, const HeadShape& shape, Phase phase,
                std::initializer_list<int64_t> after) {
  constexpr int64_t kSpan = 96;  // tokens: whole chunks, blocks and steps of all the specs below
  const std::shared_ptr<const Policy> policy = MakeCase(spec, 4096, /*text_tokens=*/0, shape);
  for (const int64_t n_prompt : after) {
    const LayerInputs inputs = UniformInputs(shape, n_prompt + kSpan, 3);
    OneLayer layer({.policy = *policy, .kernels = Counting(), .shape = shape, .max_tokens = inputs.n});
    layer.Prefill(inputs, n_prompt);
    counts = {};
    AttentionWork expected;
    for (int64_t n = n_prompt + 1; n <= n_prompt + kSpan; ++n) {
      if (phase == Phase::kDecode) layer.Decode(inputs);
      const AttentionWork work = policy->Work(n, phase, shape);
      expected.attended += work.attended;
      expected.chosen_by += work.chosen_by;
    }
    if (phase == Phase::kPrefill) layer.Prefill(inputs, kSpan);
    SCOPED_TRACE(fmt::format("after {} tokens, {} heads on {}", n_prompt, shape.n_heads, shape.n_kv_heads));
    ExpectNear(expected.attended, counts.attended);
    ExpectNear(expected.chosen_by, counts.products);
    ExpectNear(static_cast<double>(policy->StateBytes(inputs.n)),
               static_cast<int64_t>(layer.state().Bytes()));
  }
}

constexpr HeadShape kMultiHead{.n_heads = 2, .n_kv_heads = 2, .head_dim = 96};
constexpr HeadShape kMultiQuery{.n_heads = 3, .n_kv_heads = 1, .head_dim = 128};

class DecodeWorkTest : public testing::TestWithParam<const char*> {};

TEST_P(DecodeWorkTest, IsWhatTheKernelsDo) {
  ExpectWork(GetParam(), kCaseShape, Phase::kDecode, {5, 192, 768});
  ExpectWork(GetParam(), kMultiHead, Phase::kDecode, {384});
  ExpectWork(GetParam(), kMultiQuery, Phase::kDecode, {384});
}

class PrefillWorkTest : public testing::TestWithParam<const char*> {};

// After some text: a block of queries is scored against what comes before its last one, which is more for its
// first than is said here.
TEST_P(PrefillWorkTest, IsWhatTheKernelsDo) {
  ExpectWork(GetParam(), kCaseShape, Phase::kPrefill, {768, 960});
  ExpectWork(GetParam(), kMultiHead, Phase::kPrefill, {768});
  ExpectWork(GetParam(), kMultiQuery, Phase::kPrefill, {768});
}

std::string NameOfSpec(const testing::TestParamInfo<const char*>& spec) {
  std::string name = spec.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

constexpr const char* kSpecs[] = {
    "full",
    "longheads,chunk=16,window=64,begin=96",
    "longheads,chunk=8,window=48,begin=192,reps=kv",
    "longheads,chunk=8,window=48,begin=192,select=kv",
    "longheads,chunk=8,window=48,begin=192,reps=kv,select=kv",
    "longheads,chunk=16,window=64,begin=96,represent=mean",
    "longheads,chunk=16,window=64,begin=96,choose=random",
    "self-extend,group=4,window=32",
    "rerope,window=32",
    "leaky-rerope,window=32",
    "streaming-llm,start=4,recent=60",
    "streaming-llm,start=4,recent=60,form=chunk-safe",
    "lm-infinite,global=8,local=64",
    "infllm,n_init=16,n_local=64,block=8,top_k=4,exec_block=32",
    "esa,n_init=8,k=32,n_local=48,chunk=8,score=exact",
    "esa,n_init=8,k=32,n_local=48,chunk=8,score=exact,share=individual",
    "esa,n_init=8,k=32,n_local=48,chunk=8,dim=16",
    "quest,page=8,budget=64,dense_layers=0",
    "quest,page=8,budget=64,dense_layers=1",
    "quest,page=8,budget=64,dense_layers=0,rule=evaluation",
    "moba,chunk=16,top_k=3,decode=gated",
    "moba,chunk=16,top_k=3",
    "landmark,block=12,top_k=3,train_context=96,token=1",
};

class KeysReadTest : public testing::TestWithParam<const char*> {};

// Recounted from what each query head's row saw: of heads that share a KV head, every key once.
TEST_P(KeysReadTest, AreTheDistinctOnesThatAGroupOfHeadsSaw) {
  const std::shared_ptr<const Policy> policy = MakeCase(GetParam(), 4096);
  const LayerInputs inputs = UniformInputs(kCaseShape, 400, 4);
  OneLayer layer(CaseSetup(*policy, inputs.n));
  layer.Prefill(inputs, 360);
  const double of_prompt = layer.counts().keys_read;
  int64_t expected = 0;
  while (layer.size() < inputs.n) {
    layer.Decode(inputs);
    for (int64_t kv_head = 0; kv_head < kCaseShape.n_kv_heads; ++kv_head) {
      std::set<int32_t> keys;
      for (int64_t g = 0; g < kCaseShape.group(); ++g) {
        for (const auto& [key, distance] :
             layer.seen(layer.size() - 1, kv_head * kCaseShape.group() + g).keys)
          keys.insert(key);
      }
      expected += static_cast<int64_t>(keys.size());
    }
  }
  EXPECT_EQ(layer.counts().keys_read - of_prompt, expected);
}

class LastBlockTest : public testing::TestWithParam<const char*> {};

// State grows by blocks, so a block is what the token adds that adds most.
TEST_P(LastBlockTest, IsWhatStateThatIsAddedToGrowsBy) {
  const std::shared_ptr<const Policy> policy = MakeCase(GetParam(), 4096);
  const auto added_to = [&](int64_t n) { return policy->StateBytes(n) - policy->RewrittenBytes(n); };
  uint64_t most = 0;
  for (int64_t n = 0; n < 4096; ++n) most = std::max(most, added_to(n + 1) - added_to(n));
  EXPECT_EQ(policy->LastBlockBytes(4096), most);
  EXPECT_EQ(policy->LastBlockBytes(0), 0);
}

INSTANTIATE_TEST_SUITE_P(Every, LastBlockTest, testing::ValuesIn(kSpecs), NameOfSpec);
INSTANTIATE_TEST_SUITE_P(Every, KeysReadTest, testing::ValuesIn(kSpecs), NameOfSpec);
INSTANTIATE_TEST_SUITE_P(Every, DecodeWorkTest, testing::ValuesIn(kSpecs), NameOfSpec);
INSTANTIATE_TEST_SUITE_P(Every, PrefillWorkTest, testing::ValuesIn(kSpecs), NameOfSpec);
// Of a prompt the last token alone looks for keys, which is not said of prefill.
INSTANTIATE_TEST_SUITE_P(Looking, DecodeWorkTest,
                         testing::Values("lm-infinite,global=8,local=64,top_k=16,top_k_from=0"), NameOfSpec);

}  // namespace
}  // namespace longheads
