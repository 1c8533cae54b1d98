#include "model/transformer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kv/page_file.h"
#include "tests/support/allocations.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

// Two layers, four query heads on two key/value heads, a window of 4096: small enough to read 2,200 tokens
// several times over.
const TinyLlamaOptions kTiny = {.embed = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 16,
                                .ffn = 48,
                                .context_length = 4096,
                                .vocabulary = false};

// Integer products need weights that have integers.
const TinyLlamaOptions ModelFor(ComputeType compute) {
  TinyLlamaOptions model = kTiny;
  if (TokensInIntegers(compute)) {
    model.ffn = 64;  // whole blocks
    model.weight_type = DType::kQ4_1;
  }
  return model;
}

struct Kind {
  std::string attention;
  ComputeType compute;
  KvType kv_type;
  std::string backend = "auto";
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.backend << ", " << kind.attention << ", compute " << NameOf(kind.compute) << ", KV "
       << NameOf(kind.kv_type);
}

constexpr const char* kEsa = "esa,n_init=4,k=32,n_local=100,chunk=16,score=exact";
constexpr const char* kLongHeads = "longheads,chunk=16,window=64,begin=128";
// Eight heads' worth of choice: chunks that cross pages, one representation per group.
constexpr const char* kOddLongHeads = "longheads,chunk=24,window=120,begin=144,reps=kv,select=kv";

class BitsTest : public testing::TestWithParam<Kind> {
 protected:
  TinyTransformer Make(int threads = 2) const {
    return TinyTransformer({.model = ModelFor(GetParam().compute),
                            .attention = GetParam().attention,
                            .backend = GetParam().backend,
                            .compute = GetParam().compute,
                            .kv_type = GetParam().kv_type,
                            .threads = threads});
  }
  static std::vector<int32_t> Tokens(int64_t n, uint64_t seed = 7) {
    return TinyTokens(n, kTiny.vocab_size, seed);
  }
};

TEST_P(BitsTest, PrefillDoesNotDependOnItsBlocks) {
  TinyTransformer tiny = Make();
  const std::vector<int32_t> tokens = Tokens(2200);
  SequenceState whole = tiny->NewSequence();
  const std::vector<float> hidden = tiny.Prefill(whole, tokens);
  const std::vector<float> next = tiny.Decode(whole, Tokens(20, 8));
  for (const float value : hidden) ASSERT_TRUE(std::isfinite(value));

  // Round the edges of a tile (96), of a page (256) and of a token block (2048), where chunks end too.
  const std::vector<std::vector<int64_t>> splits = {
      {1, 94, 1, 1, 1, 157, 1, 1, 1790, 1, 1, 1, 150},
      {96, 160, 1791, 153},
      {2049, 151},
  };
  for (const std::vector<int64_t>& split : splits) {
    SequenceState sequence = tiny->NewSequence();
    ASSERT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), 2200);
    EXPECT_TRUE(SameBits(tiny.Prefill(sequence, tokens, split), hidden)) << testing::PrintToString(split);
    EXPECT_TRUE(SameBits(tiny.Decode(sequence, Tokens(20, 8)), next)) << testing::PrintToString(split);
  }
}

TEST_P(BitsTest, PrefillTokenByTokenEqualsOneBlock) {
  TinyTransformer tiny = Make();
  const std::vector<int32_t> tokens = Tokens(300);
  SequenceState whole = tiny->NewSequence();
  const std::vector<float> hidden = tiny.Prefill(whole, tokens);
  SequenceState sequence = tiny->NewSequence();
  EXPECT_TRUE(SameBits(tiny.Prefill(sequence, tokens, std::vector<int64_t>(300, 1)), hidden));
  EXPECT_TRUE(SameBits(tiny.Decode(sequence, Tokens(20, 8)), tiny.Decode(whole, Tokens(20, 8))));
}

TEST_P(BitsTest, NothingDependsOnTheNumberOfThreads) {
  std::vector<float> hidden, decoded;
  for (const int threads : {1, 2, 3, 4}) {
    TinyTransformer tiny = Make(threads);
    SequenceState sequence = tiny->NewSequence();
    const std::vector<float> own = tiny.Prefill(sequence, Tokens(400));
    const std::vector<float> own_decoded = tiny.Decode(sequence, Tokens(60, 8));
    if (threads == 1) {
      hidden = own;
      decoded = own_decoded;
    }
    EXPECT_TRUE(SameBits(own, hidden)) << threads << " threads";
    EXPECT_TRUE(SameBits(own_decoded, decoded)) << threads << " threads";
  }
}

