// Texts into which the attention method inserts tokens: the model reads what Insertion says, in prompts and
// in answers, and nobody who uses the engine has to know.
#include "engine/insertion.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/allocations.h"
#include "tests/support/model_file.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

// Blocks of 8 tokens, of which 7 are the user's; windows of 40, three blocks looked up.
constexpr int64_t kPeriod = 7;
constexpr const char* kLandmark = "landmark,block=8,top_k=3,train_context=72";
constexpr TokenId kToken = 272;

TinyLlamaOptions Tiny() {
  TinyLlamaOptions options;
  options.vocab_size = 273;
  options.embed = 32;
  options.ffn = 48;
  options.context_length = 4096;
  options.control_token = "<landmark>";
  return options;
}

std::unique_ptr<Engine> Load(const std::string& attention, const TinyLlamaOptions& model = Tiny()) {
  const ModelFile file(TinyLlama(model));
  Result<std::unique_ptr<Engine>> engine =
      Engine::Load({.model_path = file.path(), .attention = attention, .compute = "f32", .threads = 1});
  EXPECT_TRUE(engine) << engine.error().message;
  return std::move(*engine);
}

std::vector<TokenId> Tokens(int64_t n, uint64_t seed = 1) { return TinyTokens(n, 256, seed); }

TEST(Insertion, PutsItsTokenAfterEveryFullPeriod) {
  const Insertion none;
  EXPECT_EQ(none.ModelSize(1000), 1000);
  EXPECT_FALSE(none.Follows(7));
  const Insertion some(InsertedToken{.id = 99, .period = 3});
  EXPECT_EQ(some.Into(std::vector<TokenId>{1, 2}, 0), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(some.Into(std::vector<TokenId>{1, 2, 3}, 0), (std::vector<TokenId>{1, 2, 3, 99}));
  EXPECT_EQ(some.Into(std::vector<TokenId>{4, 5, 6, 7}, 1), (std::vector<TokenId>{4, 5, 99, 6, 7}));
  for (const int64_t n : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const std::vector<TokenId> text(static_cast<std::size_t>(n), 5);
    EXPECT_EQ(static_cast<int64_t>(some.Into(text, 0).size()), some.ModelSize(n)) << n;
  }
}

TEST(Insertion, GivesATokensRowToTheInsertedOneThatFollowsIt) {
  const Insertion some(InsertedToken{.id = 99, .period = 3});
  std::vector<float> rows = {3, 3, 99, 98, 4, 4, 5, 5, 6, 6, 97, 96};  // of the third token to the sixth
  some.KeepRowsOfText(rows, 2, 4);
  EXPECT_EQ(rows, (std::vector<float>{99, 98, 4, 4, 5, 5, 97, 96}));
}

// The same text, given to the transformer with the landmarks in it.
class ExplicitText {
 public:
  std::vector<float> Prefill(std::span<const TokenId> tokens) {
    return RowsOfText(tiny_.Prefill(sequence_, WithLandmarks(tokens)), tokens);
  }
  std::vector<float> Decode(std::span<const TokenId> tokens) {
    return RowsOfText(tiny_.Decode(sequence_, WithLandmarks(tokens)), tokens);
  }

 private:
  std::vector<TokenId> WithLandmarks(std::span<const TokenId> tokens) {
    std::vector<TokenId> all;
    last_rows_.clear();
    for (const TokenId token : tokens) {
      all.push_back(token);
      if (++n_ % kPeriod == 0) all.push_back(kToken);
      last_rows_.push_back(all.size() - 1);
    }
    return all;
  }
  std::vector<float> RowsOfText(const std::vector<float>& rows, std::span<const TokenId> tokens) {
    EXPECT_EQ(last_rows_.size(), tokens.size());
    std::vector<float> kept;
    for (const std::size_t row : last_rows_) {
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row) * Tiny().embed;
      kept.insert(kept.end(), begin, begin + Tiny().embed);
    }
    return kept;
  }

  TinyTransformer tiny_{{.model = Tiny(), .attention = std::string(kLandmark) + ",token=272", .threads = 1}};
  SequenceState sequence_ = tiny_->NewSequence();
  int64_t n_ = 0;
  std::vector<std::size_t> last_rows_;
};

