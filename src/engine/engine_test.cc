#include "engine/engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>

#include "base/memory.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

const TinyLlamaOptions kTiny = {
    .embed = 32, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .ffn = 48, .context_length = 4096};
constexpr const char* kLongHeads = "longheads,chunk=16,window=64,begin=80";

std::unique_ptr<Engine> Load(const std::string& attention, const std::string& kv_type = "auto",
                             const TinyLlamaOptions& model = kTiny) {
  const ModelFile file(TinyLlama(model));
  Result<std::unique_ptr<Engine>> engine = Engine::Load({.model_path = file.path(),
                                                         .attention = attention,
                                                         .compute = "f32",
                                                         .kv_type = kv_type,
                                                         .threads = 2});
  EXPECT_TRUE(engine) << engine.error().message;
  return std::move(*engine);
}

std::vector<TokenId> Tokens(int64_t n, uint64_t seed = 1) { return TinyTokens(n, 256, seed); }

TEST(Engine, RefusesAnEmptyPrompt) {
  const std::unique_ptr<Engine> engine = Load("full");
  Session session = engine->NewSession();
  const Result<std::vector<float>> hidden = engine->Prefill(session, {}, Outputs::kLast, {});
  ASSERT_FALSE(hidden);
  EXPECT_EQ(hidden.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(hidden.error().message.find("empty"), std::string::npos);
}

TEST(Engine, RefusesATextForWhichThereIsNoMemoryBeforeItStarts) {
  TinyLlamaOptions model = kTiny;
  model.n_layers = 8;
  model.n_kv_heads = 4;
  model.head_dim = 64;
  const std::unique_ptr<Engine> engine = Load("full", "f32", model);
  constexpr int64_t kTokens = int64_t{1} << 30;  // 16 TiB of keys and values
  EXPECT_GT(engine->PlanMemory(kTokens).kv, uint64_t{1} << 43);
  void* const zeros =
      mmap(nullptr, kTokens * sizeof(TokenId), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  Session session = engine->NewSession();
  const Result<std::vector<float>> hidden =
      engine->Prefill(session, std::span(static_cast<const TokenId*>(zeros), kTokens), Outputs::kLast, {});
  munmap(zeros, kTokens * sizeof(TokenId));
  ASSERT_FALSE(hidden);
  EXPECT_EQ(hidden.error().kind, ErrorKind::kOutOfMemory);
  EXPECT_NE(hidden.error().message.find("1073741824"), std::string::npos) << hidden.error().message;
  EXPECT_NE(hidden.error().message.find("--kv-type q8"), std::string::npos) << hidden.error().message;
  EXPECT_EQ(session.size(), 0);
}

TEST(Engine, NamesTheFlagsThatHelpWhereMemoryIsShort) {
  ModelFile file(TinyLlama(kTiny));
  EngineOptions options{.model_path = file.path(), .attention = "full", .compute = "f32", .threads = 1};
  const auto refusal = [&] {
    const Result<std::unique_ptr<Engine>> engine = Engine::Load(options);
    EXPECT_TRUE(engine) << engine.error().message;
    const Session session = (*engine)->NewSession();
    EXPECT_TRUE((*engine)->CheckMemory(session, 4000));
    const MemoryPlan plan = (*engine)->PlanMemory(4000);
    const PretendedMemory all_but_a_little(plan.total() - (64 << 10));
    const Status status = (*engine)->CheckMemory(session, 4000);
    EXPECT_FALSE(status);
    EXPECT_TRUE((*engine)->CheckMemory(session, 400)) << "a shorter text fits";
    const Status opening = (*engine)->CheckOpening(4000);
    EXPECT_FALSE(opening);
    if (!opening) {
      EXPECT_NE(opening.error().message.find("the text's 4000 tokens take"), std::string::npos);
    }
    return status ? std::string() : status.error().message;
  };
  const auto says = [](const std::string& sentence, const char* words) {
    return sentence.find(words) != std::string::npos;
  };
  const std::string all = refusal();
  EXPECT_TRUE(says(all, "4000 more tokens take") && says(all, "a shorter text")) << all;
  EXPECT_TRUE(says(all, "or --kv-ram, which keeps the rest on disk") && says(all, "or --kv-type q8")) << all;
  options.kv_type = "q8";
  const std::string q8 = refusal();
  EXPECT_TRUE(says(q8, "or --kv-ram") && !says(q8, "q8")) << q8;
  options.kv_type = "f32";
  options.kv_disk = testing::TempDir();
  options.kv_ram = 64 << 20;
  const std::string limited = refusal();
  EXPECT_TRUE(says(limited, "or a smaller --kv-ram") && !says(limited, "which keeps")) << limited;
  options.kv_ram = 2 << 20;  // less than what stays in memory
  const std::string least = refusal();
  EXPECT_TRUE(says(least, "a shorter text") && !says(least, "--kv-ram")) << least;
}

TEST(Engine, WarnsOfWeightsThatMemoryDoesNotHold) {
  TinyLlamaOptions model = kTiny;
  model.ffn = 64;
  model.weight_type = DType::kQ4_1;
  const ModelFile file(TinyLlama(model));
  const auto warned = [&](const char* compute, uint64_t memory) {
    const auto engine = *Engine::Load(
        {.model_path = file.path(), .attention = "full", .compute = compute, .packed_weights = "off"});
    const PretendedMemory pretended(memory);
    const std::vector<std::string> warnings = engine->Warnings(10);
    return warnings.empty() ? std::string() : warnings.front();
  };
  const uint64_t bytes = static_cast<uint64_t>(std::filesystem::file_size(file.path()));
  EXPECT_EQ(warned("f32", bytes), "");
  EXPECT_NE(warned("f32", bytes - 1).find("read from disk again for every token"), std::string::npos);
  EXPECT_NE(warned("bf16-int8", bytes - 1).find("again for every block of a prompt"), std::string::npos);
  EXPECT_EQ(warned("int8", bytes - 1), "") << "they are laid out anew, in memory";
}

TEST(Engine, RefusesToLayOutWeightsAnewWhereThereIsNoRoomForThem) {
  TinyLlamaOptions model = kTiny;
  model.ffn = 64;
  model.weight_type = DType::kQ4_1;
  const ModelFile file(TinyLlama(model));
  const PretendedMemory little(1 << 10);
  const auto engine = Engine::Load({.model_path = file.path(), .attention = "full", .compute = "int8"});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().kind, ErrorKind::kOutOfMemory);
  EXPECT_NE(engine.error().message.find("use --compute f32 or bf16"), std::string::npos)
      << engine.error().message;
}

TEST(Engine, MultipliesIntegersByItselfWhereAllWeightsHaveThemAndThereIsRoom) {
  TinyLlamaOptions model = kTiny;
  model.ffn = 64;
  const auto load = [&model](const char* backend, const char* compute = "auto") {
    const ModelFile file(TinyLlama(model));
    auto engine = Engine::Load(
        {.model_path = file.path(), .attention = "full", .compute = compute, .backend = backend});
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  };
  EXPECT_NE(load("auto")->compute(), ComputeType::kInt8);  // float32 weights
  EXPECT_EQ(load("ref")->compute(), ComputeType::kF32);
  model.weight_type = DType::kQ4_1;
  const auto integers = load("ref");
  EXPECT_EQ(integers->compute(), ComputeType::kInt8);
  if (AutoBackend() == "auto") {
    const bool amx = GemmImplementations().front().declined.empty();
    EXPECT_EQ(load("auto")->compute(), amx ? ComputeType::kBF16Int8 : ComputeType::kInt8);
  }
  const uint64_t laid_out = integers->PlanMemory(0).weights - load("ref", "f32")->PlanMemory(0).weights;
  ASSERT_GT(laid_out, 1000u);
  {
    const PretendedMemory twice(2 * laid_out);
    EXPECT_EQ(load("ref")->compute(), ComputeType::kInt8);
  }
  const PretendedMemory less(2 * laid_out - 2);
  EXPECT_EQ(load("ref")->compute(), ComputeType::kF32);
  EXPECT_EQ(load("ref", "int8")->compute(), ComputeType::kInt8);
}

// `longheads info` prints it; the counters are those of the kernels' rows, layer by layer.
TEST(Engine, ForeseesWhatAPromptMeets) {
  TinyLlamaOptions model = kTiny;
  model.n_layers = 3;
  const ModelFile file(TinyLlama(model));
  for (const char* const spec :
       {"full", "longheads,chunk=16,window=64,begin=64",
        "longheads,chunk=8,window=64,begin=128,reps=kv,select=kv", "self-extend,group=4,window=32",
        "rerope,window=32", "leaky-rerope,window=32", "streaming-llm,start=4,recent=60",
        "lm-infinite,global=8,local=64", "landmark,block=12,top_k=3,train_context=96,token=1",
        "infllm,n_init=16,n_local=64,block=8,top_k=4,exec_block=32",
        "infllm,n_init=16,n_local=64,block=8,top_k=4,exec_block=32,per_head=on",
        "esa,n_init=8,k=32,n_local=48,chunk=8,score=exact", "quest,page=8,budget=64", "moba,chunk=16,top_k=3",
        "moba,chunk=16,top_k=3,full_layers=1", "yarn:factor=4+longheads,chunk=16,window=64,begin=64"}) {
    const auto engine =
        Engine::Load({.model_path = file.path(), .attention = spec, .compute = "f32", .threads = 1});
    ASSERT_TRUE(engine) << spec << ": " << engine.error().message;
    constexpr int64_t kTokens = 500;
    ASSERT_TRUE((*engine)->ExpectText(kTokens));
    Session session = (*engine)->NewSession();
    const std::vector<TokenId> tokens(kTokens, 5);
    ASSERT_TRUE((*engine)->Prefill(session, tokens, Outputs::kLast, {})) << spec;
    const double planned =
        (*engine)->PlanPrefill(kTokens).attention / (4.0 * static_cast<double>(model.head_dim));
    EXPECT_NEAR((*engine)->attention_counts().pairs, planned, 0.05 * planned) << spec;
  }
}

// A generated token's, layer by layer: LM-Infinite's first layer does not look for others, Quest's sees all.
TEST(Engine, ForeseesWhatAGeneratedTokenMeets) {
  TinyLlamaOptions model = kTiny;
  model.n_layers = 3;
  const ModelFile file(TinyLlama(model));
  const auto plan = [&](const std::string& spec) {
    const auto engine = Engine::Load({.model_path = file.path(), .attention = spec, .threads = 1});
    EXPECT_TRUE(engine) << spec;
    return (*engine)->PlanDecode(500);
  };
  const double layer = 4.0 * static_cast<double>(model.head_dim * model.n_heads) * 500;  // of full attention
  EXPECT_EQ(plan("full").attention, 3 * layer);
  EXPECT_EQ(plan("full").choosing, 0);
  const ComputeCost quest = plan("quest,page=10,budget=50,dense_layers=1");
  // Four pages, and on average over its place 5.5 tokens of the newest one.
  EXPECT_EQ(quest.attention, (1 + 2 * 45.5 / 500) * layer);
  // Bounds of 50 pages of twice head_dim numbers, a head: 2 operations each; and what makes its own page's.
  EXPECT_NEAR(quest.choosing, 2 * 2.0 * static_cast<double>(model.n_heads * 50 * 2 * model.head_dim),
              0.05 * quest.choosing);
  const ComputeCost looking =
      plan("lm-infinite,global=8,local=42,limit=42,top_k=10,top_k_from=1,top_k_at=30");
  EXPECT_NEAR(looking.attention, (3 * 0.1 + 2 * 0.02) * layer, 0.01 * layer);
  EXPECT_NEAR(looking.choosing, 2 * 2.0 * static_cast<double>(model.n_heads * 450 * model.head_dim),
              0.05 * looking.choosing);
}

TEST(Engine, SaysWhatAutoPicksAndWhichOptionsWereGiven) {
  const auto explained = [](const std::string& spec, int64_t n) {
    const std::unique_ptr<Engine> engine = Load(spec);
    EXPECT_TRUE(engine->ExpectText(n));
    return engine->ExplainAttention(n);
  };
  const std::string window = std::to_string(kTiny.context_length);
  EXPECT_TRUE(explained("auto", 10)
                  .starts_with("auto: 10 tokens fit the window of " + window +
                               ", and are read with full attention; LongHeads: "));
  EXPECT_TRUE(explained("auto", kTiny.context_length + 1)
                  .starts_with("auto: " + std::to_string(kTiny.context_length + 1) +
                               " tokens are more than the window of " + window));
  EXPECT_TRUE(explained("yarn:factor=2+auto", kTiny.context_length + 1).find(" tokens fit the window of ") !=
              std::string::npos);
  EXPECT_FALSE(explained("longheads", 10).ends_with("]"));
  EXPECT_TRUE(explained("longheads,choose=random,fix=both", 10).ends_with(" [choose=random, fix=both]"));
}

TEST(Engine, TellsWhatATextTakes) {
  const std::unique_ptr<Engine> engine = Load(kLongHeads, "f32");
  const MemoryPlan none = engine->PlanMemory(0);
  EXPECT_EQ(none.weights, engine->file().file_bytes());
  EXPECT_EQ(none.kv, 0u);
  const MemoryPlan plan = engine->PlanMemory(300);
  EXPECT_EQ(plan.kv, 2u * 2 * 2 * 256 * 2 * 16 * 4);  // pages, layers, heads, tokens, K and V, dim, bytes
  EXPECT_GT(plan.state, none.state);
  EXPECT_GT(plan.tables, 0u);
  EXPECT_EQ(plan.total(),
            plan.weights + plan.kv + plan.tables + plan.state + plan.working + plan.large_blocks);
}

TEST(Engine, EncodesPromptsAndSaysWhenThereIsNoTemplate) {
  const std::unique_ptr<Engine> engine = Load("full");
  const Result<std::vector<TokenId>> tokens = engine->EncodePrompt("the <|im_end|>", /*chat=*/false);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(engine->tokenizer().Decode(*tokens, /*special=*/false), "the <|im_end|>");
  const Result<std::vector<TokenId>> chat = engine->EncodePrompt("the", /*chat=*/true);
  ASSERT_FALSE(chat);
  EXPECT_NE(chat.error().message.find("--no-chat"), std::string::npos) << chat.error().message;
  CancelToken cancel;
  cancel.Cancel();
  const Result<std::vector<TokenId>> stopped = engine->EncodePrompt("the", /*chat=*/false, &cancel);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
}

class GenerateTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine_ = Load(kLongHeads);
  Session session_ = engine_->NewSession();
  std::vector<float> hidden_ = *engine_->Prefill(session_, Tokens(90), Outputs::kLast, {});
};

