#include "eval/ppl_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

constexpr int64_t kScored = 40;

std::vector<TokenId> Tokens(int64_t n) {
  std::vector<TokenId> tokens;
  uint32_t state = 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525 + 1013904223;
    tokens.push_back(static_cast<TokenId>(state >> 24));
  }
  return tokens;
}

class PplSampleTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> Load(const std::string& attention) { return TinyEngine(directory_, attention); }

  // The score of the tokens behind each of `prompts`, which ascend, from one reading.
  static std::vector<PplScore> Scores(Engine& engine, const std::vector<TokenId>& tokens,
                                      const std::vector<int64_t>& prompts) {
    PplSample sample(engine, tokens);
    std::vector<PplScore> scores;
    for (const int64_t n : prompts) {
      EXPECT_TRUE(sample.ReadTo(n, nullptr, {}));
      const Result<PplScore> score = sample.Score(kScored, nullptr, {});
      EXPECT_TRUE(score) << score.error().message;
      scores.push_back(score.value_or(PplScore{}));
    }
    return scores;
  }

  TestDirectory directory_;
};

TEST(NegativeLogLikelihood, IsThatOfTheSoftmax) {
  const std::vector<float> logits = {1, 2, 4};
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(4.0);
  for (const TokenId token : {0, 1, 2}) {
    EXPECT_NEAR(NegativeLogLikelihood(logits, token),
                -std::log(std::exp(double{logits[static_cast<std::size_t>(token)]}) / sum), 1e-14);
  }
  // No exponential overflows or vanishes altogether.
  const std::vector<float> far = {1e4f, -1e4f};
  EXPECT_EQ(NegativeLogLikelihood(far, 0), 0);
  EXPECT_EQ(NegativeLogLikelihood(far, 1), 2e4);
}

TEST(PplScore, HasTheMeanAndItsStandardError) {
  PplScore score;
  for (const double nll : {1.0, 2.0}) score.Add(nll);
  PplScore other;
  for (const double nll : {3.0, 6.0}) other.Add(nll);
  score.Add(other);
  EXPECT_EQ(score.n_tokens, 4);
  EXPECT_DOUBLE_EQ(score.mean(), 3);
  // Deviations -2, -1, 0, 3: variance 14 / 3.
  EXPECT_DOUBLE_EQ(score.standard_error(), std::sqrt(14.0 / 3 / 4));
  EXPECT_DOUBLE_EQ(score.perplexity(), std::exp(3));
  EXPECT_DOUBLE_EQ(std::log(score.highest()) - 3, 1.96 * score.standard_error());
  EXPECT_NEAR(3 - std::log(score.lowest()), 1.96 * score.standard_error(), 1e-12);
}

// The whole in one prefill, all logits at once: no fork, no decode.
TEST_F(PplSampleTest, AgreesWithOnePlainForwardPass) {
  const auto engine = Load("full");
  ASSERT_TRUE(engine);
  const std::vector<TokenId> tokens = Tokens(300);
  const std::vector<int64_t> prompts = {1, 100, 260};
  const std::vector<PplScore> scores = Scores(*engine, tokens, prompts);

  Session session = engine->NewSession();
  const auto hidden = engine->Prefill(session, tokens, Outputs::kAll, {});
  ASSERT_TRUE(hidden) << hidden.error().message;
  const std::vector<float> logits = engine->Logits(*hidden);
  const std::size_t vocab = static_cast<std::size_t>(engine->config().vocab_size);
  float largest = 0;
  for (const float logit : logits) largest = std::max(largest, std::abs(logit));
  // Prefill and decode differ by roundings. A product of the tiny model sums at most 96 terms in float32, so
  // it is off by less than 96 * 2^-24 of its terms' size; seven stand behind one another in each of the two
  // layers, and one makes the logits. A likelihood feels the error of its logit and of the largest ones.
  const double tolerance = 2 * (2 * 7 + 1) * 96 * std::pow(2.0, -24) * largest;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    PplScore plain;
    for (int64_t t = prompts[i]; t < prompts[i] + kScored; ++t) {
      const auto row = std::span(logits).subspan(static_cast<std::size_t>(t - 1) * vocab, vocab);
      plain.Add(NegativeLogLikelihood(row, tokens[static_cast<std::size_t>(t)]));
    }
    EXPECT_EQ(scores[i].n_tokens, kScored);
    EXPECT_NEAR(scores[i].mean(), plain.mean(), tolerance);
    EXPECT_NEAR(scores[i].nll_squares, plain.nll_squares, 2 * tolerance * plain.nll_sum + 1e-9);
  }
}

