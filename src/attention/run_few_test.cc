// A generated token's attention: plans that are made, and pieces that are attended to, by several threads at
// once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>

#include "attention/full.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/one_layer.h"

namespace longheads {
namespace {

constexpr HeadShape kShape{.n_heads = 9, .n_kv_heads = 3, .head_dim = 64};
constexpr int64_t kPrompt = 700, kTokens = 703;  // three pages

std::function<void()> on_piece;  // called before each

const AttentionKernels& Fastest() {
  static const AttentionKernels& kernels =
      *ChooseImplementation(AttentionImplementations(), "auto", "attention")->table;
  return kernels;
}

const AttentionKernels& Watched() {
  static const AttentionKernels kernels = [] {
    AttentionKernels k = Fastest();
    k.attend_few = [](std::span<const RotatedRow> rows, const KeyRun& run, const RotationTable& table,
                      float* workspace) {
      if (on_piece) on_piece();
      Fastest().attend_few(rows, run, table, workspace);
    };
    return k;
  }();
  return kernels;
}

class RunFewTest : public testing::Test {
 protected:
  // Full attention that tells whose plan it makes for a generated token.
  class Full : public FullAttention {
   public:
    Full() : FullAttention(kShape, kTokens) {}
    std::function<void(int64_t kv_head)> on_plan;

    void BuildPlan(const QueryBlock& block, Phase phase, const AttentionKernels& kernels,
                   PolicyScratch& scratch, Plan& plan) const override {
      if (phase == Phase::kDecode && on_plan) on_plan(block.kv_head);
      FullAttention::BuildPlan(block, phase, kernels, scratch, plan);
    }
  };

  void TearDown() override { on_piece = nullptr; }

  OneLayer Read(int n_threads) const {
    OneLayer layer({.policy = policy_,
                    .kernels = Watched(),
                    .shape = kShape,
                    .max_tokens = kTokens,
                    .n_threads = n_threads});
    layer.Prefill(inputs_, kPrompt);
    return layer;
  }