TEST_F(GenerateTest, IsGreedyByDefaultAndAppendsToTheSession) {
  Session stepwise = engine_->Fork(session_);
  const Result<Generated> result = engine_->Generate(session_, hidden_, {.max_tokens = 30});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->reason, StopReason::kLength);
  ASSERT_EQ(result->tokens.size(), 30u);
  EXPECT_EQ(result->text, engine_->tokenizer().Decode(result->tokens, /*special=*/false));
  // The last token has not been read: nobody asked what follows it.
  EXPECT_EQ(session_.size(), 90 + 29);

  std::vector<float> hidden = hidden_;
  for (const TokenId token : result->tokens) {
    EXPECT_EQ(token, ArgMax(engine_->Logits(hidden)));
    Session* const self = &stepwise;
    hidden = *engine_->Decode(std::span(&self, 1), std::span(&token, 1));
  }
}

TEST_F(GenerateTest, RepeatsItselfForOneSeed) {
  const auto generate = [&](uint64_t seed) {
    Session session = engine_->Fork(session_);
    return engine_
        ->Generate(session, hidden_, {.max_tokens = 30, .sampling = {.temperature = 1, .seed = seed}})
        ->tokens;
  };
  EXPECT_EQ(generate(1), generate(1));
  EXPECT_NE(generate(1), generate(2));
}

