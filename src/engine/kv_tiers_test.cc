// Keys and values that do not fit into memory: every bit is the one that it would be if they did.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "engine/engine.h"
#include "engine/esa_for_test.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

// So many layers that the least which memory may hold, 64 pages, is a tenth of the text's.
const TinyLlamaOptions kTiny = {.vocab_size = 273,
                                .n_layers = 32,
                                .embed = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 32,  // the least whose pages are smaller packed on disk
                                .ffn = 48,
                                .context_length = 8192,
                                .control_token = "<landmark>"};
constexpr int64_t kPrompt = 2603;
constexpr int64_t kAnswer = 20;

struct Case {
  const char* attention;
  const char* kv_type;
};

std::unique_ptr<Engine> Load(const Case& c, uint64_t kv_ram) {
  const ModelFile file(TinyLlama(kTiny));
  Result<std::unique_ptr<Engine>> engine = Engine::Load({.model_path = file.path(),
                                                         .attention = c.attention,
                                                         .compute = "f32",
                                                         .kv_type = c.kv_type,
                                                         .kv_ram = kv_ram,
                                                         .kv_disk = testing::TempDir(),
                                                         .threads = 2});
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

uint64_t LeastRam(const Case& c) {
  const KvType type = std::string(c.kv_type) == "q8"     ? KvType::kQ8
                      : std::string(c.kv_type) == "bf16" ? KvType::kBF16
                                                         : KvType::kF32;
  const KvGeometry geometry{
      .n_layers = kTiny.n_layers, .n_kv_heads = kTiny.n_kv_heads, .head_dim = kTiny.head_dim, .type = type};
  return static_cast<uint64_t>(KvPool::kLeastPages * geometry.PageStride());
}

// A prompt, an answer, a fork that goes on, and a cut.
std::vector<float> Talk(Engine& engine) {
  const std::vector<TokenId> tokens = TinyTokens(kPrompt + 3 * kAnswer, 256, 1);
  Session session = engine.NewSession();
  std::vector<float> all;
  const auto feed = [&](Session& to, int64_t begin, int64_t end, bool decode) {
    const auto span =
        std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    if (!decode) {
      const Result<std::vector<float>> hidden = engine.Prefill(to, span, Outputs::kLast, {});
      ASSERT_TRUE(hidden) << hidden.error().message;
      all.insert(all.end(), hidden->begin(), hidden->end());
      return;
    }
    for (const TokenId& token : span) {
      Session* const self = &to;
      const Result<std::vector<float>> hidden = engine.Decode(std::span(&self, 1), std::span(&token, 1));
      ASSERT_TRUE(hidden) << hidden.error().message;
      all.insert(all.end(), hidden->begin(), hidden->end());
    }
  };
  feed(session, 0, kPrompt, false);
  Session fork = engine.Fork(session);
  feed(session, kPrompt, kPrompt + kAnswer, true);
  feed(fork, kPrompt + kAnswer, kPrompt + 3 * kAnswer, false);
  feed(session, kPrompt, kPrompt + kAnswer, true);
  EXPECT_TRUE(engine.Truncate(session, kPrompt + 3));
  feed(session, kPrompt + kAnswer, kPrompt + 2 * kAnswer, true);
  return all;
}

class KvTiersTest : public testing::TestWithParam<Case> {
  const ModelFile model_{TinyLlama(kTiny)};
  const std::unique_ptr<CacheFolder> esa_compression_ = SaveRandomEsaCompression(model_.path(), kTiny);
};

TEST_P(KvTiersTest, GiveTheBitsOfMemoryAlone) {
  const std::unique_ptr<Engine> near = Load(GetParam(), 0);
  const std::unique_ptr<Engine> far = Load(GetParam(), LeastRam(GetParam()));
  ASSERT_TRUE(near && far);
  const std::vector<float> expected = Talk(*near);
  const std::vector<float> got = Talk(*far);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), sizeof(float) * got.size()), 0);
  // There were more pages than memory has room for, so that the equality says something.
  EXPECT_LT(KvPool::kLeastPages, far->kv_geometry().PagesFor(kPrompt) / 10);
  EXPECT_GT(far->kv_traffic().bytes_written, 0u);
  EXPECT_GT(far->kv_traffic().bytes_read, 0u);
  EXPECT_EQ(far->kv_traffic().packed > 0, std::string(GetParam().kv_type) == "bf16");
  EXPECT_EQ(near->kv_traffic().bytes_read, 0u);
}