TEST_P(BitsTest, ADecodeStepDoesNotDependOnItsBatch) {
  TinyTransformer tiny = Make();
  // Some inside the first chunk, some past the beginning of selection, one about to open a page.
  const std::vector<int64_t> lengths = {0, 5, 127, 255, 400};
  constexpr int64_t kSteps = 40;
  std::vector<SequenceState> sequences;
  std::vector<std::vector<int32_t>> next;
  std::vector<std::vector<float>> alone;
  for (const int64_t n : lengths) {
    const std::vector<int32_t> prompt = Tokens(n, static_cast<uint64_t>(n));
    next.push_back(Tokens(kSteps, static_cast<uint64_t>(1000 + n)));
    SequenceState sequence = tiny->NewSequence();
    tiny.Prefill(sequence, prompt);
    SequenceState fork = sequence.Fork();
    alone.push_back(tiny.Decode(fork, next.back()));
    sequences.push_back(std::move(sequence));
  }
  const std::size_t embed = static_cast<std::size_t>(kTiny.embed);
  std::vector<float> hidden;
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<BatchItem> items;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      items.push_back({.sequence = &sequences[s], .tokens = std::span(next[s]).subspan(step, 1)});
    }
    ASSERT_TRUE(tiny->Forward(items, Phase::kDecode, Outputs::kLast, {}, hidden));
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      ASSERT_TRUE(SameBits(std::span(hidden).subspan(s * embed, embed),
                           std::span(alone[s]).subspan(step * embed, embed)))
          << "step " << step << " of the sequence of " << lengths[s] << " tokens";
    }
  }
}

TEST_P(BitsTest, SeveralPromptsInOneCallEqualEachAlone) {
  TinyTransformer tiny = Make();
  const std::vector<int32_t> first = Tokens(150, 1);
  const std::vector<int32_t> second = Tokens(310, 2);
  SequenceState a = tiny->NewSequence();
  SequenceState b = tiny->NewSequence();
  const BatchItem items[] = {{&a, first}, {&b, second}};
  std::vector<float> hidden;
  ASSERT_TRUE(tiny->Forward(items, Phase::kPrefill, Outputs::kAll, {}, hidden));
  SequenceState c = tiny->NewSequence();
  SequenceState d = tiny->NewSequence();
  std::vector<float> alone = tiny.Prefill(c, first);
  const std::vector<float> rest = tiny.Prefill(d, second);
  alone.insert(alone.end(), rest.begin(), rest.end());
  EXPECT_TRUE(SameBits(hidden, alone));
}

TEST_P(BitsTest, NothingDependsOnWhetherWeightsStayPacked) {
  const std::vector<int32_t> tokens = Tokens(300);
  const auto read = [&](bool keep_packed) {
    TinyTransformer tiny({.model = ModelFor(GetParam().compute),
                          .attention = GetParam().attention,
                          .backend = GetParam().backend,
                          .compute = GetParam().compute,
                          .kv_type = GetParam().kv_type,
                          .keep_packed = keep_packed});
    SequenceState sequence = tiny->NewSequence();
    return tiny.Prefill(sequence, tokens, std::vector<int64_t>{200, 99, 1});
  };
  EXPECT_TRUE(SameBits(read(true), read(false)));
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (const char* const attention : {"full", kLongHeads}) {
    for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16, ComputeType::kInt8}) {
      for (const KvType kv_type : {KvType::kF32, KvType::kBF16, KvType::kQ8})
        kinds.push_back({attention, compute, kv_type});
    }
  }
  kinds.push_back({kOddLongHeads, ComputeType::kF32, KvType::kF32});
  kinds.push_back({kLongHeads, ComputeType::kBF16Int8, KvType::kBF16});
  kinds.push_back({"full", ComputeType::kBF16Int8, KvType::kQ8});
  kinds.push_back({kLongHeads, ComputeType::kF32, KvType::kF32, "ref"});
  kinds.push_back({"full", ComputeType::kBF16, KvType::kBF16, "ref"});
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Every, BitsTest, testing::ValuesIn(Kinds()), [](const auto& test) {
  const Kind& kind = test.param;
  std::string name = kind.backend + "_" +
                     (kind.attention == kOddLongHeads ? "odd_longheads"
                                                      : kind.attention.substr(0, kind.attention.find(','))) +
                     "_compute_" + std::string(NameOf(kind.compute)) + "_kv_" + NameOf(kind.kv_type);
  std::ranges::replace(name, '-', '_');
  return name;
});