TEST_F(GenerateTest, StopsForTheCallerAndForACancellation) {
  int seen = 0;
  Session session = engine_->Fork(session_);
  Result<Generated> result = engine_->Generate(
      session, hidden_, {.on_token = [&](TokenId, std::string_view) { return ++seen < 4; }});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->reason, StopReason::kCaller);
  EXPECT_EQ(result->tokens.size(), 4u);

  CancelToken cancel;
  seen = 0;
  result =
      engine_->Generate(session_, hidden_, {.cancel = &cancel, .on_token = [&](TokenId, std::string_view) {
                                              if (++seen == 5) cancel.Cancel();
                                              return true;
                                            }});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->reason, StopReason::kCancelled);
  EXPECT_EQ(result->tokens.size(), 5u);
}

TEST_F(GenerateTest, StopsWhereTheModelEndsItsAnswer) {
  // A hidden state whose likeliest token is the end: the rows of the embedding are the output's too.
  const TokenId end = engine_->tokenizer().vocabulary().eos;
  std::vector<float> hidden =
      TinyLlamaValues(kTiny.seed, "token_embd.weight", 272 * kTiny.embed, kTiny.embed);
  hidden.erase(hidden.begin(), hidden.begin() + end * kTiny.embed);
  hidden.resize(static_cast<std::size_t>(kTiny.embed));
  for (float& value : hidden) value *= 100;
  ASSERT_EQ(ArgMax(engine_->Logits(hidden)), end);
  const Result<Generated> result = engine_->Generate(session_, hidden, {});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->reason, StopReason::kEndOfGeneration);
  EXPECT_TRUE(result->tokens.empty());
  EXPECT_EQ(session_.size(), 90);
}