// Bit by bit, for every method but those that say that calls matter to them.
TEST_F(PplSampleTest, LengthAmongOthersScoresAsItDoesAlone) {
  const std::vector<TokenId> tokens = Tokens(700);
  for (const std::string attention :
       {"full", "auto", "longheads,chunk=32,window=128,begin=128", "streaming-llm,start=4,recent=60",
        "lm-infinite,global=4,local=64", "self-extend,group=4,window=64", "rerope,window=64",
        "leaky-rerope,window=64,factor=4", "quest,page=16,budget=64,dense_layers=0",
        "moba,chunk=32,top_k=3,decode=gated", "yarn:factor=4+full"}) {
    const auto engine = Load(attention);
    ASSERT_TRUE(engine) << attention;
    const std::vector<PplScore> together = Scores(*engine, tokens, {60, 130, 333, 660});
    for (const auto& [at, prompt] : {std::pair<std::size_t, int64_t>{1, 130}, {3, 660}}) {
      const PplScore alone = Scores(*engine, tokens, {prompt})[0];
      EXPECT_EQ(alone.nll_sum, together[at].nll_sum) << attention << " " << prompt;
      EXPECT_EQ(alone.nll_squares, together[at].nll_squares) << attention << " " << prompt;
    }
  }
}

// The other methods: the same calls, without a fork.
TEST_F(PplSampleTest, ForkScoresAsASessionOfItsOwn) {
  const std::vector<TokenId> tokens = Tokens(700);
  for (const std::string attention :
       {"infllm,n_init=8,n_local=64,block=16,top_k=3,exec_block=32,representatives=2,max_cached_block=8",
        "lm-infinite,global=4,local=64,limit=128",
        "lm-infinite,global=4,local=64,limit=64,top_k=3,top_k_from=0", "full"}) {
    const auto engine = Load(attention);
    ASSERT_TRUE(engine) << attention;
    const std::vector<PplScore> together = Scores(*engine, tokens, {60, 333, 600});
    Session session = engine->NewSession();
    Session* const self = &session;
    std::vector<float> hidden;
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 60}, {60, 333}, {333, 600}}) {
      auto read = engine->Prefill(session, std::span(tokens).subspan(begin, end - begin), Outputs::kLast, {});
      ASSERT_TRUE(read);
      hidden = *read;
    }
    PplScore score;
    for (std::size_t t = 600; t < 600 + kScored; ++t) {
      score.Add(NegativeLogLikelihood(engine->Logits(hidden), tokens[t]));
      ASSERT_TRUE(engine->Decode(std::span(&self, 1), std::span(tokens).subspan(t, 1), hidden));
    }
    EXPECT_EQ(score.nll_sum, together[2].nll_sum) << attention;
    EXPECT_EQ(score.nll_squares, together[2].nll_squares) << attention;
  }
}

TEST_F(PplSampleTest, InterruptIsAnErrorOfItsKindAndKeepsWhatWasRead) {
  const auto engine = Load("full");
  ASSERT_TRUE(engine);
  const std::vector<TokenId> tokens = Tokens(200);
  PplSample sample(*engine, tokens);
  CancelToken cancel;
  ASSERT_TRUE(sample.ReadTo(50, &cancel, {}));
  int64_t n_scored = 0;
  const auto stopped = sample.Score(kScored, &cancel, [&](double) {
    if (++n_scored == 3) cancel.Cancel();
  });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(n_scored, 3);
  const Status unread = sample.ReadTo(150, &cancel, {});
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(sample.n_read(), 50);
  const auto score = sample.Score(kScored, nullptr, {});
  ASSERT_TRUE(score);
  EXPECT_EQ(score->nll_sum, Scores(*engine, tokens, {50})[0].nll_sum);
}

}  // namespace
}  // namespace longheads
