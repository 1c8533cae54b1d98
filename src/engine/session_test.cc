// Sessions under every method: whatever was forked, taken back or refused, one goes on bit for bit as a
// session that has read its tokens and no others, in the same calls. From the engine down to the pages; what
// single states promise is held by attention/properties_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/registry.h"
#include "engine/engine.h"
#include "engine/esa_for_test.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

// A window that the text leaves too, so that frequencies which follow its length do so.
const TinyLlamaOptions kTiny = {.vocab_size = 273,
                                .n_layers = 3,
                                .embed = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 16,
                                .ffn = 48,
                                .context_length = 128,
                                .control_token = "<landmark>"};

struct Case {
  const char* attention;
  const char* kv_type = "f32";
  bool feels_calls = false;  // a prompt's tokens are what they are by where its call ends
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.attention << ", " << c.kv_type; }

// Windows that a text of two hundred tokens has left, and blocks of which it has many. (The lists of
// kv_tiers_test.cc and context_test.cc are for texts of many pages.)
constexpr Case kCases[] = {
    {"full"},
    {"full", "q8"},
    {"auto,chunk=16,window=64,begin=80"},
    {"longheads,chunk=16,window=64,begin=80"},
    {"longheads,chunk=16,window=64,begin=80", "bf16"},
    {"longheads,chunk=24,window=96,begin=96,reps=kv,select=kv,fix=both"},
    {"self-extend,group=4,window=40"},
    {"rerope,window=40"},
    {"leaky-rerope,window=40,factor=4"},
    {"streaming-llm,start=4,recent=40"},
    {"lm-infinite,global=4,local=40"},
    {"lm-infinite,global=4,local=40,top_k=5,top_k_from=1,top_k_at=40", "f32", /*feels_calls=*/true},
    {"infllm,n_init=10,n_local=60,block=12,top_k=3,representatives=2,exec_block=32"},
    {"infllm,n_init=0,n_local=40,block=8,top_k=3,exec_block=16,max_cached_block=4,per_head=on", "bf16"},
    {"esa,n_init=4,k=32,n_local=48,chunk=16,score=exact"},
    {"esa,n_init=4,k=32,n_local=48,chunk=16,dim=16"},
    {"landmark,block=8,top_k=3,train_context=72"},
    {"quest,page=16,budget=64,dense_layers=1"},
    {"moba,chunk=16,top_k=2,decode=gated"},
    {"yarn:factor=2+longheads,chunk=16,window=64,begin=80"},
    {"dynamic-ntk+longheads,chunk=16,window=64,begin=80"},
    {"dynamic-ntk:mode=stale+moba,chunk=16,top_k=2", "f32", /*feels_calls=*/true},
    {"dynamic-ntk:mode=exact+full", "f32", /*feels_calls=*/true},
};

// A call of the engine with a prompt, or one for each token of an answer.
struct Turn {
  Phase phase;
  std::vector<TokenId> tokens;
};
using Talk = std::vector<Turn>;

// Its first n tokens.
Talk Until(const Talk& talk, int64_t n) {
  Talk part;
  for (const Turn& turn : talk) {
    const int64_t here = std::min(n, static_cast<int64_t>(turn.tokens.size()));
    if (here > 0) part.push_back({turn.phase, {turn.tokens.begin(), turn.tokens.begin() + here}});
    n -= here;
  }
  return part;
}

std::vector<TokenId> TokensOf(const Talk& talk) {
  std::vector<TokenId> all;
  for (const Turn& turn : talk) all.insert(all.end(), turn.tokens.begin(), turn.tokens.end());
  return all;
}

std::vector<TokenId> Tokens(int64_t n, uint64_t seed) { return TinyTokens(n, 256, seed); }

Talk MakeTalk(std::initializer_list<std::pair<Phase, int64_t>> turns, uint64_t seed) {
  Talk talk;
  for (const auto& [phase, n] : turns) talk.push_back({phase, Tokens(n, seed++)});
  return talk;
}

