// Real weights, and a text whose keys and values are all in memory, a tenth of them, or in a file that
// another engine wrote with 64 MiB of them in memory: every bit of what the model makes of it is the same.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "engine/context.h"
#include "tests/default_model/default_model.h"

namespace longheads {
namespace {

constexpr int64_t kText = 1600;  // 79 MiB of float32, in whole pages
constexpr int64_t kQuestion = 20;

EngineOptions Options(const char* attention, uint64_t kv_ram) {
  return {.model_path = DefaultModelPath(),
          .attention = attention,
          .compute = "int8",
          .kv_type = "f32",
          .kv_ram = kv_ram,
          .kv_disk = testing::TempDir(),
          .kv_may_leave = true,
          .threads = 2};  // from 5 on the least --kv-ram is more than the 8 MiB below
}

std::vector<TokenId> Text() {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < kText + kQuestion; ++i)
    tokens.push_back(static_cast<TokenId>(1000 + i * 7919 % 40000));
  return tokens;
}

// What the model makes of a question and of each token of an answer.
std::vector<float> Ask(Engine& engine, Session& session) {
  const std::vector<TokenId> tokens = Text();
  const std::span<const TokenId> question = std::span(tokens).subspan(kText, kQuestion);
  auto hidden = engine.Prefill(session, question, Outputs::kLast, {});
  EXPECT_TRUE(hidden) << hidden.error().message;
  std::vector<float> all = hidden.value_or(std::vector<float>());
  for (const TokenId& token : question) {
    Session* const self = &session;
    hidden = engine.Decode(std::span(&self, 1), std::span(&token, 1));
    EXPECT_TRUE(hidden) << hidden.error().message;
    if (hidden) all.insert(all.end(), hidden->begin(), hidden->end());
  }
  return all;
}

class DefaultModelTiers : public testing::TestWithParam<const char*> {};

TEST_P(DefaultModelTiers, GiveTheBitsOfMemoryAlone) {
  const std::vector<TokenId> tokens = Text();
  const std::span<const TokenId> text = std::span(tokens).first(kText);
  const auto answers = [&](uint64_t kv_ram, KvTraffic& traffic) {
    const std::unique_ptr<Engine> engine = *Engine::Load(Options(GetParam(), kv_ram));
    Session session = engine->NewSession();
    const auto read = engine->Prefill(session, text, Outputs::kNone, {});
    EXPECT_TRUE(read) << read.error().message;
    std::vector<float> all = Ask(*engine, session);
    traffic = engine->kv_traffic();
    return all;
  };
  KvTraffic none, tenth;
  const std::vector<float> expected = answers(0, none);
  const auto same = [&](const std::vector<float>& got) {
    return got.size() == expected.size() &&
           std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(answers(8 << 20, tenth)));
  EXPECT_EQ(none.bytes_read, 0u);
  EXPECT_GT(tenth.bytes_read, 0u);

  const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path =
      testing::TempDir() + "/longheads-tiers-" + name.substr(name.find('/') + 1) + ".lhctx";
  std::filesystem::remove(path);
  {
    const EngineOptions options = Options(GetParam(), 64 << 20);
    const std::unique_ptr<Engine> engine = *Engine::Load(options);
    const auto setup = *SetupOf(*engine, options, kText, /*chat=*/false, "a test");
    const auto ingest = *ContextIngest::Begin(*engine, path, setup, /*restart=*/false);
    const Status read = ingest->Read(text, {});
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_TRUE(ingest->Finish());
    EXPECT_GT(engine->kv_traffic().bytes_written, 0u);
  }
  for (const uint64_t kv_ram : {8 << 20, 64 << 20}) {
    const std::unique_ptr<Engine> engine = *Engine::Load(Options(GetParam(), kv_ram));
    auto session = OpenContext(*engine, path);
    ASSERT_TRUE(session) << session.error().message;
    EXPECT_TRUE(same(Ask(*engine, *session))) << kv_ram;
    EXPECT_GT(engine->kv_traffic().bytes_read, 0u);
  }
  std::filesystem::remove(path);
}

// Every method that keeps its keys; landmark needs another model.
INSTANTIATE_TEST_SUITE_P(Methods, DefaultModelTiers,
                         testing::Values("full", "longheads,window=1024,begin=1024",
                                         "self-extend,group=4,window=512", "rerope,window=512",
                                         "leaky-rerope,window=512", "streaming-llm,start=4,recent=1000",
                                         "lm-infinite,global=4,local=500,top_k=5,top_k_from=1",
                                         "infllm,n_init=64,n_local=512,block=64,top_k=4,exec_block=256",
                                         "esa,n_init=4,n_local=256,k=64,chunk=128,score=exact",
                                         "quest,page=16,budget=256", "moba,chunk=128,top_k=3"));

}  // namespace
}  // namespace longheads