std::vector<Case> Cases() {
  if (kSanitized) {
    return {Case{"full", "q8"}, Case{"longheads,chunk=64,window=512,begin=640", "bf16"},
            Case{"infllm,n_init=16,n_local=256,block=64,top_k=4,representatives=2,exec_block=128", "bf16"},
            Case{kCompressedEsa, "bf16"}};
  }
  return {Case{"full", "f32"},
          Case{"full", "bf16"},
          Case{"full", "q8"},
          Case{"longheads,chunk=64,window=512,begin=640", "f32"},
          Case{"longheads,chunk=64,window=512,begin=640", "bf16"},
          Case{"longheads,chunk=64,window=512,begin=640", "q8"},
          Case{"longheads,chunk=48,window=480,begin=480,reps=kv,select=kv", "bf16"},
          Case{"dynamic-ntk:mode=exact+full", "bf16"},
          Case{"self-extend,group=4,window=256", "bf16"},
          Case{"rerope,window=256", "q8"},
          Case{"leaky-rerope,window=256", "bf16"},
          Case{"streaming-llm,start=4,recent=1500", "bf16"},
          Case{"lm-infinite,global=4,local=500,top_k=5,top_k_from=1", "bf16"},
          Case{"infllm,n_init=16,n_local=256,block=64,top_k=4,representatives=2,exec_block=128", "bf16"},
          Case{"esa,n_init=4,n_local=256,k=64,chunk=128,score=exact", "f32"},
          Case{"esa,n_init=4,n_local=256,k=64,chunk=128,score=exact", "q8"},
          Case{kCompressedEsa, "bf16"},
          Case{"landmark,block=62,top_k=4,train_context=512", "bf16"},
          Case{"quest,page=16,budget=256", "bf16"},
          Case{"moba,chunk=128,top_k=3", "q8"}};
}

INSTANTIATE_TEST_SUITE_P(Every, KvTiersTest, testing::ValuesIn(Cases()), [](const auto& test) {
  std::string name = std::to_string(test.index) + "_" + test.param.attention;
  name = name.substr(0, name.find(','));
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name + "_" + test.param.kv_type;
});

// Memory has room for two thirds of the text. What a prompt's blocks read last is there for the next block
// too: 205 to 225 pages come from disk for it, where 434 did without that.
TEST(KvTiers, WhatAPromptReadLastStaysForWhatFollows) {
  TinyLlamaOptions tiny = kTiny;
  tiny.n_layers = 16;
  const ModelFile file(TinyLlama(tiny));
  constexpr int64_t kText = 5200;
  const std::vector<TokenId> tokens = TinyTokens(kText + 5, 256, 1);
  const auto hidden = [&](uint64_t kv_ram) {
    const auto engine = *Engine::Load({.model_path = file.path(),
                                       .attention = "longheads,chunk=64,window=512,begin=640",
                                       .compute = "f32",
                                       .kv_type = "bf16",
                                       .kv_ram = kv_ram,
                                       .kv_disk = testing::TempDir(),
                                       .threads = 2});
    Session session = engine->NewSession();
    std::vector<float> all = *engine->Prefill(session, std::span(tokens).first(kText), Outputs::kLast, {});
    if (kv_ram > 0) {
      const KvTraffic traffic = engine->kv_traffic();
      const auto page_bytes = static_cast<uint64_t>(engine->kv_geometry().PageBytes());
      EXPECT_LT(traffic.bytes_read, 320 * page_bytes);
      EXPECT_LT(traffic.bytes_read, traffic.read_ahead * page_bytes);  // they come packed
    }
    for (const TokenId token : std::span(tokens).subspan(kText)) {
      Session* const self = &session;
      const std::vector<float> more = *engine->Decode(std::span(&self, 1), std::span(&token, 1));
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  const KvGeometry geometry{.n_layers = tiny.n_layers,
                            .n_kv_heads = tiny.n_kv_heads,
                            .head_dim = tiny.head_dim,
                            .type = KvType::kBF16};
  EXPECT_EQ(hidden(geometry.BytesFor(kText) / 3 * 2), hidden(0));
}

TEST(KvTiers, AFolderThatIsNotThereIsSaid) {
  const ModelFile file(TinyLlama(kTiny));
  const auto engine =
      Engine::Load({.model_path = file.path(), .kv_ram = 64 << 20, .kv_disk = "/nowhere/at/all"});
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("/nowhere/at/all"), std::string::npos) << engine.error().message;
}

TEST(KvTiers, TheDiskIsLookedAtBeforeTheWork) {
  const ModelFile file(TinyLlama(kTiny));
  const auto engine = Engine::Load({.model_path = file.path(),
                                    .attention = "full",
                                    .compute = "f32",
                                    .kv_ram = LeastRam({"full", "f32"}),
                                    .kv_disk = testing::TempDir(),
                                    .kv_disk_max = 1 << 20,
                                    .threads = 2});
  ASSERT_TRUE(engine) << engine.error().message;
  Session session = (*engine)->NewSession();
  const auto hidden = (*engine)->Prefill(session, TinyTokens(kPrompt, 256, 1), Outputs::kLast, {});
  ASSERT_FALSE(hidden);
  EXPECT_NE(hidden.error().message.find("--kv-disk-max"), std::string::npos) << hidden.error().message;
  EXPECT_EQ(session.size(), 0);
}

}  // namespace
}  // namespace longheads