class InsertedTokens : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine_ = Load(kLandmark);

  std::vector<float> Prefill(Session& session, std::span<const TokenId> tokens,
                             Outputs outputs = Outputs::kAll) {
    Result<std::vector<float>> hidden = engine_->Prefill(session, tokens, outputs, {});
    EXPECT_TRUE(hidden) << hidden.error().message;
    return *hidden;
  }
  std::vector<float> Decode(Session& session, std::span<const TokenId> tokens) {
    std::vector<float> all;
    Session* const self = &session;
    for (const TokenId& token : tokens) {
      const Result<std::vector<float>> hidden = engine_->Decode(std::span(&self, 1), std::span(&token, 1));
      EXPECT_TRUE(hidden) << hidden.error().message;
      all.insert(all.end(), hidden->begin(), hidden->end());
    }
    return all;
  }
};

TEST_F(InsertedTokens, AreReadAsIfTheTextHeldThem) {
  for (const int64_t n_prompt : {1, 6, 7, 8, 13, 14, 100, 2100}) {
    const std::vector<TokenId> prompt = Tokens(n_prompt);
    const std::vector<TokenId> answer = Tokens(30, 2);
    const std::vector<TokenId> second = Tokens(50, 3);
    ExplicitText text;
    Session session = engine_->NewSession();
    const std::vector<float> expected = text.Prefill(prompt);
    ASSERT_TRUE(SameBits(Prefill(session, prompt), expected)) << n_prompt;
    ASSERT_TRUE(SameBits(Decode(session, answer), text.Decode(answer))) << n_prompt;
    ASSERT_TRUE(SameBits(Prefill(session, second), text.Prefill(second))) << n_prompt;
    EXPECT_EQ(session.size(), n_prompt + 80);
    Session last = engine_->NewSession();
    EXPECT_TRUE(SameBits(Prefill(last, prompt, Outputs::kLast),
                         std::span(expected).last(static_cast<std::size_t>(Tiny().embed))));
  }
}

TEST_F(InsertedTokens, TellThemselvesApartFromFullAttentionOnlyWhereTheyAre) {
  const std::unique_ptr<Engine> full = Load("full");
  Session plain = full->NewSession();
  Session session = engine_->NewSession();
  const std::vector<TokenId> tokens = Tokens(kPeriod);
  const Result<std::vector<float>> expected = full->Prefill(plain, tokens, Outputs::kAll, {});
  ASSERT_TRUE(expected);
  const std::vector<float> hidden = Prefill(session, tokens);
  const auto before = static_cast<std::size_t>((kPeriod - 1) * Tiny().embed);
  EXPECT_TRUE(SameBits(std::span(hidden).first(before), std::span(*expected).first(before)));
  EXPECT_FALSE(SameBits(std::span(hidden).subspan(before), std::span(*expected).subspan(before)));
}

TEST_F(InsertedTokens, ComeWhenTheyAreDueInEachSessionOfABatch) {
  const int64_t lengths[] = {5, 7, 13, 20};  // next to be completed: none, none, a block, a block
  std::vector<Session> sessions;
  std::vector<Session> alone;
  for (const int64_t n : lengths) {
    sessions.push_back(engine_->NewSession());
    Prefill(sessions.back(), Tokens(n, static_cast<uint64_t>(n)));
    alone.push_back(engine_->Fork(sessions.back()));
  }
  Session* batch[4];
  for (std::size_t i = 0; i < 4; ++i) batch[i] = &sessions[i];
  for (uint64_t step = 0; step < 16; ++step) {
    const std::vector<TokenId> next = Tokens(4, step);
    const Result<std::vector<float>> hidden = engine_->Decode(batch, next);
    ASSERT_TRUE(hidden);
    std::vector<float> one_by_one;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::vector<float> one = Decode(alone[i], std::span(next).subspan(i, 1));
      one_by_one.insert(one_by_one.end(), one.begin(), one.end());
    }
    ASSERT_TRUE(SameBits(*hidden, one_by_one)) << step;
  }
}