// Whoever keeps them packed looks at the file no more.
TEST(Transformer, KeepsWeightsAsTheFirstPromptPackedThem) {
  const std::vector<int32_t> tokens = TinyTokens(40, kTiny.vocab_size, 1);
  for (const bool keep_packed : {true, false}) {
    TinyTransformer tiny({.model = kTiny, .keep_packed = keep_packed});
    // Two layers, of which every matrix has one panel of 192 outputs: [64 + 2 * 32 of q, k, v, 32 of o, 2 *
    // 48 and 32 of the feed-forward layer] x their inputs.
    EXPECT_EQ(tiny->PreparedBytes(), keep_packed ? 4u * 2 * 192 * (3 * 32 + 64 + 2 * 32 + 48) : 0u);
    const auto read = [&] {
      SequenceState sequence = tiny->NewSequence();
      return tiny.Prefill(sequence, tokens);
    };
    const std::vector<float> before = read();
    for (const char* const name :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      tiny.Blank(fmt::format("blk.1.{}.weight", name));
    EXPECT_EQ(SameBits(before, read()), keep_packed);
  }
}

TEST(Transformer, LongHeadsSelectsPastBegin) {
  // So that the equalities above are about LongHeads: the same up to `begin` to rounding, other results past
  // it.
  TinyTransformer full({.model = kTiny});
  TinyTransformer long_heads({.model = kTiny, .attention = kLongHeads});
  const std::vector<int32_t> tokens = TinyTokens(200, kTiny.vocab_size, 7);
  SequenceState a = full->NewSequence();
  SequenceState b = long_heads->NewSequence();
  const std::vector<float> left = full.Prefill(a, tokens);
  const std::vector<float> right = long_heads.Prefill(b, tokens);
  double before = 0;
  double after = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    double& most = i < 128 * static_cast<std::size_t>(kTiny.embed) ? before : after;
    most = std::max(most, std::abs(static_cast<double>(left[i]) - static_cast<double>(right[i])));
  }
  EXPECT_LT(before, 1e-4);
  EXPECT_GT(after, 1e-2);
}

TEST(Transformer, APromptIsOneCallHoweverManyTokenBlocksItTakes) {
  // The last token of a call sees more than the others.
  TinyTransformer tiny(
      {.model = kTiny, .attention = "lm-infinite,global=4,local=64,top_k=32,top_k_from=0,top_k_at=40"});
  const std::size_t embed = static_cast<std::size_t>(kTiny.embed);
  const std::vector<int32_t> tokens = TinyTokens(2100, kTiny.vocab_size, 3);
  SequenceState one = tiny->NewSequence();
  SequenceState two = tiny->NewSequence();
  const std::vector<float> whole = tiny.Prefill(one, tokens);
  const std::vector<float> halves = tiny.Prefill(two, tokens, std::vector<int64_t>{2048, 52});
  EXPECT_TRUE(SameBits(std::span(whole).first(2047 * embed), std::span(halves).first(2047 * embed)));
  EXPECT_FALSE(SameBits(std::span(whole).subspan(2047 * embed, embed),
                        std::span(halves).subspan(2047 * embed, embed)));
}