TEST_F(GenerateTest, RefusesImpossibleSampling) {
  const Result<Generated> result = engine_->Generate(session_, hidden_, {.sampling = {.top_p = 2}});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("--top-p"), std::string::npos);
}

// What follows the text's length is made anew when it is said, and reads as if it had been given from the
// start.
TEST(Engine, MakesAttentionForTheTextThatIsExpected) {
  const ModelFile file(TinyLlama(kTiny));
  const auto load = [&](const std::string& attention) {
    return *Engine::Load({.model_path = file.path(), .attention = attention, .compute = "f32", .threads = 1});
  };
  const auto read = [](Engine& engine, int64_t n) {
    Session session = engine.NewSession();
    return *engine.Prefill(session, Tokens(n), Outputs::kLast, {});
  };
  const int64_t window = load("full")->config().trained_window;
  const auto engine = load("self-extend,group=auto,window=8");
  EXPECT_TRUE(engine->FollowsTextLength());
  EXPECT_EQ(read(*engine, 60), read(*load("self-extend,group=1,window=8"), 60));
  EXPECT_TRUE(*engine->ExpectText(2 * window));
  EXPECT_FALSE(*engine->ExpectText(2 * window));
  const int64_t group = 3 * (2 * window - 8) / (2 * window - 24) + 1;  // the authors' rule
  EXPECT_EQ(read(*engine, 60), read(*load("self-extend,group=" + std::to_string(group) + ",window=8"), 60));
  EXPECT_TRUE(*engine->ExpectText(window));
  EXPECT_EQ(read(*engine, 60), read(*load("self-extend,group=1,window=8"), 60));

  const auto scaled = load("dynamic-ntk:factor=1+full");
  EXPECT_EQ(read(*scaled, 60), read(*load("full"), 60));
  EXPECT_TRUE(*scaled->ExpectText(3 * window));
  EXPECT_EQ(read(*scaled, 60), read(*load("ntk:factor=3+full"), 60));
  EXPECT_NE(read(*scaled, 60), read(*load("full"), 60));

  const auto fixed = load("ntk:factor=3+full");
  EXPECT_FALSE(fixed->FollowsTextLength());
  EXPECT_FALSE(*fixed->ExpectText(3 * window));
}

