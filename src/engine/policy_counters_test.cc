// What methods count of a text, from their states to who asks the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

const TinyLlamaOptions kTiny = {.n_layers = 3,
                                .embed = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 16,
                                .ffn = 48,
                                .context_length = 512};
constexpr const char* kInfLlm =
    "infllm,n_init=4,n_local=40,block=8,top_k=3,representatives=2,exec_block=16,max_cached_block=5";

std::unique_ptr<Engine> Load(const std::string& attention) {
  const ModelFile file(TinyLlama(kTiny));
  auto engine =
      Engine::Load({.model_path = file.path(), .attention = attention, .compute = "f32", .threads = 2});
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

std::vector<TokenId> Tokens(int64_t n, uint64_t seed) { return TinyTokens(n, 256, seed); }

void Decode(Engine& engine, Session& session, std::span<const TokenId> tokens) {
  Session* const self = &session;
  for (const TokenId& token : tokens) {
    ASSERT_TRUE(engine.Decode(std::span(&self, 1), std::span(&token, 1)));
  }
}

std::map<std::string, int64_t> CountersOf(const Engine& engine, const Session& session) {
  std::map<std::string, int64_t> counters;
  for (const PolicyCounter& counter : engine.Counters(session)) {
    EXPECT_TRUE(counters.emplace(counter.name, counter.count).second)
        << counter.name << " stands there twice";
  }
  return counters;
}

// Counts again from the choices alone: a cache of five blocks for each layer and each choice of its heads.
class CountsAgain : public SelectionObserver {
 public:
  int64_t hits = 0;
  int64_t misses = 0;

  void OnChoice(const BlockChoice& choice) override {
    const std::lock_guard lock(mutex_);
    std::map<int32_t, int64_t>& last_use = caches_[{choice.layer, choice.head_begin}];
    for (const int32_t block : choice.taken) ++(last_use.contains(block) ? hits : misses);
    for (const int32_t block : choice.taken) last_use[block] = ++now_;
    while (last_use.size() > 5) {
      last_use.erase(std::ranges::min_element(
          last_use, {}, [](const std::pair<const int32_t, int64_t>& use) { return use.second; }));
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::map<int32_t, int64_t>> caches_;
  int64_t now_ = 0;
};

TEST(PolicyCounters, OfInfLlmAreWhatACacheInEveryLayerWouldHaveFound) {
  int64_t uses_together = 0;
  for (const char* const choice : {"", ",per_head=on"}) {
    const auto engine = Load(std::string(kInfLlm) + choice);
    ASSERT_TRUE(engine);
    CountsAgain again;
    engine->SetObserver(&again);
    Session session = engine->NewSession();
    EXPECT_EQ(CountersOf(*engine, session),
              (std::map<std::string, int64_t>{{"block_cache_hits", 0}, {"block_cache_misses", 0}}));
    ASSERT_TRUE(engine->Prefill(session, Tokens(300, 1), Outputs::kNone, {}));
    Decode(*engine, session, Tokens(50, 2));
    engine->SetObserver(nullptr);
    const auto counters = CountersOf(*engine, session);
    EXPECT_EQ(counters, (std::map<std::string, int64_t>{{"block_cache_hits", again.hits},
                                                        {"block_cache_misses", again.misses}}));
    EXPECT_GT(again.hits, 0);
    EXPECT_GT(again.misses, 0);
    // With per_head each of the four heads uses as many blocks as all of them did together.
    if (uses_together == 0) uses_together = again.hits + again.misses;
    EXPECT_EQ(again.hits + again.misses, (*choice == '\0' ? 1 : kTiny.n_heads) * uses_together);
  }
}

TEST(PolicyCounters, AreOfTheTextThatTheSessionHolds) {
  const auto engine = Load(kInfLlm);
  ASSERT_TRUE(engine);
  Session session = engine->NewSession();
  ASSERT_TRUE(engine->Prefill(session, Tokens(300, 1), Outputs::kNone, {}));
  const auto of_prompt = CountersOf(*engine, session);
  Session fork = engine->Fork(session);
  Decode(*engine, session, Tokens(30, 2));
  EXPECT_NE(CountersOf(*engine, session), of_prompt);
  EXPECT_EQ(CountersOf(*engine, fork), of_prompt);
  ASSERT_TRUE(engine->Truncate(session, 300));
  EXPECT_EQ(CountersOf(*engine, session), of_prompt);
  ASSERT_TRUE(engine->Truncate(session, 0));
  EXPECT_EQ(CountersOf(*engine, session)["block_cache_misses"], 0);
}

TEST(PolicyCounters, AreNoneOfMethodsThatCountNothing) {
  for (const char* const attention :
       {"full", "longheads,chunk=16,window=64,begin=80", "moba,chunk=16,top_k=2"}) {
    const auto engine = Load(attention);
    ASSERT_TRUE(engine);
    Session session = engine->NewSession();
    ASSERT_TRUE(engine->Prefill(session, Tokens(100, 1), Outputs::kNone, {}));
    EXPECT_TRUE(engine->Counters(session).empty()) << attention;
  }
}

}  // namespace
}  // namespace longheads