TEST(Transformer, TokenBlocksAreWholeStepsOfThePolicy) {
  // Steps of 48 count from where a prompt begins, past the first 2048 tokens too.
  TinyTransformer tiny(
      {.model = kTiny, .attention = "infllm,n_init=4,n_local=96,block=16,top_k=2,exec_block=48"});
  const std::vector<int32_t> tokens = TinyTokens(2200, kTiny.vocab_size, 3);
  const auto prefill = [&](const std::vector<int64_t>& blocks) {
    SequenceState sequence = tiny->NewSequence();
    return tiny.Prefill(sequence, tokens, blocks);
  };
  const std::vector<float> whole = prefill({2200});
  EXPECT_TRUE(SameBits(prefill({48 * 20, 48 * 25, 40}), whole));
  EXPECT_FALSE(SameBits(prefill({2048, 152}), whole));
}

TEST(Transformer, TokenBlocksGrowWithTheTextWherePagesLeaveMemory) {
  TinyTransformer tiny({.model = kTiny});
  constexpr int64_t kBlock = Transformer::kTokenBlock;
  EXPECT_EQ(tiny->TokenBlock(1 << 20), kBlock);
  const auto stride = static_cast<uint64_t>(tiny->kv_pool()->geometry().PageStride());
  const Status status =
      tiny->kv_pool()->UseDisk({.ram_bytes = KvPool::kLeastPages * stride,
                                .file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0)});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(tiny->TokenBlock(1 << 20), kBlock);  // more activations would crowd out the pages
  // As in another process that had more.
  tiny->FitBlocksTo({.ram = int64_t{1} << 40, .parts = 4});
  EXPECT_EQ(tiny->TokenBlock(3 * kBlock), kBlock);
  EXPECT_EQ(tiny->TokenBlock(1 << 20), (1 << 20) / 4);
  tiny->FitBlocksTo({.ram = int64_t{1} << 40});
  EXPECT_EQ(tiny->TokenBlock(0), kBlock);
  EXPECT_EQ(tiny->TokenBlock(1 << 20), (1 << 20) / 32);
  EXPECT_EQ(tiny->TokenBlock((1 << 20) + 65000), (1 << 20) / 32);
  tiny->FitBlocksTo({});
  EXPECT_EQ(tiny->TokenBlock(1 << 20), kBlock);
}

TEST(Transformer, WindowsOfAPromptCountFromWhereItBegins) {
  // Windows of 96 tokens, past the first 2048 too; a call of its own begins with a window.
  TinyTransformer tiny({.model = kTiny, .attention = "landmark,block=24,top_k=2,token=5,train_context=168"});
  const std::vector<int32_t> tokens = TinyTokens(2200, kTiny.vocab_size, 3);
  const auto prefill = [&](const std::vector<int64_t>& calls) {
    SequenceState sequence = tiny->NewSequence();
    return tiny.Prefill(sequence, tokens, calls);
  };
  const std::vector<float> whole = prefill({2200});
  EXPECT_TRUE(SameBits(prefill({96 * 20, 96 * 2, 88}), whole));
  EXPECT_FALSE(SameBits(prefill({2048, 152}), whole));
}

TEST(Transformer, GivesTheHiddenStatesThatWereAskedFor) {
  TinyTransformer tiny({.model = kTiny});
  const std::size_t embed = static_cast<std::size_t>(kTiny.embed);
  const std::vector<int32_t> tokens = TinyTokens(2100, kTiny.vocab_size, 3);
  SequenceState all = tiny->NewSequence();
  const std::vector<float> every = tiny.Prefill(all, tokens);
  ASSERT_EQ(every.size(), 2100 * embed);
  SequenceState sequence = tiny->NewSequence();
  const BatchItem item{&sequence, tokens};
  std::vector<float> hidden = {1, 2, 3};
  ASSERT_TRUE(tiny->Forward(std::span(&item, 1), Phase::kPrefill, Outputs::kLast, {}, hidden));
  EXPECT_TRUE(SameBits(hidden, std::span(every).last(embed)));
  EXPECT_EQ(sequence.size(), 2100);
  const BatchItem one{&sequence, std::span(tokens).first(1)};
  ASSERT_TRUE(tiny->Forward(std::span(&one, 1), Phase::kDecode, Outputs::kNone, {}, hidden));
  EXPECT_TRUE(hidden.empty());
  EXPECT_EQ(sequence.size(), 2101);
}

