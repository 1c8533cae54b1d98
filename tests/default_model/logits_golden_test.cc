// The default model against Hugging Face transformers: tests/golden/llama/default.json says what is in the
// goldens.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/npy.h"
#include "tests/default_model/default_model.h"

namespace longheads {
namespace {

std::string Folder() { return std::string(LONGHEADS_SOURCE_DIR) + "/tests/golden/llama/"; }

const nlohmann::json& Manifest() {
  static const nlohmann::json manifest = [] {
    std::ifstream file(Folder() + "default.json");
    return nlohmann::json::parse(file);
  }();
  return manifest;
}

template <typename T>
std::vector<T> Golden(const std::string& name) {
  const Result<NpyArray> array = ReadNpy(Folder() + "default." + name + ".npy");
  EXPECT_TRUE(array) << array.error().message;
  return *array->As<T>();
}

struct Errors {
  double max = 0;
  double mean = 0;
  void Add(double a, double b, std::size_t of) {
    max = std::max(max, std::abs(a - b));
    mean += std::abs(a - b) / static_cast<double>(of);
  }
};

struct Golds {
  std::vector<TokenId> tokens = Manifest()["tokens"];
  std::vector<std::size_t> positions = Manifest()["positions"];
  std::vector<int32_t> subset = Golden<int32_t>("subset");
  std::vector<float> logits = Golden<float>("logits");
  std::vector<int32_t> argmax = Golden<int32_t>("argmax");
  std::vector<float> logsumexp = Golden<float>("logsumexp");
  std::vector<float> gaps = Golden<float>("gaps");
  double exact_error = Manifest()["exact_error"];
  double exact_logsumexp_error = Manifest()["exact_logsumexp_error"];
};

struct Comparison {
  Errors logits, logsumexp;
  std::size_t n_argmax = 0;  // positions where it is the golden's
};

// The prompt's logits: the first n_prefill tokens in prefill, the rest decoded.
Comparison Compare(const Golds& golds, const std::string& compute, std::size_t n_prefill) {
  const std::unique_ptr<Engine> engine = LoadDefaultModel("full", compute);
  const std::size_t vocab = static_cast<std::size_t>(engine->config().vocab_size);
  Session session = engine->NewSession();
  const std::span<const TokenId> tokens(golds.tokens);
  std::vector<float> hidden = *engine->Prefill(session, tokens.first(n_prefill), Outputs::kAll, {});
  for (std::size_t i = n_prefill; i < tokens.size(); ++i) {
    Session* const self = &session;
    const std::vector<float> one = *engine->Decode(std::span(&self, 1), tokens.subspan(i, 1));
    hidden.insert(hidden.end(), one.begin(), one.end());
  }
  const std::vector<float> logits = engine->Logits(hidden);
  EXPECT_EQ(logits.size(), tokens.size() * vocab);

  Comparison result;
  for (std::size_t p = 0; p < golds.positions.size(); ++p) {
    for (std::size_t i = 0; i < golds.subset.size(); ++i) {
      const std::size_t at = golds.positions[p] * vocab + static_cast<std::size_t>(golds.subset[i]);
      result.logits.Add(static_cast<double>(logits[at]),
                        static_cast<double>(golds.logits[p * golds.subset.size() + i]), golds.logits.size());
    }
  }
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::span<const float> row = std::span(logits).subspan(t * vocab, vocab);
    const TokenId most = ArgMax(row);
    result.n_argmax += most == golds.argmax[t];
    double sum = 0;
    const double shift = static_cast<double>(row[static_cast<std::size_t>(most)]);
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - shift);
    result.logsumexp.Add(shift + std::log(sum), static_cast<double>(golds.logsumexp[t]), tokens.size());
  }
  return result;
}

void Record(const std::string& name, const Errors& errors) {
  const std::string text =
      std::to_string(errors.max) + " at most, " + std::to_string(errors.mean) + " on average";
  testing::Test::RecordProperty(name, text);
  std::printf("%s: off by %s\n", name.c_str(), text.c_str());
}