// At every length, in the prompt and in the answer: the text is the user's, and goes on as a fresh one of its
// tokens does.
TEST_F(InsertedTokens, AreForgottenWithTheTokensBeforeThem) {
  constexpr int64_t kPrompt = 60;
  constexpr int64_t kAll = 100;
  const std::vector<TokenId> tokens = Tokens(kAll);
  const std::span<const TokenId> all(tokens);
  const std::vector<TokenId> next = Tokens(20, 5);
  Session session = engine_->NewSession();
  Prefill(session, all.first(kPrompt));
  Decode(session, all.subspan(kPrompt));
  for (int64_t n = 1; n <= kAll; ++n) {
    Session cut = engine_->Fork(session);
    ASSERT_TRUE(engine_->Truncate(cut, n));
    ASSERT_EQ(cut.size(), n);
    ASSERT_TRUE(std::equal(cut.tokens().begin(), cut.tokens().end(), tokens.begin()));
    Session fresh = engine_->NewSession();
    const std::size_t n_prompt = static_cast<std::size_t>(std::min(n, kPrompt));
    Prefill(fresh, all.first(n_prompt));
    Decode(fresh, all.subspan(n_prompt, static_cast<std::size_t>(n) - n_prompt));
    const std::vector<float> expected = Decode(fresh, next);
    Session fork = engine_->Fork(cut);
    ASSERT_TRUE(SameBits(Decode(cut, next), expected)) << n;
    ASSERT_TRUE(SameBits(Decode(fork, next), expected)) << n;
  }
}

TEST_F(InsertedTokens, LeaveASessionAsItWasWhenReadingFails) {
  Session session = engine_->NewSession();
  Prefill(session, Tokens(41));  // the next token completes a block
  Session untouched = engine_->Fork(session);
  CancelToken cancel;
  int layers = 0;
  const ForwardControl control{.cancel = &cancel, .progress = [&](double) {
                                 if (++layers == 3) cancel.Cancel();
                               }};
  ASSERT_FALSE(engine_->Prefill(session, Tokens(2100, 2), Outputs::kLast, control));
  Session* const self = &session;
  const TokenId wrong[] = {500};
  ASSERT_FALSE(engine_->Decode(std::span(&self, 1), wrong));
  EXPECT_EQ(session.size(), 41);
  const std::vector<TokenId> next = Tokens(20, 5);
  EXPECT_TRUE(SameBits(Decode(session, next), Decode(untouched, next)));
}

// Where the token was read but its landmark was not, the token is taken back too.
TEST_F(InsertedTokens, LeaveASessionAsItWasWhenMemoryRunsOut) {
  Session begun = engine_->NewSession();
  Prefill(begun, Tokens(41));
  Session whole = engine_->Fork(begun);
  const std::vector<TokenId> next = Tokens(9, 5);
  const std::vector<float> expected = Decode(whole, next);
  int n_reported = 0;
  for (int64_t k = 1;; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k) + " fails");
    Session session = engine_->Fork(begun);
    Session* const self = &session;
    FailAllocation(k);
    const auto result = engine_->Decode(std::span(&self, 1), std::span(next).first(1));
    const bool failed = AllocationFailed();
    FailAllocation(0);
    if (result) {
      ASSERT_EQ(session.size(), 42);
      ASSERT_TRUE(SameBits(*result, std::span(expected).first(static_cast<std::size_t>(Tiny().embed))));
    } else {
      ++n_reported;
      ASSERT_EQ(session.size(), 41);
      ASSERT_TRUE(SameBits(Decode(session, next), expected));
    }
    if (!failed) break;
  }
  EXPECT_GT(n_reported, 2);
}

