#include "attention/near_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rope/frequencies.h"
#include "tests/support/method_case.h"

namespace longheads {
namespace {

constexpr int64_t kDim = kCaseShape.head_dim;
constexpr int64_t kKvHeads = kCaseShape.n_kv_heads;

// A store whose keys stand in groups of four, and its near keys.
struct Text {
  static constexpr KeyPlane kPlane{.group = 4};
  static constexpr int64_t kTokens = 3000;

  explicit Text(KvType type, int64_t window, int64_t step)
      : inputs(UniformInputs(kCaseShape, kTokens, 3)),
        rotations(TrainedFrequencies(10000, kDim, {})->theta, kDim, PairLayout::kInterleaved, kTokens),
        kv(KvPool::Create({.n_layers = 2, .n_kv_heads = kKvHeads, .head_dim = kDim, .type = type})),
        near(std::make_unique<NearKeys>(kv.geometry(), window, step, FastestVectorKernels())),
        pool(2) {}

  void Read(int64_t n) {
    const int64_t begin = kv.size();
    kv.Reserve(begin + n);
    const int64_t stride = kKvHeads * kDim;
    std::vector<float> key(kDim);
    for (int64_t j = begin; j < begin + n; ++j) {
      for (int64_t head = 0; head < kKvHeads; ++head) {
        const int64_t at = j * stride + head * kDim;
        kernels.rotate(inputs.k.data() + at, kPlane.Position(j), rotations, key.data());
        kv.Write(kLayer, head, j, 1, key.data(), stride, inputs.v.data() + at, stride);
      }
    }
    near->Bring(kv, kLayer, begin, begin + n, kPlane, rotations, kernels, pool);
    kv.Commit(begin + n);
  }

  // Whether the keys from `window` before token `begin` on are what the store's come to on the absolute
  // plane.
  void Expect(int64_t begin, int64_t window) {
    std::vector<float> stored(kDim), turned(kDim), scratch(kPageTokens * kDim);
    std::vector<BFloat16> rounded(kDim);
    for (int64_t head = 0; head < kKvHeads; ++head) {
      for (int64_t j = std::max<int64_t>(0, begin - window); j < kv.size(); ++j) {
        kv.CopyKeys(kLayer, head, j, 1, stored.data(), kDim);
        kernels.rotate(stored.data(), j - kPlane.Position(j), rotations, turned.data());
        if (near->in_bf16()) {
          FastestVectorKernels().to_bf16(turned.data(), kDim, rounded.data());
          FastestVectorKernels().from_bf16(rounded.data(), kDim, turned.data());
        }
        const float* const page = near->InFloat32(head, j / kPageTokens, scratch.data());
        const float* const ours = page + j % kPageTokens * kDim;
        ASSERT_TRUE(std::equal(turned.begin(), turned.end(), ours)) << "head " << head << ", token " << j;
      }
    }
  }

