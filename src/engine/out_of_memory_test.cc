// Memory that runs out at any single allocation: calls report it or succeed, and sessions stay what they
// were.
#include <gtest/gtest.h>

#include <optional>

#include "engine/engine.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/model_file.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_transformer.h"

namespace longheads {
namespace {

const TinyLlamaOptions kTiny = {
    .embed = 32, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .ffn = 48, .context_length = 4096};

class OutOfMemoryTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> Load() const { return std::move(*Engine::Load(options_)); }

  // After prepare(), calls attempt() with the k-th of its allocations failing and then check(succeeded), for
  // k = 1, 2, ... until it makes fewer; from `all` on only for each stride-th k. Sanitized, a quarter of
  // each.
  struct Steps {
    int64_t all;
    int64_t stride;
  };
  template <typename Prepare, typename Attempt, typename Check>
  void FailEach(Steps steps, const Prepare& prepare, const Attempt& attempt, const Check& check) {
    int64_t n_reported = 0;
    for (int64_t k = 1;; k += (kSanitized ? 4 : 1) * (k < steps.all ? 1 : steps.stride)) {
      SCOPED_TRACE("allocation " + std::to_string(k) + " fails");
      prepare();
      FailAllocation(k);
      const auto result = attempt();
      const bool failed = AllocationFailed();
      FailAllocation(0);
      if (!result) {
        ++n_reported;
        ASSERT_TRUE(failed) << result.error().message;
        ASSERT_EQ(result.error().kind, ErrorKind::kOutOfMemory) << result.error().message;
      }
      check(result.has_value());
      if (!failed || HasFailure()) break;
    }
    EXPECT_GT(n_reported, 0);
  }

  std::vector<float> Prefill(Engine& engine, Session& session, const std::vector<TokenId>& tokens) const {
    const Result<std::vector<float>> hidden = engine.Prefill(session, tokens, Outputs::kAll, {});
    EXPECT_TRUE(hidden) << hidden.error().message;
    return hidden.value_or(std::vector<float>());
  }
  std::vector<float> Decode(Engine& engine, Session& session, std::span<const TokenId> tokens) const {
    std::vector<float> hidden;
    Session* const self = &session;
    for (const TokenId& token : tokens) {
      const Result<std::vector<float>> one = engine.Decode(std::span(&self, 1), std::span(&token, 1));
      EXPECT_TRUE(one);
      hidden.insert(hidden.end(), one->begin(), one->end());
    }
    return hidden;
  }