TEST(Transformer, ProgressRisesToOne) {
  TinyTransformer tiny({.model = kTiny});
  const std::vector<int32_t> first = TinyTokens(2100, kTiny.vocab_size, 3);
  const std::vector<int32_t> second = TinyTokens(50, kTiny.vocab_size, 4);
  SequenceState a = tiny->NewSequence();
  SequenceState b = tiny->NewSequence();
  const BatchItem items[] = {{&a, first}, {&b, second}};
  std::vector<double> seen;
  std::vector<float> hidden;
  const ForwardControl control{.progress = [&](double share) { seen.push_back(share); }};
  ASSERT_TRUE(tiny->Forward(items, Phase::kPrefill, Outputs::kNone, control, hidden));
  ASSERT_EQ(seen.size(), 6u);  // three token blocks, two layers
  for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i], seen[i - 1]);
  EXPECT_GT(seen.front(), 0);
  EXPECT_DOUBLE_EQ(seen.back(), 1);
}

TEST(Transformer, StopsAtTheNextLayerWhenCancelled) {
  TinyTransformer tiny({.model = kTiny, .attention = kLongHeads});
  const std::vector<int32_t> tokens = TinyTokens(2100, kTiny.vocab_size, 3);
  SequenceState sequence = tiny->NewSequence();
  const BatchItem item{&sequence, tokens};
  CancelToken cancel;
  int layers = 0;
  const ForwardControl control{.cancel = &cancel, .progress = [&](double) {
                                 if (++layers == 1) cancel.Cancel();
                               }};
  std::vector<float> hidden;
  const Status status = tiny->Forward(std::span(&item, 1), Phase::kPrefill, Outputs::kLast, control, hidden);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(layers, 1);
  EXPECT_EQ(sequence.size(), 0);
}