  static constexpr int64_t kLayer = 1;
  const AttentionKernels& kernels =
      *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
  LayerInputs inputs;
  RotationTable rotations;
  KvSequence kv;
  std::unique_ptr<NearKeys> near;
  ThreadPool pool;
};

class NearKeysTest : public testing::TestWithParam<KvType> {};

INSTANTIATE_TEST_SUITE_P(Types, NearKeysTest, testing::Values(KvType::kF32, KvType::kBF16, KvType::kQ8),
                         [](const auto& type) { return NameOf(type.param); });

TEST_P(NearKeysTest, AreTheStoredOnesOnTheAbsolutePlaneHoweverTheTextComes) {
  for (const auto& [window, step] : {std::pair<int64_t, int64_t>{1, 1}, {256, 300}, {257, 511}, {700, 512}}) {
    Text text(GetParam(), window, step);
    for (const int64_t n : {1, 255, 1, 300, 7, 256, 500, 1, 1, 512, 511}) {
      for (int64_t left = n; left > 0;) {  // in steps as long as it takes
        const int64_t here = std::min(left, step);
        const int64_t begin = text.kv.size();
        text.Read(here);
        if (left == n || here < step) text.Expect(begin, window);
        left -= here;
      }
    }
  }
}

TEST_P(NearKeysTest, AreThoseOfTheNewTextAfterGoingBack) {
  Text text(GetParam(), 300, 600);
  text.Read(600);
  text.Read(500);
  text.kv.Truncate(800);
  std::reverse(text.inputs.k.begin(), text.inputs.k.end());
  text.Read(1);  // decoded: the others of its page are there
  text.Expect(800, 300);
  text.kv.Truncate(250);
  text.Read(100);
  text.Expect(250, 300);
  text.Read(600);
  text.Expect(350, 300);
}

// The newest pages before where it went back to are still there, and older ones of its window no longer.
TEST_P(NearKeysTest, AreMadeAnewWhereLaterTextTookTheirPlace) {
  for (const int64_t to : {1100, 1279, 1280, 1281, 1500, 1536, 1700, 1792, 2000, 2300}) {
    Text text(GetParam(), 700, 512);
    for (int step = 0; step < 5; ++step) text.Read(512);
    text.kv.Truncate(to);
    text.Read(1);
    text.Expect(to, 700);
    text.Read(1);
    text.Read(300);
    text.Expect(to + 2, 700);
  }
}

// A window that begins with the first token of a page.
TEST_P(NearKeysTest, GoAsFarBackAsTheWindow) {
  Text text(GetParam(), 512, 256);
  for (int step = 0; step < 8; ++step) text.Read(256);
  text.Read(256);
  text.Expect(2048, 512);
}

TEST_P(NearKeysTest, OfAForkAreMadeAnew) {
  Text text(GetParam(), 300, 600);
  text.Read(600);
  text.Read(1);
  text.near = text.near->Fresh();
  text.Read(1);
  text.Expect(601, 300);
}

// Two-plane methods in the store's own type: what they give does not depend on how the text came, and is what
// keys that are turned as they are read give, to the rounding of those.
TEST_P(NearKeysTest, ServeEveryMethodWithTwoPlanes) {
  for (const char* const spec :
       {"self-extend,group=4,window=300", "rerope,window=300", "leaky-rerope,window=290,factor=3",
        "lm-infinite,global=5,local=300", "infllm,n_init=9,n_local=300,block=16,top_k=3,exec_block=64",
        "esa,n_init=9,n_local=300,k=40,chunk=64,score=exact",
        "self-extend,group=5,window=301,fraction=exact"}) {
    SCOPED_TRACE(spec);
    const std::shared_ptr<const Policy> policy = MakeCase(spec, 4096);
    ASSERT_GT(policy->NearTokens(), 0);
    const LayerInputs inputs = UniformInputs(kCaseShape, 800, 6);
    LayerSetup setup = CaseSetup(*policy, inputs.n);
    setup.kv = GetParam();
    const auto read = [&](std::initializer_list<int64_t> prompt) {
      OneLayer layer(setup);
      for (const int64_t n : prompt) layer.Prefill(inputs, n, /*query_block=*/n % 3 == 0 ? 48 : 1 << 20);
      while (layer.size() < 780) layer.Decode(inputs);
      return layer;
    };
    const OneLayer whole = read({768});
    EXPECT_EQ(read({256, 320, 192}).out(), whole.out());
    OneLayer fork = whole.Fork();
    OneLayer again = whole.Fork();
    again.Truncate(again.RewindPoint(779));
    while (fork.size() < inputs.n) fork.Decode(inputs);
    while (again.size() < inputs.n) again.Decode(inputs);
    EXPECT_EQ(again.out(), fork.out());

    // InfLLM's representatives follow from what was attended to: with other roundings, others may be taken.
    if (GetParam() != KvType::kF32 && policy->Observes()) continue;
    setup.near_keys = false;
    const OneLayer turned = read({768});
    ASSERT_EQ(turned.out().size(), whole.out().size());
    // A logit is off by the rounding of a key and of a query, a weight and an output by theirs.
    const double bound = GetParam() != KvType::kF32 ? BoundOf(inputs, 14, std::exp2(-6), std::exp2(-8)).out
                                                    : BoundOf(inputs, 14).out;
    for (std::size_t i = 0; i < whole.out().size(); ++i) {
      ASSERT_NEAR(whole.out()[i], turned.out()[i], bound) << i;
    }
  }
}

TEST(NearKeys, TakeWhatIsSaid) {
  const KvGeometry geometry{.n_layers = 1, .n_kv_heads = 2, .head_dim = 64, .type = KvType::kBF16};
  const auto policy = MakeCase("rerope,window=500", 4096);
  const uint64_t page = 2 * 256 * 64 * sizeof(BFloat16);
  const uint64_t empty = NearKeys::For(*policy, geometry, FastestVectorKernels())->Bytes();
  EXPECT_LT(empty, 1024u);
  EXPECT_EQ(NearKeys::BytesFor(*policy, geometry, 1), page + empty);
  EXPECT_EQ(NearKeys::BytesFor(*policy, geometry, 257), 2 * page + empty);
  // 500 + 2048 tokens, wherever they begin in their first page.
  EXPECT_EQ(NearKeys::BytesFor(*policy, geometry, 1 << 20), 11 * page + empty);
  EXPECT_EQ(NearKeys::BytesFor(*MakeCase("full", 4096), geometry, 1 << 20), 0u);
  EXPECT_EQ(NearKeys::For(*MakeCase("longheads", 4096), geometry, FastestVectorKernels()), nullptr);
}

}  // namespace
}  // namespace longheads