// Prompts and answers, two prompts one after the other among them, with ends inside blocks and at theirs.
Talk Conversation() {
  using enum Phase;
  return MakeTalk({{kPrefill, 150},
                   {kDecode, 20},
                   {kPrefill, 40},
                   {kPrefill, 27},
                   {kDecode, 19},
                   {kPrefill, 9},
                   {kPrefill, 35},
                   {kDecode, 12}},
                  /*seed=*/1);
}

// What comes behind: over the end of a block of 16, and past the next one.
Talk Sequel(uint64_t seed = 50) { return MakeTalk({{Phase::kPrefill, 18}, {Phase::kDecode, 9}}, seed); }

class SessionTest : public testing::TestWithParam<Case> {
 protected:
  SessionTest() {
    Result<std::unique_ptr<Engine>> engine = Engine::Load({.model_path = model_.path(),
                                                           .attention = GetParam().attention,
                                                           .compute = "f32",
                                                           .kv_type = GetParam().kv_type,
                                                           .threads = 2});
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return;
    engine_ = std::move(*engine);
    EXPECT_TRUE(engine_->ExpectText(400));
  }

  // A hidden state for each token.
  std::vector<float> Feed(Session& session, const Turn& turn) {
    if (turn.phase == Phase::kPrefill) {
      const Result<std::vector<float>> hidden = engine_->Prefill(session, turn.tokens, Outputs::kAll, {});
      EXPECT_TRUE(hidden) << hidden.error().message;
      return hidden ? *hidden : std::vector<float>();
    }
    std::vector<float> all;
    Session* const self = &session;
    for (const TokenId& token : turn.tokens) {
      const Result<std::vector<float>> hidden = engine_->Decode(std::span(&self, 1), std::span(&token, 1));
      EXPECT_TRUE(hidden) << hidden.error().message;
      if (hidden) all.insert(all.end(), hidden->begin(), hidden->end());
    }
    return all;
  }
  std::vector<float> Feed(Session& session, const Talk& talk) {
    std::vector<float> all;
    for (const Turn& turn : talk) {
      const std::vector<float> here = Feed(session, turn);
      all.insert(all.end(), here.begin(), here.end());
    }
    return all;
  }
  Session Read(const Talk& talk) {
    Session session = engine_->NewSession();
    Feed(session, talk);
    return session;
  }
  std::vector<std::pair<std::string, int64_t>> Counters(const Session& session) const {
    std::vector<std::pair<std::string, int64_t>> all;
    for (const PolicyCounter& counter : engine_->Counters(session)) {
      all.emplace_back(counter.name, counter.count);
    }
    return all;
  }

  // A session that has read the first n tokens and no others. Where tokens feel their call, one whose
  // prompt was as long, and other behind the n-th: what was taken back left its length and nothing else.
  Session Twin(const Talk& talk, int64_t n) {
    Talk part = Until(talk, n);
    const std::size_t last = part.size() - 1;
    const bool inside = n > 0 && part[last].tokens.size() < talk[last].tokens.size();
    if (!inside || !GetParam().feels_calls || part[last].phase == Phase::kDecode) return Read(part);
    const std::vector<TokenId> others = Tokens(static_cast<int64_t>(talk[last].tokens.size()), 99);
    std::vector<TokenId>& tokens = part[last].tokens;
    tokens.insert(tokens.end(), others.begin() + static_cast<std::ptrdiff_t>(tokens.size()), others.end());
    Session session = Read(part);
    EXPECT_TRUE(engine_->Truncate(session, n));
    return session;
  }

  // Both go on.
  void ExpectSame(Session& session, Session& twin, const Talk& sequel = Sequel()) {
    ASSERT_EQ(session.tokens(), twin.tokens());
    EXPECT_EQ(Counters(session), Counters(twin));
    ASSERT_TRUE(SameBits(Feed(session, sequel), Feed(twin, sequel)));
    EXPECT_EQ(Counters(session), Counters(twin));
  }

  const ModelFile model_{TinyLlama(kTiny)};
  const std::unique_ptr<CacheFolder> esa_compression_ =
      SaveRandomEsaCompression(model_.path(), kTiny, /*n_local=*/48);
  std::unique_ptr<Engine> engine_;
  const Talk talk_ = Conversation();
};