TEST(Transformer, RefusesTokensOutsideTheVocabularyBeforeAnyWork) {
  TinyTransformer tiny({.model = kTiny});
  SequenceState sequence = tiny->NewSequence();
  std::vector<float> hidden;
  for (const int32_t wrong :
       {-1, 272, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const int32_t tokens[] = {3, wrong};
    const BatchItem item{&sequence, tokens};
    const Status status = tiny->Forward(std::span(&item, 1), Phase::kPrefill, Outputs::kLast, {}, hidden);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(status.error().message.find(std::to_string(wrong)), std::string::npos);
    const BatchItem one{&sequence, std::span(tokens).last(1)};
    EXPECT_FALSE(tiny->Forward(std::span(&one, 1), Phase::kDecode, Outputs::kLast, {}, hidden));
    EXPECT_EQ(sequence.size(), 0);
  }
}

// With one layer, keys and values do not depend on what was attended to: under exact dynamic NTK a token that
// is decoded sees what it would have seen with the frequencies of the whole text from the start; under stale
// it does not; and a prompt that is read at once is the same under all.
TEST(Transformer, FrequenciesThatFollowTheLengthAreThoseOfTheCall) {
  TinyLlamaOptions model = kTiny;
  model.n_layers = 1;
  model.context_length = 128;
  constexpr int64_t kAll = 400, kDecoded = 60;
  const std::vector<int32_t> tokens = TinyTokens(kAll, model.vocab_size, 9);
  const std::span<const int32_t> prompt = std::span(tokens).first(kAll - kDecoded);
  const auto last_row = [&](const std::vector<float>& hidden) {
    return std::vector<float>(hidden.end() - model.embed, hidden.end());
  };
  const auto difference = [](const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return largest;
  };
  // alpha n / L - (alpha - 1) with alpha = 2
  TinyTransformer whole({.model = model, .attention = "ntk:factor=5.25+full"});
  SequenceState sequence = whole->NewSequence();
  const std::vector<float> expected = last_row(whole.Prefill(sequence, tokens));
  const auto decoded = [&](const std::string& attention) {
    TinyTransformer tiny({.model = model, .attention = attention});
    SequenceState own = tiny->NewSequence();
    tiny.Prefill(own, prompt);
    return last_row(tiny.Decode(own, std::span(tokens).subspan(prompt.size())));
  };
  EXPECT_LT(difference(decoded("dynamic-ntk:mode=exact+full"), expected), 1e-4);
  EXPECT_GT(difference(decoded("dynamic-ntk:mode=stale+full"), expected), 1e-3);
  for (const char* const mode : {"exact", "stale"}) {
    TinyTransformer tiny({.model = model, .attention = std::string("dynamic-ntk:mode=") + mode + "+full"});
    SequenceState at_once = tiny->NewSequence();
    EXPECT_LT(difference(last_row(tiny.Prefill(at_once, tokens)), expected), 1e-4) << mode;
    // A batch of unequal lengths: each sequence has frequencies of its own.
    SequenceState one = tiny->NewSequence(), other = tiny->NewSequence();
    tiny.Prefill(one, std::span(tokens).first(200));
    tiny.Prefill(other, std::span(tokens).first(300));
    SequenceState one_alone = one.Fork(), other_alone = other.Fork();
    const BatchItem batch[] = {{&one, std::span(tokens).subspan(200, 1)},
                               {&other, std::span(tokens).subspan(300, 1)}};
    std::vector<float> together;
    ASSERT_TRUE(tiny->Forward(batch, Phase::kDecode, Outputs::kLast, {}, together));
    std::vector<float> apart = tiny.Decode(one_alone, std::span(tokens).subspan(200, 1));
    const std::vector<float> second = tiny.Decode(other_alone, std::span(tokens).subspan(300, 1));
    apart.insert(apart.end(), second.begin(), second.end());
    EXPECT_TRUE(SameBits(together, apart)) << mode;
  }
}

TEST(Transformer, ReadsAsBfloat16DoesAndGeneratesAsIntegersDo) {
  const auto make = [](ComputeType compute) {
    return TinyTransformer(
        {.model = ModelFor(ComputeType::kInt8), .compute = compute, .kv_type = KvType::kBF16});
  };
  TinyTransformer both = make(ComputeType::kBF16Int8);
  const std::vector<int32_t> tokens = TinyTokens(50, kTiny.vocab_size, 3);
  const auto read = [&](TinyTransformer& tiny) {
    SequenceState sequence = tiny->NewSequence();
    return tiny.Prefill(sequence, tokens);
  };
  const auto generate = [&](TinyTransformer& tiny) {
    SequenceState sequence = tiny->NewSequence();
    return tiny.Decode(sequence, tokens);
  };
  TinyTransformer floats = make(ComputeType::kBF16), integers = make(ComputeType::kInt8);
  EXPECT_TRUE(SameBits(read(both), read(floats)));
  EXPECT_FALSE(SameBits(read(both), read(integers)));
  EXPECT_TRUE(SameBits(generate(both), generate(integers)));
  EXPECT_FALSE(SameBits(generate(both), generate(floats)));
}

TEST(Transformer, NoRowsHaveNoLogits) {
  for (const ComputeType compute :
       {ComputeType::kF32, ComputeType::kBF16, ComputeType::kInt8, ComputeType::kBF16Int8}) {
    TinyTransformer tiny({.model = ModelFor(compute), .compute = compute});
    EXPECT_TRUE(tiny.Logits({}).empty());
  }
}

TEST(Transformer, DecodesWithoutAllocatingInsideAPageAndChunk) {
  for (const char* const attention :
       {"full", kEsa, kLongHeads, kOddLongHeads, "lm-infinite,local=64,top_k=8,top_k_from=0",
        "moba,chunk=24,top_k=4,decode=gated", "quest,budget=64,dense_layers=1",
        "quest,budget=64,dense_layers=0,rule=evaluation", "self-extend,group=4,window=64", "rerope,window=64",
        "leaky-rerope,window=64", "streaming-llm,recent=64",
        "infllm,n_init=16,n_local=64,block=16,top_k=1,max_cached_block=1",
        "landmark,block=24,top_k=4,token=5"}) {
    for (const auto& [kv_type, compute] :
         {std::pair(KvType::kF32, ComputeType::kF32), std::pair(KvType::kBF16, ComputeType::kF32),
          std::pair(KvType::kBF16, ComputeType::kInt8), std::pair(KvType::kBF16, ComputeType::kBF16Int8),
          std::pair(KvType::kQ8, ComputeType::kF32)}) {
      // One thread: with more, which of them first meets which work is chance, and so is whose scratch grows.
      TinyTransformer tiny({.model = ModelFor(compute),
                            .attention = attention,
                            .compute = compute,
                            .kv_type = kv_type,
                            .threads = 1});
      SequenceState sequence = tiny->NewSequence();
      tiny.Prefill(sequence, TinyTokens(1536, kTiny.vocab_size, 3));  // a multiple of 256, 16 and 24
      const std::vector<int32_t> tokens = TinyTokens(14, kTiny.vocab_size, 4);
      std::vector<float> hidden;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const BatchItem item{&sequence, std::span(tokens).subspan(i, 1)};
        const int64_t before = AllocationCount();
        const Status status = tiny->Forward(std::span(&item, 1), Phase::kDecode, Outputs::kLast, {}, hidden);
        const int64_t count = AllocationCount() - before;
        ASSERT_TRUE(status);
        if (i >= 8) {  // before, scratch grows with the chunks that cross pages and the blocks that come
          EXPECT_EQ(count, 0) << attention << ", token " << i;
        }
      }
    }
  }
}