TEST_F(InsertedTokens, FollowAnAnswersTokensAndAreNoneOfThem) {
  Session session = engine_->NewSession();
  const std::vector<TokenId> prompt = Tokens(90);
  const std::vector<float> hidden = Prefill(session, prompt, Outputs::kLast);
  const Result<Generated> answer = engine_->Generate(session, hidden, {.max_tokens = 40});
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->tokens.size(), 40u);
  EXPECT_EQ(session.size(), 90 + 39);

  ExplicitText text;
  text.Prefill(prompt);
  std::vector<float> state = hidden;
  for (const TokenId token : answer->tokens) {
    std::vector<float> logits = engine_->Logits(state);
    logits[kToken] = -1e30f;
    EXPECT_EQ(token, ArgMax(logits));
    state = text.Decode(std::span(&token, 1));
  }
}

TEST_F(InsertedTokens, AreNoAnswerHoweverLikely) {
  // A hidden state whose likeliest token is the landmark: the rows of the embedding are the output's too.
  const int64_t embed = Tiny().embed;
  std::vector<float> hidden = TinyLlamaValues(Tiny().seed, "token_embd.weight", 273 * embed, embed);
  hidden.erase(hidden.begin(), hidden.begin() + kToken * embed);
  for (float& value : hidden) value *= 100;
  ASSERT_EQ(ArgMax(engine_->Logits(hidden)), kToken);
  for (const float temperature : {0.0f, 1.0f}) {
    Session session = engine_->NewSession();
    const Result<Generated> answer =
        engine_->Generate(session, hidden, {.max_tokens = 1, .sampling = {.temperature = temperature}});
    ASSERT_TRUE(answer);
    for (const TokenId token : answer->tokens) EXPECT_NE(token, kToken);
  }
}

TEST_F(InsertedTokens, AreCountedInTheMemoryThatATextTakes) {
  const std::unique_ptr<Engine> full = Load("full");
  EXPECT_EQ(engine_->PlanMemory(224).kv, full->PlanMemory(256).kv);
  EXPECT_EQ(engine_->PlanMemory(225).kv, full->PlanMemory(257).kv);
}

TEST_F(InsertedTokens, CostNoAllocationInsideABlock) {
  Session session = engine_->NewSession();
  Prefill(session, Tokens(448), Outputs::kNone);  // two pages, a whole group of blocks
  Session* const self = &session;
  const std::vector<TokenId> tokens = Tokens(30, 2);
  std::vector<float> hidden;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const int64_t before = AllocationCount();
    const Status status = engine_->Decode(std::span(&self, 1), std::span(tokens).subspan(i, 1), hidden);
    const int64_t count = AllocationCount() - before;
    ASSERT_TRUE(status);
    if (i >= 16 && session.size() % kPeriod > 1) {  // a block's first token grows the scratch
      EXPECT_EQ(count, 0) << "token " << i;
    }
  }
}

TEST(Load, RefusesLandmarksThatTheVocabularyDoesNotHave) {
  TinyLlamaOptions model = Tiny();
  model.control_token = "";
  const ModelFile file(TinyLlama(model));
  const auto refusal = [&](const std::string& attention) {
    const Result<std::unique_ptr<Engine>> engine =
        Engine::Load({.model_path = file.path(), .attention = attention, .threads = 1});
    return engine ? "" : engine.error().message;
  };
  EXPECT_NE(refusal("landmark").find("say which it is with token=ID"), std::string::npos);
  EXPECT_NE(refusal("landmark,token=273").find("outside the vocabulary (0 .. 272)"), std::string::npos);
  EXPECT_EQ(refusal("landmark,token=272"), "");
}

}  // namespace
}  // namespace longheads