TEST_P(SessionTest, TheTextIsLongEnoughToTellTheMethodFromFull) {
  if (std::string_view(GetParam().attention) == "full") return;
  const auto full = *Engine::Load({.model_path = model_.path(),
                                   .attention = "full",
                                   .compute = "f32",
                                   .kv_type = GetParam().kv_type,
                                   .threads = 2});
  Session plain = full->NewSession();
  ASSERT_TRUE(full->Prefill(plain, talk_[0].tokens, Outputs::kNone, {}));
  Session session = Read({talk_[0]});
  for (const TokenId& token : talk_[1].tokens) {
    Session* const one[] = {&session};
    Session* const other[] = {&plain};
    const auto hidden = engine_->Decode(one, std::span(&token, 1));
    const auto of_full = full->Decode(other, std::span(&token, 1));
    ASSERT_TRUE(hidden && of_full);
    EXPECT_FALSE(SameBits(*hidden, *of_full));
  }
}

TEST_P(SessionTest, GoesOnAfterTruncationAsIfNothingHadFollowed) {
  Session session = Read(talk_);
  const int64_t step = kSanitized ? 11 : 5;  // prime to the blocks, so that cuts lie anywhere in one
  for (int64_t n = 0; n <= session.size(); n += step) {
    SCOPED_TRACE("cut at " + std::to_string(n));
    Session cut = engine_->Fork(session);
    const Status status = engine_->Truncate(cut, n);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_EQ(cut.size(), n);
    ASSERT_EQ(cut.tokens(), TokensOf(Until(talk_, n)));
    Session twin = n == 0 ? engine_->NewSession() : Twin(talk_, n);
    ASSERT_NO_FATAL_FAILURE(ExpectSame(cut, twin));
  }
  // The cuts were forks': nothing of the session was taken.
  Session twin = Read(talk_);
  ExpectSame(session, twin);
}

TEST_P(SessionTest, TruncatesAgainAndAgain) {
  Session session = Read(talk_);
  Talk read = talk_;
  for (const int64_t n : {311, 318, 304, 307, 290, 265, 264, 240, 230, 211, 180,
                          171, 170, 177, 160, 150, 149, 97,  96,  17,  16,  1}) {
    SCOPED_TRACE("cut at " + std::to_string(n));
    ASSERT_TRUE(engine_->Truncate(session, n));
    Session twin = Twin(read, n);
    read = Until(read, n);
    // Other tokens than before, of which the next cut leaves some, or none.
    const Talk more = MakeTalk({{Phase::kPrefill, 5}, {Phase::kDecode, 4}}, static_cast<uint64_t>(n));
    ASSERT_NO_FATAL_FAILURE(ExpectSame(session, twin, more));
    read.insert(read.end(), more.begin(), more.end());
    // A prompt that was cut is as long as it was for those that feel it, until it is cut again.
    if (GetParam().feels_calls) session = Read(read);
  }
}

TEST_P(SessionTest, AForkAfterAnyCallGoesOnAsTheOriginalDoes) {
  Session session = engine_->NewSession();
  std::vector<Session> forks;
  std::vector<float> hidden;
  for (const Turn& turn : talk_) {
    const std::size_t together = turn.phase == Phase::kDecode ? 1 : turn.tokens.size();
    for (std::size_t i = 0; i < turn.tokens.size(); i += together) {
      if (!kSanitized || i % 5 == 0) forks.push_back(engine_->Fork(session));
      const auto begin = turn.tokens.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end = begin + static_cast<std::ptrdiff_t>(together);
      const std::vector<float> here = Feed(session, Turn{turn.phase, {begin, end}});
      hidden.insert(hidden.end(), here.begin(), here.end());
    }
  }
  Session never_forked = engine_->NewSession();
  ASSERT_TRUE(SameBits(Feed(never_forked, talk_), hidden));
  // The original has gone on; and each fork does while the others still share its pages and chunks.
  for (Session& fork : forks) {
    SCOPED_TRACE("forked at " + std::to_string(fork.size()));
    Session fresh = Read(Until(talk_, fork.size()));
    ASSERT_NO_FATAL_FAILURE(ExpectSame(fork, fresh));
  }
  ExpectSame(session, never_forked);
}