  Full policy_;
  const LayerInputs inputs_ = UniformInputs(kShape, kTokens, 3);
};

TEST_F(RunFewTest, WhatThrowsEndsItsStepAndHarmsNoOther) {
  OneLayer undisturbed = Read(1);
  while (undisturbed.size() < kTokens) undisturbed.Decode(inputs_);
  for (const int n_threads : {1, 2, 3, 8}) {
    for (const int64_t of_plans : {0, 1, 2}) {
      OneLayer layer = Read(n_threads);
      while (layer.size() < kTokens) {
        policy_.on_plan = [&](int64_t kv_head) {
          if (kv_head == of_plans) throw std::bad_alloc();
        };
        EXPECT_THROW(layer.Decode(inputs_), std::bad_alloc);
        policy_.on_plan = nullptr;
        layer.Decode(inputs_);
      }
      EXPECT_EQ(layer.out(), undisturbed.out()) << n_threads << " threads, the plan of head " << of_plans;
    }
    for (const int of_pieces : {0, 1, 4, 8}) {  // there are nine
      OneLayer layer = Read(n_threads);
      while (layer.size() < kTokens) {
        std::atomic<int> n = 0;
        on_piece = [&] {
          if (n++ == of_pieces) throw std::bad_alloc();
        };
        EXPECT_THROW(layer.Decode(inputs_), std::bad_alloc);
        on_piece = nullptr;
        layer.Decode(inputs_);
      }
      EXPECT_EQ(layer.out(), undisturbed.out()) << n_threads << " threads, piece " << of_pieces;
    }
  }
}

TEST_F(RunFewTest, PiecesAreAttendedToWhileAnotherPlanIsMade) {
  OneLayer layer = Read(2);
  std::atomic<bool> attended = false;
  on_piece = [&] { attended = true; };
  bool seen = false;
  policy_.on_plan = [&](int64_t kv_head) {
    if (kv_head < 2) return;
    // The other thread may be a while in coming.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!attended && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    seen = attended;
  };
  layer.Decode(inputs_);
  EXPECT_TRUE(seen);
}

// Who has nothing to attend to waits for a plan, asleep after a while: it hears of the plan, and of what took
// its place.
TEST_F(RunFewTest, WhoSleepsUntilThereIsAPlanIsWoken) {
  OneLayer undisturbed = Read(1);
  undisturbed.Decode(inputs_);
  OneLayer layer = Read(2);
  for (const bool fails : {true, false}) {
    std::atomic<int> n_attended = 0;
    on_piece = [&] { ++n_attended; };
    policy_.on_plan = [&](int64_t kv_head) {
      if (kv_head < 2) return;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (n_attended < 6 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (fails) throw std::bad_alloc();
    };
    if (fails) {
      EXPECT_THROW(layer.Decode(inputs_), std::bad_alloc);
    } else {
      layer.Decode(inputs_);
    }
    EXPECT_EQ(n_attended, fails ? 6 : 9);
  }
  EXPECT_EQ(layer.out(), undisturbed.out());
}

TEST_F(RunFewTest, AHeadThatSeesNothingIsZero) {
  for (const int n_threads : {1, 4}) {
    OneLayer whole = Read(n_threads), layer = Read(n_threads);
    whole.Decode(inputs_);
    layer.mutation = [](const QueryBlock& block, Plan& plan) {
      if (block.kv_head == 1) plan.Clear();
    };
    layer.Decode(inputs_);
    const int64_t group = kShape.group() * kShape.head_dim;
    for (int64_t i = 0; i < 3 * group; ++i) {
      const auto at = static_cast<std::size_t>(kPrompt * 3 * group + i);
      ASSERT_EQ(layer.out()[at], i / group == 1 ? 0.0f : whole.out()[at]) << n_threads << " threads, " << i;
    }
  }
}

// Keeps who reads waiting until it is released: one place, and all.
class SlowDisk final : public FileFaults {
 public:
  explicit SlowDisk(uint64_t slowest) : slowest_(slowest) { InstallFileFaults(this); }
  ~SlowDisk() override { InstallFileFaults(nullptr); }
  Verdict Before(const FileOperation& operation) override {
    if (operation.call != FileCall::kRead) return {};
    const bool is_slowest = operation.offset == slowest_;
    const std::atomic<bool>& released = is_slowest ? all : others;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!released && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (is_slowest) waited_in_vain = !released;
    return {};
  }
  std::atomic<bool> others = false, all = false;
  std::atomic<bool> waited_in_vain = false;

 private:
  uint64_t slowest_;
};

// Of pages 1, 2 and 3, which are on disk when the plan is made, the first comes last; page 2 in two pieces.
TEST_F(RunFewTest, PiecesAreAttendedToAsTheirPagesCome) {
  constexpr HeadShape kOne{.n_heads = 1, .n_kv_heads = 1, .head_dim = 64};
  const KvGeometry geometry{.n_layers = 1, .n_kv_heads = 1, .head_dim = 64, .type = KvType::kF32};
  const auto stride = static_cast<uint64_t>(geometry.PageStride());
  const auto pool = KvPool::Create(geometry);
  ASSERT_TRUE(pool->UseDisk({.ram_bytes = KvPool::kLeastPages * stride,
                             .file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0),
                             .io = "threads"}));
  constexpr int64_t kPages = 3 * KvPool::kLeastPages;
  const LayerInputs inputs = UniformInputs(kOne, kPages * kPageTokens, 5);
  KvSequence kv(pool);
  kv.Reserve(inputs.n);
  std::vector<KvPage*> all;
  for (int64_t page = 0; page < kPages; ++page) {
    const int64_t at = page * kPageTokens * kOne.head_dim;
    kv.Write(0, 0, page * kPageTokens, kPageTokens, inputs.k.data() + at, kOne.head_dim, inputs.v.data() + at,
             kOne.head_dim);
    all.push_back(kv.PageAt(0, 0, page));
  }
  kv.Commit(inputs.n);
  ASSERT_TRUE(pool->Flush(all));

  std::vector<float> out(static_cast<std::size_t>(kOne.head_dim)), expected;
  const QueryToken token{.sequence = 0, .position = inputs.n - 1, .q = inputs.q.data(), .out = out.data()};
  const RotationTable rotations(TrainedFrequencies(10000, 64, {})->theta, 64, PairLayout::kHalfSplit, 1);
  const AttentionSequence view{.kv = &kv, .rotations = &rotations};
  const QueryBlock block{.tokens = std::span(&token, 1), .sequences = std::span(&view, 1)};
  Plan plan;
  plan.rows.push_back({.row = 0, .x = 0});
  plan.segments = {
      {.key_begin = kPageTokens, .key_end = 2 * kPageTokens + 100, .row_begin = 0, .row_end = 1},
      {.key_begin = 2 * kPageTokens + 100, .key_end = 4 * kPageTokens, .row_begin = 0, .row_end = 1}};
  for (const int n_threads : {1, 2, 3}) {
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t page = 4; page < kPages; ++page) kv.Stored(0, 0, page);
    }
    for (int64_t page = 1; page < 4; ++page) ASSERT_FALSE(kv.IsNear(0, 0, page));
    SlowDisk disk(pool->PlaceOf(*all[1]).offset);
    std::atomic<int> n_attended = 0;
    on_piece = [&] {
      if (++n_attended == 3) disk.all = true;
    };
    AttentionExecutor executor(Watched(), kOne, n_threads);
    ThreadPool threads(n_threads);
    const auto make_plan = [&](std::size_t, int thread) -> const Plan& {
      executor.ReadAhead(block, plan, thread, /*remember=*/true);
      return plan;
    };
    executor.RunFew(std::span(&block, 1), KeyPlane::Unrotated(), threads, make_plan,
                    [&] { disk.others = true; });
    EXPECT_FALSE(disk.waited_in_vain);
    EXPECT_EQ(n_attended, 4);
    if (expected.empty()) expected = out;
    EXPECT_EQ(out, expected);
  }
}

}  // namespace
}  // namespace longheads