TEST(Engine, DecodesWithoutAllocating) {
  const ModelFile file(TinyLlama(kTiny));
  const Result<std::unique_ptr<Engine>> engine =
      Engine::Load({.model_path = file.path(), .attention = kLongHeads, .compute = "f32", .threads = 1});
  ASSERT_TRUE(engine);
  Session session = (*engine)->NewSession();
  ASSERT_TRUE((*engine)->Prefill(session, Tokens(512), Outputs::kNone, {}));
  Session* const self = &session;
  const std::vector<TokenId> tokens = Tokens(14, 2);
  std::vector<float> hidden;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const int64_t before = AllocationCount();
    const Status status = (*engine)->Decode(std::span(&self, 1), std::span(tokens).subspan(i, 1), hidden);
    const int64_t count = AllocationCount() - before;
    ASSERT_TRUE(status);
    if (i >= 8) {
      EXPECT_EQ(count, 0) << "token " << i;
    }
  }
}

// Which thread first meets the largest piece of work is chance, and so is whose scratch grows when; but it
// grows a few times, and not with the tokens.
TEST(Engine, DecodesWithoutAllocatingOnSeveralThreads) {
  const ModelFile file(TinyLlama(kTiny));
  const Result<std::unique_ptr<Engine>> engine =
      Engine::Load({.model_path = file.path(), .attention = "full", .compute = "f32", .threads = 3});
  ASSERT_TRUE(engine);
  Session session = (*engine)->NewSession();
  ASSERT_TRUE((*engine)->Prefill(session, Tokens(512), Outputs::kNone, {}));
  Session* const self = &session;
  const std::vector<TokenId> tokens = Tokens(250, 2);
  std::vector<float> hidden;
  const int64_t before = AllocationCount();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_TRUE((*engine)->Decode(std::span(&self, 1), std::span(tokens).subspan(i, 1), hidden));
  }
  EXPECT_LT(AllocationCount() - before, static_cast<int64_t>(tokens.size()) / 2);
}

TEST(EngineMemory, WeightsThatAreStillToBePackedCount) {
  const ModelFile file(TinyLlama({}));
  const auto engine = *Engine::Load({.model_path = file.path(), .compute = "f32", .packed_weights = "on"});
  Session session = engine->NewSession();
  const MemoryPlan plan = engine->PlanMemory(10);
  const uint64_t of_file = engine->file().file_bytes(), packed = plan.weights - of_file;
  ASSERT_GT(packed, 0);
  const uint64_t nearly = of_file + plan.working + plan.text() + packed / 2;
  {
    const PretendedMemory memory(nearly);
    const Status refused = engine->CheckMemory(session, 10);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::kOutOfMemory);
  }
  ASSERT_TRUE(engine->Prefill(session, TinyTokens(10, 256, 1), Outputs::kNone, {}));
  const PretendedMemory memory(nearly);
  const Status accepted = engine->CheckMemory(engine->NewSession(), 10);
  EXPECT_TRUE(accepted) << accepted.error().message;
}

}  // namespace
}  // namespace longheads