TEST_P(SessionTest, ForksDoNotSeeEachOther) {
  const Talk prompt = {talk_[0]};
  const auto fresh = [&](uint64_t seed) {
    Session session = Read(prompt);
    return Feed(session, Turn{Phase::kDecode, Tokens(40, seed)});
  };
  Session session = Read(prompt);
  Session fork = engine_->Fork(session);
  Session* const both[] = {&session, &fork};
  const std::vector<TokenId> left = Tokens(40, 102);
  const std::vector<TokenId> right = Tokens(40, 103);
  std::vector<float> left_hidden, right_hidden;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const TokenId next[] = {left[i], right[i]};
    const Result<std::vector<float>> hidden = engine_->Decode(both, next);
    ASSERT_TRUE(hidden);
    left_hidden.insert(left_hidden.end(), hidden->begin(), hidden->begin() + kTiny.embed);
    right_hidden.insert(right_hidden.end(), hidden->begin() + kTiny.embed, hidden->end());
  }
  EXPECT_TRUE(SameBits(left_hidden, fresh(102)));
  EXPECT_TRUE(SameBits(right_hidden, fresh(103)));
}

TEST_P(SessionTest, AForkOfAForkOutlivesBoth) {
  const Turn answer{Phase::kDecode, Tokens(7, 201)};
  const Turn question{Phase::kPrefill, Tokens(21, 202)};
  std::optional<Session> original = Read({talk_[0]});
  std::optional<Session> fork = engine_->Fork(*original);
  Feed(*original, Turn{Phase::kDecode, Tokens(30, 203)});
  Feed(*fork, answer);
  Feed(*fork, question);
  Session last = engine_->Fork(*fork);
  Feed(*fork, Turn{Phase::kPrefill, Tokens(60, 204)});
  original.reset();
  Session of_last = engine_->Fork(last);
  fork.reset();
  // Another text takes the pages that they gave back.
  const Session other = Read(MakeTalk({{Phase::kPrefill, 200}, {Phase::kDecode, 20}}, 205));
  Session fresh = Read({talk_[0], answer, question});
  ExpectSame(last, fresh);
  ASSERT_TRUE(engine_->Truncate(of_last, 157));  // behind the answer
  Session shorter = Read({talk_[0], answer});
  ExpectSame(of_last, shorter);
}

class AnswerTest : public SessionTest {
 protected:
  static constexpr std::size_t kAnswer = 30;

  // One that the model answers at length.
  AnswerTest() {
    std::size_t n_answer = 0;
    for (uint64_t seed = 1; n_answer < kAnswer && seed < 50; ++seed) {
      prompt_ = Tokens(150, seed);
      Session session = engine_->NewSession();
      n_answer = Answer(session, Prompt(session), kAnswer).size();
    }
    EXPECT_EQ(n_answer, kAnswer);
  }
  std::vector<float> Prompt(Session& session) {
    const Result<std::vector<float>> hidden = engine_->Prefill(session, prompt_, Outputs::kLast, {});
    EXPECT_TRUE(hidden) << hidden.error().message;
    return hidden ? *hidden : std::vector<float>();
  }
  std::vector<TokenId> Answer(Session& session, std::span<const float> hidden, std::size_t most,
                              const SamplerOptions& sampling = {}) {
    const Result<Generated> answer =
        engine_->Generate(session, hidden, {.max_tokens = static_cast<int64_t>(most), .sampling = sampling});
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? answer->tokens : std::vector<TokenId>();
  }

  std::vector<TokenId> prompt_;
};