TEST(Transformer, SaysWhatATokenReadsBehindItsAttention) {
  // Of the last layer, where nobody waited: its weights in float32, but those of queries, keys and values.
  TinyTransformer tiny({.model = kTiny, .attention = kLongHeads});
  const auto stride = static_cast<uint64_t>(tiny->kv_pool()->geometry().PageStride());
  ASSERT_TRUE(
      tiny->kv_pool()->UseDisk({.ram_bytes = 64 * stride,
                                .most_pinned = 8,
                                .file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0)}));
  SequenceState sequence = tiny->NewSequence();
  const std::vector<int32_t> tokens = TinyTokens(20, kTiny.vocab_size, 3);
  tiny.Prefill(sequence, tokens);
  SoonRead& soon = tiny->kv_pool()->while_waiting();
  EXPECT_TRUE(soon.Take().empty());
  std::vector<float> hidden;
  const BatchItem item{&sequence, std::span(tokens).first(1)};
  ASSERT_TRUE(tiny->Forward(std::span(&item, 1), Phase::kDecode, Outputs::kLast, {}, hidden));
  std::size_t n_bytes = 0;
  for (auto some = soon.Take(); !some.empty(); some = soon.Take()) n_bytes += some.size();
  const int64_t of_heads = kTiny.n_heads * kTiny.head_dim;
  EXPECT_EQ(n_bytes, sizeof(float) * static_cast<std::size_t>(kTiny.embed * (of_heads + 3 * kTiny.ffn)));
}

TEST(Transformer, DecodesWithoutAllocatingWherePagesAreOnDisk) {
  for (const char* const io : {"threads", "auto"}) {
    TinyTransformer tiny({.model = kTiny, .attention = kLongHeads, .threads = 1});
    const auto stride = static_cast<uint64_t>(tiny->kv_pool()->geometry().PageStride());
    const Status on_disk =
        tiny->kv_pool()->UseDisk({.ram_bytes = 64 * stride,
                                  .most_pinned = 8,
                                  .file = *TemporaryPageFile::Create(testing::TempDir(), stride, 0),
                                  .io = io});
    ASSERT_TRUE(on_disk) << on_disk.error().message;
    SequenceState sequence = tiny->NewSequence();
    constexpr int64_t kPages = 40;  // 160 of all layers and heads
    tiny.Prefill(sequence, TinyTokens(kPages * kPageTokens, kTiny.vocab_size, 3));
    const std::vector<int32_t> tokens = TinyTokens(46, kTiny.vocab_size, 4);
    std::vector<float> hidden;
    uint64_t read_before = 0;
    int64_t count = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const BatchItem item{&sequence, std::span(tokens).subspan(i, 1)};
      const int64_t before = AllocationCount();
      ASSERT_TRUE(tiny->Forward(std::span(&item, 1), Phase::kDecode, Outputs::kLast, {}, hidden));
      if (i <= 32) {  // 33 to 47 are inside a chunk
        read_before = tiny->kv_pool()->traffic().bytes_read;
      } else {
        count += AllocationCount() - before;
      }
    }
    EXPECT_LE(count, 8) << io << ": more transfers than ever may have been under way, and no more than that";
    EXPECT_GT(tiny->kv_pool()->traffic().bytes_read, read_before) << io;
  }
}

}  // namespace
}  // namespace longheads