// As for the tiny models: the golden is exact_error off the exact logits, and ours may be twice as far off on
// the other side. The mean of errors that are about normal is a quarter of the largest of thousands.
TEST(DefaultModelLogits, InFloat32EqualHuggingFaceWithinRounding) {
  const Golds golds;
  for (const std::size_t n_prefill : {golds.tokens.size(), std::size_t{20}}) {
    const Comparison ours = Compare(golds, "f32", n_prefill);
    EXPECT_LE(ours.logits.max, 3 * golds.exact_error);
    EXPECT_LE(ours.logits.mean, 3 * golds.exact_error / 4);
    EXPECT_LE(ours.logsumexp.max, 3 * golds.exact_logsumexp_error);
    EXPECT_EQ(ours.n_argmax, golds.tokens.size());
    const std::string suffix = "_after_prefill_of_" + std::to_string(n_prefill);
    Record("logits_f32" + suffix, ours.logits);
    Record("logsumexp_f32" + suffix, ours.logsumexp);
  }
}

// Where the golden's two likeliest tokens are further apart than twice the error, the likeliest is the same.
void ExpectSameWhereItIsClear(const Golds& golds, const Comparison& ours) {
  std::size_t n_clear = 0;
  for (const float gap : golds.gaps) n_clear += static_cast<double>(gap) > 2 * ours.logits.max;
  EXPECT_GT(n_clear, 0u);
  EXPECT_GE(ours.n_argmax, n_clear);
}

// bfloat16 rounds what it multiplies by 2^-9 where float32 rounds by 2^-24, and the model amplifies both
// alike: the golden's own error times 2^15 is a bound.
TEST(DefaultModelLogits, InBfloat16AreOffByItsRoundings) {
  const Golds golds;
  const Comparison ours = Compare(golds, "bf16", golds.tokens.size());
  const double bound = 0x1p15 * golds.exact_error;
  EXPECT_LE(ours.logits.max, bound);
  EXPECT_LE(ours.logits.mean, bound / 4);
  EXPECT_LE(ours.logsumexp.max, bound);
  EXPECT_GT(ours.logits.max, 100 * golds.exact_error);  // bfloat16 did run
  ExpectSameWhereItIsClear(golds, ours);
  Record("logits_bf16", ours.logits);
  Record("logsumexp_bf16", ours.logsumexp);
}

// Eight bits for activations whose largest in 32 is some 2.5 times their root mean square: an error of about
// 2.5 / 127 / sqrt(12) = 0.0057 of it, five times bfloat16's 2^-9 / sqrt(3), in one factor of the two, so
// that the products are off by 3.6 times as much. Decode multiplies as prefill does; bf16-int8 in bfloat16 in
// prefill, but for the vocabulary.
TEST(DefaultModelLogits, InEightBitsAreOffByTheirRoundings) {
  const Golds golds;
  for (const std::string compute : {"int8", "bf16-int8"}) {
    for (const std::size_t n_prefill : {golds.tokens.size(), std::size_t{20}}) {
      const Comparison ours = Compare(golds, compute, n_prefill);
      const double bound = 3.6 * 0x1p15 * golds.exact_error;
      EXPECT_LE(ours.logits.max, bound);
      EXPECT_LE(ours.logits.mean, bound / 4);
      EXPECT_LE(ours.logsumexp.max, bound);
      EXPECT_GT(ours.logits.max, 1000 * golds.exact_error);  // eight bits were all that there were
      ExpectSameWhereItIsClear(golds, ours);
      const std::string suffix =
          (compute == "int8" ? "_int8" : "_bf16_int8") + ("_after_prefill_of_" + std::to_string(n_prefill));
      Record("logits" + suffix, ours.logits);
      Record("logsumexp" + suffix, ours.logsumexp);
    }
  }
}

TEST(DefaultModelLogits, LeadToTheSameGreedyTokens) {
  const std::unique_ptr<Engine> engine = LoadDefaultModel("full", "f32");
  for (const auto& prompt : Manifest()["greedy"]) {
    const std::vector<TokenId> tokens = prompt["tokens"];
    const std::vector<TokenId> expected = prompt["continuation"];
    ASSERT_EQ(expected.size(), 64u);
    Session session = engine->NewSession();
    const std::vector<float> hidden = *engine->Prefill(session, tokens, Outputs::kLast, {});
    const Result<Generated> answer = engine->Generate(session, hidden, {.max_tokens = 64});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->tokens, expected) << prompt["prompt"];
  }
}

}  // namespace
}  // namespace longheads