TEST_P(AnswerTest, OfAForkIsThatOfASessionOfItsOwn) {
  Session session = engine_->NewSession();
  const std::vector<float> hidden = Prompt(session);
  std::vector<Session> forks;
  for (int i = 0; i < 3; ++i) forks.push_back(engine_->Fork(session));
  std::vector<std::vector<TokenId>> answers;
  for (uint64_t seed = 0; seed < forks.size(); ++seed) {
    const SamplerOptions sampling{.temperature = 5, .seed = seed};
    Session fresh = engine_->NewSession();
    const std::vector<float> of_fresh = Prompt(fresh);
    answers.push_back(Answer(fresh, of_fresh, kAnswer, sampling));
    EXPECT_EQ(Answer(forks[seed], hidden, kAnswer, sampling), answers.back());
    EXPECT_EQ(forks[seed].tokens(), fresh.tokens());
  }
  EXPECT_FALSE(answers[0] == answers[1] && answers[1] == answers[2]);
}

TEST_P(AnswerTest, IsGivenAgainWhereItWasTakenBackInPart) {
  const auto n_prompt = static_cast<int64_t>(prompt_.size());
  Session session = engine_->NewSession();
  const std::vector<float> of_prompt = Prompt(session);
  const std::vector<TokenId> whole = Answer(session, of_prompt, kAnswer);
  for (const std::size_t kept : {29u, 28u, 17u, 16u, 2u, 1u, 0u}) {
    SCOPED_TRACE(kept);
    std::vector<float> hidden = of_prompt;
    if (kept == 0) {
      ASSERT_TRUE(engine_->Truncate(session, n_prompt));
    } else {
      ASSERT_TRUE(engine_->Truncate(session, n_prompt + static_cast<int64_t>(kept) - 1));
      hidden = Feed(session, Turn{Phase::kDecode, {whole[kept - 1]}});
    }
    const std::vector<TokenId> rest(whole.begin() + static_cast<std::ptrdiff_t>(kept), whole.end());
    EXPECT_EQ(Answer(session, hidden, kAnswer - kept), rest);
    EXPECT_EQ(session.size(), n_prompt + static_cast<int64_t>(kAnswer) - 1);
  }
}

TEST_P(SessionTest, ACancelledPromptLeavesTheSessionAsItWas) {
  const Turn prompt{Phase::kPrefill, Tokens(2100, 5)};
  const Talk before = Until(talk_, 163);
  Session untouched = Read(before);
  const std::vector<float> expected = Feed(untouched, prompt);
  for (const int after : {0, 1, 2, 5}) {  // layers; three of them are one block of tokens
    Session session = Read(before);
    CancelToken cancel;
    int layers = 0;
    const ForwardControl control{.cancel = &cancel, .progress = [&](double) {
                                   if (++layers == after) cancel.Cancel();
                                 }};
    if (after == 0) cancel.Cancel();
    const Result<std::vector<float>> stopped =
        engine_->Prefill(session, prompt.tokens, Outputs::kLast, control);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
    EXPECT_EQ(session.tokens(), TokensOf(before));
    ASSERT_TRUE(SameBits(Feed(session, prompt), expected)) << "after " << after << " layers";
  }
}

TEST_P(SessionTest, ARefusedTokenLeavesAllSessionsAsTheyWere) {
  Session first = Read(Until(talk_, 165));
  Session second = Read(Until(talk_, 50));
  Session untouched = engine_->Fork(first);

  Session* const both[] = {&first, &second};
  const TokenId wrong[] = {5, 273};
  const Result<std::vector<float>> refused = engine_->Decode(both, wrong);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("273"), std::string::npos);
  EXPECT_FALSE(engine_->Prefill(first, wrong, Outputs::kLast, {}));
  EXPECT_EQ(second.size(), 50);
  ExpectSame(first, untouched);
}

std::vector<Case> Cases() {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  // Frequencies and other types of keys change nothing in what threads and memory do.
  if (kSanitized) {
    std::erase_if(cases, [](const Case& c) {
      return std::string_view(c.attention).find('+') != std::string_view::npos ||
             std::string_view(c.kv_type) == "q8";
    });
  }
  return cases;
}

