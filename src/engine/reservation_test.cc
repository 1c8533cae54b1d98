// What texts take beside their pages, as their pages' pool is told of it: what there is, and once where forks
// share it, whatever becomes of them.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "engine/context.h"
#include "engine/engine.h"
#include "tests/support/model_file.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

const TinyLlamaOptions kTiny = {
    .embed = 32, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .ffn = 48, .context_length = 256};

std::string NameOf(const std::string& method) {
  std::string letters;
  for (const char c : method.substr(0, method.find(','))) {
    if (c != '-') letters += c;
  }
  return letters;
}

class ReservationTest : public testing::TestWithParam<const char*> {
 protected:
  EngineOptions Options() const {
    return {.model_path = file_.path(),
            .attention = GetParam(),
            .compute = "f32",
            .kv_type = "bf16",
            .kv_ram = 64 << 20,
            .kv_disk = testing::TempDir(),
            .kv_may_leave = true,
            .threads = 2};
  }
  // Of a text of n tokens. A fork that goes on has some of the state for itself.
  MemoryPlan Plan(int64_t n) const {
    return engine_->PlanMemory((n + kPageTokens - 1) / kPageTokens * kPageTokens);
  }
  uint64_t Kept(int64_t n) const { return Plan(n).tables + Plan(n).state; }
  void Read(Session& session, int64_t n, uint64_t seed = 1) const {
    const auto hidden = engine_->Prefill(session, TinyTokens(n, 256, seed), Outputs::kNone, {});
    ASSERT_TRUE(hidden) << hidden.error().message;
  }
  void Decode(Session& session) const {
    Session* const self = &session;
    const TokenId token = 5;
    ASSERT_TRUE(engine_->Decode(std::span(&self, 1), std::span(&token, 1)));
  }
  uint64_t reserved() const { return engine_->reserved_bytes(); }

  const ModelFile file_{TinyLlama(kTiny)};
  const std::unique_ptr<Engine> engine_ = *Engine::Load(Options());
};

TEST_P(ReservationTest, IsOfWhatThereIs) {
  std::optional<Session> session(engine_->NewSession());
  EXPECT_EQ(reserved(), 0);
  Read(*session, 1000);
  EXPECT_EQ(reserved(), Kept(1000));
  Read(*session, 1000);
  EXPECT_EQ(reserved(), Kept(2000));
  std::optional<Session> other(engine_->NewSession());
  Read(*other, 300);
  EXPECT_EQ(reserved(), Kept(2000) + Kept(300));
  session.reset();
  EXPECT_EQ(reserved(), Kept(300));
  other.reset();
  EXPECT_EQ(reserved(), 0);
}

TEST_P(ReservationTest, OfATextThatWasStoppedIsOfWhatItWasBefore) {
  Session session = engine_->NewSession();
  Read(session, 300);
  const uint64_t before = reserved();
  CancelToken cancel;
  cancel.Cancel();
  ASSERT_FALSE(engine_->Prefill(session, TinyTokens(5000, 256, 2), Outputs::kNone, {.cancel = &cancel}));
  EXPECT_EQ(session.size(), 300);
  EXPECT_EQ(reserved(), before);
}

TEST_P(ReservationTest, OfForksCountsOnceWhatTheyShare) {
  std::optional<Session> session(engine_->NewSession());
  Read(*session, 3000);
  const uint64_t once = reserved();
  std::optional<Session> fork(engine_->Fork(*session));
  EXPECT_EQ(reserved(), once);
  Decode(*fork);
  const uint64_t own = reserved() - once;
  EXPECT_LE(own, Plan(3000).state);
  {
    Session other = engine_->Fork(*session);
    Decode(other);
    EXPECT_EQ(reserved(), once + 2 * own);
  }
  session.reset();
  EXPECT_EQ(reserved(), once);
  fork.reset();
  EXPECT_EQ(reserved(), 0);
}

TEST_P(ReservationTest, OfWhatIsReadAnewBehindACutIsNotTheForks) {
  Session session = engine_->NewSession();
  Read(session, 3000);
  const uint64_t once = reserved();
  std::optional<Session> fork(engine_->Fork(session));
  ASSERT_TRUE(engine_->Truncate(session, 100));
  Read(session, 2900, 2);
  EXPECT_GE(reserved(), once + Plan(3000).tables - Plan(100).tables);
  fork.reset();
  ASSERT_TRUE(engine_->Truncate(session, 0));
  EXPECT_LE(reserved(), once);
  Read(session, 100);
  EXPECT_LE(reserved(), once);
}

TEST_P(ReservationTest, OfASavedTextIsThereAsSoonAsItIsOpen) {
  const std::string path = testing::TempDir() + "/reservation_test_" + NameOf(GetParam()) + ".lhctx";
  const auto remove = [&] {
    for (const std::string& name : {path, ContextWriter::PartialPath(path)}) std::filesystem::remove(name);
  };
  remove();
  {
    const ContextSetup setup = *SetupOf(*engine_, Options(), 2000, /*chat=*/false, "");
    const auto ingest = *ContextIngest::Begin(*engine_, path, setup, /*restart=*/false, 2000);
    ASSERT_TRUE(ingest->Read(TinyTokens(2000, 256, 1), {}));
    EXPECT_EQ(reserved(), Kept(2000));
    ASSERT_TRUE(ingest->Finish());
  }
  EXPECT_EQ(reserved(), 0);
  std::optional<Session> session(*OpenContext(*engine_, path));
  EXPECT_EQ(reserved(), Kept(2000));
  {
    Session one = engine_->Fork(*session), two = engine_->Fork(*session);
    Decode(one);
    Decode(two);
    EXPECT_LE(reserved(), Kept(2000) + 2 * Plan(2000).state);
  }
  EXPECT_EQ(reserved(), Kept(2000));
  session.reset();
  EXPECT_EQ(reserved(), 0);
  remove();
}

TEST_P(ReservationTest, OfLargerBlocksEndsWithThem) {
  constexpr int64_t kLong = 10 * Transformer::kTokenBlock;
  engine_->FitBlocksTo({.parts = BlockFit::kLeastParts});
  Session session = engine_->NewSession();
  Read(session, kLong);
  const uint64_t larger = engine_->PlanMemory(kLong).large_blocks;
  EXPECT_GT(larger, 0);
  EXPECT_EQ(reserved(), Kept(kLong) + larger);
  Session other = engine_->NewSession();
  Read(other, 100);
  EXPECT_EQ(reserved(), Kept(kLong) + Kept(100));
}

INSTANTIATE_TEST_SUITE_P(Methods, ReservationTest,
                         testing::Values("full", "longheads,chunk=16,window=64,begin=80",
                                         "infllm,n_init=16,n_local=64,block=16,top_k=2,exec_block=64",
                                         "self-extend,group=4,window=64",
                                         "esa,n_init=16,n_local=64,k=32,chunk=64,score=exact"),
                         [](const auto& test) { return NameOf(test.param); });

}  // namespace
}  // namespace longheads
