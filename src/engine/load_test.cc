// Loading: files that are damaged, incomplete or not for us, and options that cannot be. Every refusal names
// the culprit.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/memory.h"
#include "engine/engine.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"

namespace longheads {
namespace {

using Bytes = std::vector<std::byte>;

const TinyLlamaOptions kTiny = {.tied = false, .attention_biases = true};

Result<std::unique_ptr<Engine>> Load(const Bytes& bytes, EngineOptions options = {.attention = "full"}) {
  const ModelFile file(bytes);
  options.model_path = file.path();
  options.threads = 1;
  return Engine::Load(options);  // the mapping outlives the name
}

void ExpectRefused(const Result<std::unique_ptr<Engine>>& engine, std::string_view culprit) {
  ASSERT_FALSE(engine) << "accepted; expected a refusal that names " << culprit;
  EXPECT_NE(engine.error().message.find(culprit), std::string::npos) << engine.error().message;
}

void Write(Bytes& bytes, std::size_t at, auto value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

// The value of a key of 4 bytes, which follows the 4 bytes of its type.
Bytes WithValue(std::string_view key, auto value) {
  Bytes bytes = TinyLlama(kTiny);
  Write(bytes, AfterName(bytes, key).value() + 4, value);
  return bytes;
}

TEST(Load, TakesTheTinyModel) {
  const Result<std::unique_ptr<Engine>> engine = Load(TinyLlama(kTiny));
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->config().vocab_size, 272);
  EXPECT_EQ((*engine)->config().n_kv_heads, 2);
}

TEST(Load, KeepsWeightsPackedWhereItIsSaid) {
  const auto kept = [](const char* packed_weights, const char* compute, uint64_t memory) {
    const PretendedMemory pretended(memory);
    return Load(TinyLlama(kTiny), {.attention = "full", .compute = compute, .packed_weights = packed_weights})
        .map([](const auto& loaded) { return loaded->PlanMemory(1).weights; });
  };
  constexpr uint64_t kMuch = 1 << 30;
  const uint64_t none = kept("off", "f32", kMuch).value();
  const uint64_t bytes = kept("on", "f32", kMuch).value() - none;
  EXPECT_GT(bytes, uint64_t{1} << 16);
  EXPECT_EQ(kept("auto", "f32", kMuch).value(), none);  // bfloat16's alone are kept unasked
  EXPECT_EQ(kept("on", "f32", bytes).value(), none + bytes);
  const auto refused = kept("on", "f32", bytes - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("--packed-weights off"), std::string::npos);
  ExpectRefused(Load(TinyLlama(kTiny), {.packed_weights = "yes"}), "--packed-weights is 'yes'");

  // Where the processor multiplies them.
  const bool native = ChooseKernels("auto").value().gemm.table->native_bf16;
  EXPECT_EQ(kept("on", "bf16", kMuch).value(), none + (native ? bytes / 2 : bytes));
  EXPECT_EQ(kept("auto", "bf16", 2 * bytes).value(), none + (native ? bytes / 2 : 0));
  EXPECT_EQ(kept("auto", "bf16", 2 * bytes - 1).value(), none);
}

TEST(Load, NamesEachTensorThatIsMissing) {
  const Bytes whole = TinyLlama(kTiny);
  const Result<GgufFile> file = GgufFile::Parse(whole, "tiny");
  ASSERT_TRUE(file);
  for (const std::string& name : file->tensor_names()) {
    Bytes bytes = whole;
    Write(bytes, AfterName(bytes, name).value() - 1, '!');  // under this name nobody asks for it
    const Result<std::unique_ptr<Engine>> engine = Load(bytes);
    if (name == "output.weight" || name.ends_with(".bias")) {
      EXPECT_TRUE(engine) << name << ": " << engine.error().message;  // tied embeddings, no biases
    } else {
      ExpectRefused(engine, name + " is missing");
    }
  }
}

TEST(Load, NamesEachTensorOfTheWrongShape) {
  const Bytes whole = TinyLlama(kTiny);
  const Result<GgufFile> file = GgufFile::Parse(whole, "tiny");
  ASSERT_TRUE(file);
  for (const std::string& name : file->tensor_names()) {
    Bytes bytes = whole;
    const std::size_t at = AfterName(bytes, name).value() + 4;  // the innermost dimension
    uint64_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    Write(bytes, at, size / 2);
    ExpectRefused(Load(bytes), "the tensor " + name + " is ");
  }
}

TEST(Load, SaysWhenTheVocabularyIsLargerThanTheEmbedding) {
  TinyLlamaOptions options = kTiny;
  options.tied = true;
  Bytes bytes = TinyLlama(options);
  Write(bytes, AfterName(bytes, "token_embd.weight").value() + 4 + 8, uint64_t{136});
  ExpectRefused(Load(bytes), "the vocabulary has 272 tokens, but the embedding only 136 rows");
}

TEST(Load, SaysWhenThereIsNoVocabulary) {
  TinyLlamaOptions options = kTiny;
  options.vocabulary = false;
  ExpectRefused(Load(TinyLlama(options)), "tokenizer.ggml");
}

TEST(Load, RefusesLayersWithASlidingWindow) {
  const auto with_window = [](uint32_t tokens) {
    return Load(TinyLlamaBuilder(kTiny).Set("llama.attention.sliding_window", tokens).Build());
  };
  const Result<std::unique_ptr<Engine>> engine = with_window(128);
  ExpectRefused(engine, "see the last 128 tokens alone");
  EXPECT_EQ(engine.error().kind, ErrorKind::kUnsupported);
  EXPECT_TRUE(with_window(0));
  EXPECT_TRUE(with_window(static_cast<uint32_t>(kTiny.context_length)));  // nothing slides
}

TEST(Load, TakesNoExpertsForNone) {
  const auto with_experts = [](uint32_t n) {
    return Load(TinyLlamaBuilder(kTiny).Set("llama.expert_count", n).Build());
  };
  EXPECT_TRUE(with_experts(0));
  EXPECT_TRUE(with_experts(1));
  ExpectRefused(with_experts(8), "mixtures of experts");
}

TEST(Load, RefusesModelsWhoseTokensSeeThoseBehindThem) {
  const auto with_causal = [](bool causal) {
    return Load(TinyLlamaBuilder(kTiny).Set("llama.attention.causal", causal).Build());
  };
  EXPECT_TRUE(with_causal(true));
  ExpectRefused(with_causal(false), "see those behind them too");
}

TEST(Load, EndsNoPromptWithTheEndOfAText) {
  const auto engine = Load(TinyLlamaBuilder(kTiny).Set("tokenizer.ggml.add_eos_token", true).Build());
  ASSERT_TRUE(engine) << engine.error().message;
  const auto prompt = (*engine)->EncodePrompt("the", /*chat=*/false);
  const auto whole = (*engine)->tokenizer().Encode("the", {.add_special = true});
  ASSERT_TRUE(prompt && whole);
  EXPECT_EQ(prompt->size() + 1, whole->size());
  EXPECT_TRUE(std::equal(prompt->begin(), prompt->end(), whole->begin()));
}

TEST(Load, RefusesOtherArchitecturesByName) {
  Bytes bytes = TinyLlama(kTiny);
  const std::size_t at = AfterName(bytes, "general.architecture").value() + 4 + 8;
  std::memcpy(bytes.data() + at, "mamba", 5);
  const Result<std::unique_ptr<Engine>> engine = Load(bytes);
  ExpectRefused(engine, "the architecture 'mamba'");
  EXPECT_EQ(engine.error().kind, ErrorKind::kUnsupported);
}

TEST(Load, RefusesNumbersThatContradictEachOther) {
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(Load(WithValue("llama.attention.head_count", uint32_t{0})),
                "llama.attention.head_count is 0");
  ExpectRefused(Load(WithValue("llama.attention.head_count", uint32_t{3})), "3 query heads");
  ExpectRefused(Load(WithValue("llama.attention.head_count", uint32_t{2})), "heads of 32");
  ExpectRefused(Load(WithValue("llama.attention.head_count", uint32_t{1} << 23)), "heads of 0");
  ExpectRefused(Load(WithValue("llama.attention.head_count_kv", uint32_t{3})), "3 key/value heads");
  ExpectRefused(Load(WithValue("llama.attention.head_count_kv", uint32_t{1})), "attn_k.weight");
  ExpectRefused(Load(WithValue("llama.embedding_length", uint32_t{0})), "llama.embedding_length is 0");
  ExpectRefused(Load(WithValue("llama.embedding_length", uint32_t{0xffffffff})), "llama.embedding_length");
  ExpectRefused(Load(WithValue("llama.block_count", uint32_t{3})), "blk.2.attn_norm.weight is missing");
  ExpectRefused(Load(WithValue("llama.block_count", uint32_t{1} << 18)), "blk.2.attn_norm.weight is missing");
  ExpectRefused(Load(WithValue("llama.block_count", uint32_t{1} << 22)), "heads of 16 are more than");
  ExpectRefused(Load(WithValue("llama.feed_forward_length", uint32_t{97})), "ffn_gate.weight");
  ExpectRefused(Load(WithValue("llama.context_length", uint32_t{0})), "llama.context_length is 0");
  ExpectRefused(Load(WithValue("llama.rope.dimension_count", uint32_t{8})), "rotary 8");
  for (const float base : {0.0f, -1.0f, kNan}) {
    EXPECT_FALSE(Load(WithValue("llama.rope.freq_base", base))) << base;
  }
  for (const float epsilon : {-1.0f, 1.0f, kNan}) {
    ExpectRefused(Load(WithValue("llama.attention.layer_norm_rms_epsilon", epsilon)), "epsilon");
  }
}

TEST(Load, RefusesEveryTruncation) {
  const Bytes whole = TinyLlama(kTiny);
  for (std::size_t n = 0; n < whole.size(); n += 1 + whole.size() / 150) {
    const Result<std::unique_ptr<Engine>> engine =
        Load(Bytes(whole.begin(), whole.begin() + static_cast<long>(n)));
    ASSERT_FALSE(engine) << n << " bytes of " << whole.size();
    EXPECT_NE(engine.error().message.find(".gguf"), std::string::npos) << engine.error().message;
  }
}

TEST(Load, EitherRefusesFlippedBytesOrRunsOnThem) {
  const Bytes whole = TinyLlama(kTiny);
  std::mt19937 random(1);
  // Names, shapes, metadata and vocabulary end before the last tensor's entry; now and then a weight.
  const std::size_t header = AfterName(whole, "output.weight").value() + 32;
  int loaded = 0;
  for (int i = 0; i < 300; ++i) {
    Bytes bytes = whole;
    const std::size_t at = random() % (i % 10 == 0 ? whole.size() : header);
    bytes[at] ^= static_cast<std::byte>(1u << random() % 8);
    const Result<std::unique_ptr<Engine>> engine = Load(bytes);
    if (!engine) {
      EXPECT_FALSE(engine.error().message.empty());
      continue;
    }
    ++loaded;
    Session session = (*engine)->NewSession();
    const TokenId tokens[] = {1, 2, 3};
    Result<std::vector<float>> hidden = (*engine)->Prefill(session, tokens, Outputs::kLast, {});
    ASSERT_TRUE(hidden) << hidden.error().message;
    const auto generated =
        (*engine)->Generate(session, *hidden, {.max_tokens = 2, .sampling = {.temperature = 1}});
    // A flipped weight may be no number any more, and then no logit is: it says so.
    if (!generated) {
      EXPECT_NE(generated.error().message.find("no number for any token"), std::string::npos);
    }
  }
  EXPECT_GT(loaded, 30);
  EXPECT_LT(loaded, 290);
}

TEST(Load, NamesFilesThatAreNone) {
  const std::string missing = testing::TempDir() + "longheads_no_such_file.gguf";
  ExpectRefused(Engine::Load({.model_path = missing}), missing);
  ExpectRefused(Engine::Load({.model_path = testing::TempDir()}), testing::TempDir());
  ExpectRefused(Engine::Load({.model_path = ""}), "");
  ExpectRefused(Load({}), ".gguf");
}

TEST(Load, NamesOptionsThatCannotBe) {
  const Bytes bytes = TinyLlama(kTiny);
  ExpectRefused(Load(bytes, {.attention = "full", .compute = "f64"}), "f64");
  ExpectRefused(Load(bytes, {.attention = "full", .kv_type = "q4"}), "q4");
  ExpectRefused(Load(bytes, {.attention = "full", .backend = "sse9"}), "sse9");
  ExpectRefused(Load(bytes, {.attention = "longhead"}), "longheads");
  ExpectRefused(Load(bytes, {.attention = "longheads,chunk=16,window=40,begin=64"}), "window=40");
  const ModelFile file(bytes);
  for (const int threads : {-1, 1025}) {
    ExpectRefused(Engine::Load({.model_path = file.path(), .attention = "full", .threads = threads}),
                  "--threads");
  }
}

}  // namespace
}  // namespace longheads