std::string NameOf(const testing::TestParamInfo<Case>& test) {
  std::string name = std::to_string(test.index) + "_" + test.param.attention;
  name = name.substr(0, name.find(','));
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name + "_" + test.param.kv_type;
}
INSTANTIATE_TEST_SUITE_P(Every, SessionTest, testing::ValuesIn(Cases()), NameOf);
INSTANTIATE_TEST_SUITE_P(Every, AnswerTest, testing::ValuesIn(Cases()), NameOf);

// Behind windows of several pages, whose keys later text pushes out of what is kept of them.
TEST(Sessions, GoBackBehindMoreTextThanTheirWindowsHold) {
  TinyLlamaOptions options = kTiny;
  options.context_length = 1024;
  const ModelFile model(TinyLlama(options));
  constexpr int64_t kLong = 4200;
  for (const char* const attention :
       {"self-extend,group=8,window=700", "rerope,window=700", "lm-infinite,global=4,local=1000",
        "infllm,n_init=10,n_local=700,block=12,top_k=3,exec_block=256",
        "esa,n_init=8,k=32,n_local=700,chunk=128,score=exact"}) {
    for (const char* const kv_type : {"f32", "bf16", "q8"}) {
      if (kSanitized && kv_type != std::string_view("bf16")) continue;
      SCOPED_TRACE(std::string(attention) + ", " + kv_type);
      const auto engine = Engine::Load({.model_path = model.path(),
                                        .attention = attention,
                                        .compute = "f32",
                                        .kv_type = kv_type,
                                        .threads = 2});
      ASSERT_TRUE(engine) << engine.error().message;
      const std::vector<TokenId> tokens = Tokens(kLong + 3, 7);
      const auto go_on = [&](Session& session) {
        std::vector<float> all;
        Session* const self = &session;
        for (int64_t i = 0; i < 3; ++i) {
          const auto hidden = (*engine)->Decode(std::span(&self, 1), std::span(tokens).subspan(kLong + i, 1));
          EXPECT_TRUE(hidden);
          if (hidden) all.insert(all.end(), hidden->begin(), hidden->end());
        }
        return all;
      };
      const auto read = [&](int64_t n) {
        Session session = (*engine)->NewSession();
        EXPECT_TRUE((*engine)->Prefill(session, std::span(tokens).first(n), Outputs::kNone, {}));
        return session;
      };
      const Session whole = read(kLong);
      for (const int64_t n : {1400, 1666, 1792, 1900, 2048, 2100, 2304, 2500, 3000}) {
        if (kSanitized && n != 1666 && n != 2048 && n != 2304) continue;
        Session fresh = read(n);
        Session cancelled = (*engine)->Fork(fresh);
        const std::vector<float> expected = go_on(fresh);
        Session longer = (*engine)->Fork(whole);
        ASSERT_TRUE((*engine)->Truncate(longer, n));
        ASSERT_TRUE(SameBits(go_on(longer), expected)) << "back to " << n;
        // A prompt that is cancelled in its second block of tokens.
        CancelToken cancel;
        int layers = 0;
        const ForwardControl control{.cancel = &cancel, .progress = [&](double) {
                                       if (++layers == static_cast<int>(options.n_layers) + 2)
                                         cancel.Cancel();
                                     }};
        const auto stopped =
            (*engine)->Prefill(cancelled, std::span(tokens).subspan(n), Outputs::kNone, control);
        ASSERT_EQ(stopped.has_value(), kLong + 3 - n <= 2048) << n;
        if (!stopped) {
          ASSERT_TRUE(SameBits(go_on(cancelled), expected)) << "cancelled behind " << n;
        }
      }
    }
  }
}

TEST(Sessions, AreTestedUnderEveryMethod) {
  for (const std::string& name : PolicyNames()) {
    EXPECT_TRUE(std::ranges::any_of(kCases,
                                    [&](const Case& c) {
                                      return std::string(c.attention).starts_with(name + ",") ||
                                             c.attention == name;
                                    }))
        << "say above with which options sessions of '" << name << "' are tested";
  }
}

}  // namespace
}  // namespace longheads