  const ModelFile file_{TinyLlama(kTiny)};
  const EngineOptions options_{.model_path = file_.path(),
                               .attention = "longheads,chunk=16,window=64,begin=80",
                               .compute = "f32",
                               .backend = GetParam(),
                               .threads = 2};
  const std::vector<TokenId> prompt_ = TinyTokens(130, 256, 1);
  const std::vector<TokenId> more_ = TinyTokens(60, 256, 2);
  const std::vector<TokenId> answer_ = TinyTokens(3, 256, 3);
};

TEST_P(OutOfMemoryTest, LoadReportsIt) {
  FailEach(
      {.all = 60, .stride = 29}, [] {}, [&] { return Engine::Load(options_); }, [](bool) {});
}

TEST_P(OutOfMemoryTest, TheFirstPromptOfAnEngineReportsItAndCanBeReadAgain) {
  for (const char* const packed_weights : {"off", "on"}) {
    EngineOptions options = options_;
    options.packed_weights = packed_weights;
    std::unique_ptr<Engine> engine = *Engine::Load(options);  // makes its buffers and products on the way
    std::optional<Session> session(engine->NewSession());
    const std::vector<float> expected = Prefill(*engine, *session, prompt_);
    const auto prepare = [&] {
      session.reset();
      engine = *Engine::Load(options);
      session.emplace(engine->NewSession());
    };
    const auto attempt = [&] { return engine->Prefill(*session, prompt_, Outputs::kAll, {}); };
    FailEach({.all = 60, .stride = 7}, prepare, attempt, [&](bool succeeded) {
      ASSERT_EQ(session->size(), succeeded ? 130 : 0);
      if (!succeeded) {
        ASSERT_TRUE(SameBits(Prefill(*engine, *session, prompt_), expected)) << packed_weights;
      }
    });
  }
}

TEST_P(OutOfMemoryTest, AFurtherPromptReportsItAndLeavesTheSessionAsItWas) {
  const std::unique_ptr<Engine> engine = Load();
  Session begun = engine->NewSession();
  Prefill(*engine, begun, prompt_);
  Decode(*engine, begun, answer_);
  std::optional<Session> session(engine->Fork(begun));
  std::vector<float> expected = Prefill(*engine, *session, more_);
  const std::vector<float> expected_answer = Decode(*engine, *session, answer_);
  const auto prepare = [&] { session.emplace(engine->Fork(begun)); };
  const auto attempt = [&] { return engine->Prefill(*session, more_, Outputs::kAll, {}); };
  FailEach({.all = 400, .stride = 11}, prepare, attempt, [&](bool succeeded) {
    ASSERT_EQ(session->size(), succeeded ? 193 : 133);
    if (!succeeded) {
      ASSERT_TRUE(SameBits(Prefill(*engine, *session, more_), expected));
    }
    ASSERT_TRUE(SameBits(Decode(*engine, *session, answer_), expected_answer));
  });
}

TEST_P(OutOfMemoryTest, DecodeReportsItAndLeavesAllSessionsAsTheyWere) {
  const std::unique_ptr<Engine> engine = Load();
  // The next token is: the last of a chunk; the first of one; the first of a
  // page. The other session of the batch is at the end of a chunk.
  for (const int64_t n : {127, 128, 256}) {
    const std::vector<TokenId> prompt = TinyTokens(n, 256, 4);
    Session begun = engine->NewSession();
    Session other_begun = engine->NewSession();
    Prefill(*engine, begun, prompt);
    Prefill(*engine, other_begun, TinyTokens(95, 256, 5));
    Session copy = engine->Fork(begun);
    const std::vector<float> expected = Decode(*engine, copy, answer_);
    Session other_copy = engine->Fork(other_begun);
    const std::vector<float> other_expected = Decode(*engine, other_copy, answer_);

    std::optional<Session> session;
    std::optional<Session> other;
    const auto prepare = [&] {
      session.emplace(engine->Fork(begun));
      other.emplace(engine->Fork(other_begun));
    };
    const auto attempt = [&] {
      Session* const both[] = {&*session, &*other};
      const TokenId next[] = {answer_[0], answer_[0]};
      return engine->Decode(both, next);
    };
    FailEach({.all = 1000, .stride = 1}, prepare, attempt, [&](bool succeeded) {
      const std::size_t done = succeeded ? 1 : 0;
      const std::size_t embed = static_cast<std::size_t>(kTiny.embed);
      ASSERT_EQ(session->size(), n + static_cast<int64_t>(done));
      const auto rest = std::span(answer_).subspan(done);
      ASSERT_TRUE(SameBits(Decode(*engine, *session, rest), std::span(expected).subspan(done * embed)));
      ASSERT_TRUE(SameBits(Decode(*engine, *other, rest), std::span(other_expected).subspan(done * embed)));
    });
    if (HasFailure()) return;
  }
}

TEST_P(OutOfMemoryTest, TruncateReportsItAndLeavesTheSessionAsItWas) {
  const std::unique_ptr<Engine> engine = Load();
  Session begun = engine->NewSession();
  Prefill(*engine, begun, prompt_);
  Decode(*engine, begun, answer_);
  Prefill(*engine, begun, more_);
  Session copy = engine->Fork(begun);
  const std::vector<float> expected = Decode(*engine, copy, answer_);
  copy = engine->Fork(begun);
  ASSERT_TRUE(engine->Truncate(copy, 132));
  const std::vector<float> expected_cut = Decode(*engine, copy, answer_);
  std::optional<Session> session;
  const auto prepare = [&] { session.emplace(engine->Fork(begun)); };
  // Inside a closed chunk of prompt and answer: two tokens as a prompt, two decoded again.
  const auto attempt = [&] { return engine->Truncate(*session, 132); };
  FailEach({.all = 300, .stride = 7}, prepare, attempt, [&](bool succeeded) {
    ASSERT_EQ(session->size(), succeeded ? 132 : 193);
    ASSERT_TRUE(SameBits(Decode(*engine, *session, answer_), succeeded ? expected_cut : expected));
  });
}

TEST_P(OutOfMemoryTest, GenerateReportsIt) {
  const std::unique_ptr<Engine> engine = Load();
  Session begun = engine->NewSession();
  const std::vector<float> hidden = *engine->Prefill(begun, prompt_, Outputs::kLast, {});
  std::optional<Session> session;
  const auto prepare = [&] { session.emplace(engine->Fork(begun)); };
  const auto attempt = [&] {
    return engine->Generate(*session, hidden,
                            {.max_tokens = 5, .sampling = {.temperature = 1, .repeat_penalty = 1.1f}});
  };
  FailEach({.all = 200, .stride = 1}, prepare, attempt, [](bool) {});
}

INSTANTIATE_TEST_SUITE_P(Every, OutOfMemoryTest, testing::Values("auto", "ref"));

}  // namespace
}  // namespace longheads
