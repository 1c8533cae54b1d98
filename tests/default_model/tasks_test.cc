// The tasks that make their texts themselves, or take any text, on real weights: one tiny sample of each, and
// what must be true of it.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/esa_compression.h"
#include "formats/input_file.h"
#include "tests/default_model/default_model.h"
#include "tests/default_model/task_on_default_model.h"
#include "tests/support/cache_folder.h"

namespace longheads {
namespace {

const std::string kTexts = LONGHEADS_SOURCE_DIR "/tests/fixtures/texts";
const std::string kHaystack = kTexts + "/harbour.txt";

double Value(const TaskRecord& record, const std::string& name) {
  return record.measured.values.at(name).get<double>();
}

TEST(Tasks, EveryPapersPassKeyInTheWindowIsFound) {
  for (const std::string paper :
       {"longheads", "landmark", "yarn", "lm-infinite", "self-extend", "infinitebench"}) {
    const auto records =
        RunOnDefaultModel({.kind = "passkey-papers",
                           .options = {{"paper", paper}, {"lengths", "512"}, {"repeats", "1"}},
                           .form = "plain"});
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].measured.score, 1) << paper << ": " << records[0].measured.answer;
  }
}

// README says by how much over longer texts; of these 1,100 tokens chance alone moves int8's by half a
// percent.
TEST(Tasks, PerplexityHardlyFeelsHowWeightsAreMultiplied) {
  const auto nll = [](const std::string& compute, const std::string& attention) {
    const auto records = RunOnDefaultModel(
        {.kind = "ppl-windows",
         .options = {{"documents", kTexts}, {"mode", "stream"}, {"lengths", "2048"}, {"stride", "2048"}},
         .attention = {attention},
         .compute = compute});
    double sum = 0, scored = 0;
    for (const TaskRecord& record : records) {
      sum += record.measured.score * Value(record, "scored");
      scored += Value(record, "scored");
    }
    EXPECT_GT(scored, 1000);
    return sum / scored;
  };
  for (const std::string attention : {"full", "longheads,chunk=32,window=256,begin=256"}) {
    const double f32 = nll("f32", attention);
    EXPECT_NEAR(nll("bf16", attention), f32, 0.002) << attention;
    EXPECT_NEAR(nll("int8", attention), f32, 0.01) << attention;
  }
}

TEST(Tasks, PerplexityOfADocumentIsThatOfItsTokensHoweverTheyAreRead) {
  // Every document fits into one window of 512, and is read in two calls as a stream.
  const auto sliding = RunOnDefaultModel(
      {.kind = "ppl-windows",
       .options = {{"documents", kTexts}, {"tokens", "300"}, {"lengths", "512,64"}, {"stride", "32"}}});
  const auto stream = RunOnDefaultModel(
      {.kind = "ppl-windows",
       .options = {{"documents", kTexts}, {"mode", "stream"}, {"lengths", "300"}, {"stride", "256"}}});
  ASSERT_EQ(sliding.size(), 4U);
  ASSERT_EQ(stream.size(), 2U);
  for (std::size_t document = 0; document < 2; ++document) {
    const TaskRecord &whole = sliding[2 * document], &windows = sliding[2 * document + 1];
    const TaskRecord& read_once = stream[document];
    EXPECT_EQ(Value(whole, "windows"), 1);
    EXPECT_EQ(Value(windows, "windows"), 1 + std::ceil((windows.measured.tokens - 64) / 32.0));
    for (const TaskRecord* record : {&whole, &windows, &read_once}) {
      EXPECT_EQ(Value(*record, "scored"), record->measured.tokens - 1) << record->sample.id;  // no BOS
      EXPECT_GT(Value(*record, "ppl"), 5) << record->sample.id;
      EXPECT_LT(Value(*record, "ppl"), 100) << record->sample.id;
    }
    // One call or two: logits within 1e-4 (longheads_test.cc) give log-likelihoods within twice that.
    EXPECT_NEAR(read_once.measured.score, whole.measured.score, 2e-4);
    // Who sees 64 tokens at most predicts worse.
    EXPECT_GT(windows.measured.score, whole.measured.score + 0.05);
  }
}

TEST(Tasks, DivergenceFromDenseAttentionIsOfWhatAMethodDoesNotSee) {
  const auto records = RunOnDefaultModel(
      {.kind = "kld",
       .options = {{"haystack", kHaystack}, {"lengths", "256"}, {"samples", "1"}, {"score", "32"}},
       .attention = {"full", "longheads", "streaming-llm,recent=64"}});
  ASSERT_EQ(records.size(), 3U);
  const TaskRecord &full = records[0], &longheads = records[1], &streaming = records[2];
  EXPECT_EQ(full.measured.score, 0);
  EXPECT_EQ(Value(full, "same_top"), 1);
  EXPECT_EQ(Value(full, "nll"), Value(full, "nll_against"));
  // Before `begin` LongHeads' logits are within 1e-4 of full attention's (longheads_test.cc), and logits
  // within e give a divergence of e^2 / 2 at most (Hoeffding's lemma).
  EXPECT_LE(Value(longheads, "kl_max"), 5e-9);
  EXPECT_GT(streaming.measured.score, 0.01);
  EXPECT_GE(Value(streaming, "kl_max"), streaming.measured.score);
  EXPECT_LT(Value(streaming, "kl_max"), 10);
  EXPECT_EQ(Value(streaming, "nll_against"), Value(full, "nll"));
}

TEST(Tasks, SelectionCountsWhatHeadsSee) {
  const std::string spec = "longheads,chunk=64,window=512,begin=window";
  const auto records = RunOnDefaultModel({.kind = "selection",
                                          .options = {{"lengths", "300,700"}, {"samples", "1"}},
                                          .attention = {spec, spec + ",first=off"},
                                          .form = "plain"});
  ASSERT_EQ(records.size(), 4U);
  for (const TaskRecord& record : records) {
    const double n_tokens = static_cast<double>(record.measured.tokens);
    EXPECT_EQ(Value(record, "blocks"), std::ceil(n_tokens / 64));
    EXPECT_EQ(Value(record, "accuracy"), 1) << record.measured.answer;
  }
  // Inside the window every head sees every block, and none is chosen.
  EXPECT_EQ(records[0].measured.score, 1);
  EXPECT_EQ(Value(records[0], "gini"), 0);
  EXPECT_FALSE(records[0].measured.values.contains("rank"));
  EXPECT_FALSE(records[0].measured.values.contains("top5"));
  // Behind it a head sees eight of eleven, and not the same ones as others do; the key's is among the first.
  const TaskRecord &chosen = records[1], &without_first = records[3];
  EXPECT_EQ(chosen.measured.score, 1);
  EXPECT_GT(Value(chosen, "gini"), 0.1);
  EXPECT_LT(Value(chosen, "gini"), 0.6);
  EXPECT_EQ(Value(chosen, "top5"), 1);
  EXPECT_EQ(Value(chosen, "top5_by_count"), 1);
  EXPECT_EQ(Value(without_first, "blocks"), 11);
  EXPECT_DOUBLE_EQ(without_first.measured.score, 10.0 / 11);
}

TEST(Tasks, SelectionOfASummaryHasNoKey) {
  const auto records = RunOnDefaultModel({.kind = "selection",
                                          .options = {{"text", "summary"},
                                                      {"haystack", kHaystack},
                                                      {"lengths", "399,400,401"},
                                                      {"samples", "1"},
                                                      {"decode", "8"}},
                                          .attention = {"longheads,chunk=64,window=256,begin=window"}});
  ASSERT_EQ(records.size(), 3U);
  for (const TaskRecord& record : records) {
    EXPECT_EQ(record.measured.generated, 8);
    EXPECT_LE(record.measured.tokens, record.sample.tokens);
    EXPECT_GE(record.measured.tokens, record.sample.tokens - 4);  // the text is cut inside a word
    EXPECT_EQ(record.measured.score, 1);
    EXPECT_GT(Value(record, "gini"), 0.1);
    EXPECT_LT(Value(record, "gini"), 1);
    EXPECT_FALSE(record.measured.values.contains("top1"));
    EXPECT_FALSE(record.measured.values.contains("accuracy"));
  }
}

// ESA sees its first 128 and newest 4096 tokens in any case, and chooses once for each 512: the first that
// have something to choose from begin at 4608.
TEST(Tasks, EsaRecallIsOfTheCompressionThatWasFitted) {
  const std::string model = DefaultModelPath();  // before the cache folder is another
  const CacheFolder cache;
  const Result<std::string> text = ReadUtf8File(kHaystack);
  ASSERT_TRUE(text) << text.error().message;
  const Result<EsaFitReport> fitted =
      FitEsaCompression({.engine = {.model_path = model, .compute = "f32"}, .text = *text, .dim = 32});
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_TRUE(fitted->path.starts_with(cache.path().string())) << fitted->path;

  const auto records = RunOnDefaultModel(
      {.kind = "esa-recall",
       .options = {{"haystack", kHaystack}, {"from", "4608"}, {"to", "4640"}, {"choose", "50"}},
       .attention = {"esa"}});
  ASSERT_EQ(records.size(), 1U);
  const TaskRecord& record = records[0];
  EXPECT_EQ(record.setup.attention, "esa");
  EXPECT_EQ(record.measured.tokens, 4640);
  EXPECT_EQ(Value(record, "dim"), 32);
  EXPECT_EQ(record.measured.score, Value(record, "dim_32"));
  // What was fitted to this very text finds most of what exact scores choose, and more with more dimensions.
  EXPECT_GT(record.measured.score, 0.5);
  EXPECT_GT(record.measured.score, Value(record, "dim_8"));
  // 50 of the 384 between the first and the newest.
  EXPECT_NEAR(Value(record, "by_chance"), 50.0 / 384, 1e-9);
  double sum = 0;
  for (int layer = 0; layer < 30; ++layer) sum += Value(record, "layer_" + std::to_string(layer));
  EXPECT_NEAR(sum / 30, record.measured.score, 1e-9);
}

TEST(Tasks, EfficiencyCountsTimeAndMemoryAndFindsThePassKey) {
  const auto records = RunOnDefaultModel({.kind = "efficiency",
                                          .options = {{"lengths", "400"}, {"repeats", "1"}, {"decode", "4"}},
                                          .form = "plain"});
  ASSERT_EQ(records.size(), 1U);
  const TaskRecord& record = records[0];
  EXPECT_NEAR(static_cast<double>(record.measured.tokens), 400, 4);
  EXPECT_EQ(record.measured.generated, 4);
  EXPECT_EQ(Value(record, "accuracy"), 1) << record.measured.answer;
  EXPECT_GT(record.measured.score, 0);
  EXPECT_GT(Value(record, "prefill_seconds"), record.measured.score);  // 400 tokens, and one
  EXPECT_GT(Value(record, "kv_gib"), 0);
  EXPECT_GT(Value(record, "peak_gib"), Value(record, "kv_gib") + Value(record, "state_gib"));
}

}  // namespace
}  // namespace longheads
