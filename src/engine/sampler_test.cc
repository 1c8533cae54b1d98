#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace longheads {
namespace {

Sampler Make(const SamplerOptions& options) {
  Result<Sampler> sampler = Sampler::Create(options);
  EXPECT_TRUE(sampler) << sampler.error().message;
  return *sampler;
}

TokenId Once(const SamplerOptions& options, std::vector<float> logits, std::vector<TokenId> recent = {}) {
  return Make(options).Sample(logits, recent);
}

constexpr int kDraws = 20000;

// Draws often and holds every share to its probability: within five standard deviations, and never where the
// probability is none.
void ExpectShares(const SamplerOptions& options, const std::vector<float>& logits,
                  const std::vector<double>& probabilities, const std::vector<TokenId>& recent = {}) {
  Sampler sampler = Make(options);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> fresh = logits;
    ++counts[static_cast<std::size_t>(sampler.Sample(fresh, recent))];
  }
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double p = probabilities[id];
    const double sigma = std::sqrt(p * (1 - p) / kDraws);
    EXPECT_NEAR(static_cast<double>(counts[id]) / kDraws, p, 5 * sigma) << "id " << id;
  }
}

// softmax(logits / temperature) over `kept`, zero elsewhere.
std::vector<double> Softmax(const std::vector<float>& logits, double temperature,
                            const std::vector<std::size_t>& kept) {
  std::vector<double> p(logits.size());
  double sum = 0;
  for (const std::size_t id : kept) sum += p[id] = std::exp(static_cast<double>(logits[id]) / temperature);
  for (double& value : p) value /= sum;
  return p;
}

// As probabilities: 0.5, 0.05, 0.25, 0.15, 0.05.
std::vector<float> Logits() {
  std::vector<float> logits;
  for (const double p : {0.5, 0.05, 0.25, 0.15, 0.05}) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  EXPECT_EQ(Once({}, {1, 3, 3, 2, 3}), 1);
  EXPECT_EQ(Once({}, {0, 0}), 0);
  EXPECT_EQ(Once({}, {-5}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{-1, -2, -1}), 0);
}

TEST(Sampler, DrawsWithTheModelsProbabilities) {
  ExpectShares({.temperature = 1, .seed = 1}, Logits(), {0.5, 0.05, 0.25, 0.15, 0.05});
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  for (const float temperature : {0.25f, 0.8f, 3.0f}) {
    ExpectShares({.temperature = temperature, .seed = 2}, Logits(),
                 Softmax(Logits(), static_cast<double>(temperature), {0, 1, 2, 3, 4}));
  }
}

TEST(Sampler, TopKKeepsTheLikeliestAndTheLowerOfEqualIds) {
  ExpectShares({.temperature = 1, .top_k = 2, .seed = 3}, Logits(), Softmax(Logits(), 1, {0, 2}));
  ExpectShares({.temperature = 1, .top_k = 4, .seed = 3}, Logits(), Softmax(Logits(), 1, {0, 1, 2, 3}));
  ExpectShares({.temperature = 2, .top_k = 1, .seed = 3}, Logits(), {1, 0, 0, 0, 0});
  ExpectShares({.temperature = 1, .top_k = 99, .seed = 3}, Logits(), Softmax(Logits(), 1, {0, 1, 2, 3, 4}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  ExpectShares({.temperature = 1, .top_p = 0.4f, .seed = 4}, Logits(), {1, 0, 0, 0, 0});
  ExpectShares({.temperature = 1, .top_p = 0.7f, .seed = 4}, Logits(), Softmax(Logits(), 1, {0, 2}));
  ExpectShares({.temperature = 1, .top_p = 0.85f, .seed = 4}, Logits(), Softmax(Logits(), 1, {0, 2, 3}));
  // The model's probabilities decide, the temperature comes after.
  ExpectShares({.temperature = 5, .top_p = 0.7f, .seed = 4}, Logits(), Softmax(Logits(), 5, {0, 2}));
  // Of those that top-k left: 0.5 of 0.75 is two thirds.
  ExpectShares({.temperature = 1, .top_k = 2, .top_p = 0.6f, .seed = 4}, Logits(), {1, 0, 0, 0, 0});
}

TEST(Sampler, MinPIsAShareOfTheLikeliest) {
  ExpectShares({.temperature = 1, .min_p = 0.4f, .seed = 5}, Logits(), Softmax(Logits(), 1, {0, 2}));
  ExpectShares({.temperature = 4, .min_p = 0.2f, .seed = 5}, Logits(), Softmax(Logits(), 4, {0, 2, 3}));
  ExpectShares({.temperature = 1, .min_p = 0.9f, .seed = 5}, Logits(), {1, 0, 0, 0, 0});
}

// More tokens than are sorted at a time: what is kept is what sorting all of them keeps.
TEST(Sampler, KeepsTheLikeliestOfManyTokens) {
  std::vector<float> logits;
  for (int id = 0; id < 3000; ++id) logits.push_back(static_cast<float>(7919 * id % 3001) / 400);
  std::vector<std::size_t> order(logits.size());
  for (std::size_t id = 0; id < order.size(); ++id) order[id] = id;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const std::vector<double> all = Softmax(logits, 1, order);
  for (const float top_p : {0.01f, 0.2f, 0.6f}) {
    double reached = 0;
    std::vector<bool> kept(logits.size());
    for (std::size_t i = 0; i < order.size() && reached < static_cast<double>(top_p); ++i) {
      kept[order[i]] = true;
      reached += all[order[i]];
    }
    Sampler by_p = Make({.temperature = 9, .top_p = top_p, .seed = 7});
    Sampler by_k = Make({.temperature = 9, .top_k = std::count(kept.begin(), kept.end(), true), .seed = 7});
    for (int draw = 0; draw < 400; ++draw) {
      std::vector<float> fresh = logits;
      const TokenId token = by_p.Sample(fresh, {});
      EXPECT_TRUE(kept[static_cast<std::size_t>(token)]) << token << " at " << top_p;
      EXPECT_EQ(by_k.Sample(fresh, {}), token);
    }
  }
}

// What is drawn has the shares of the softmax, also where most tokens are far from the likeliest and yet
// drawn often: one peak, and thousands so much below it that none of them is looked at but by lot.
TEST(Sampler, DrawsFarTokensWithTheirProbabilities) {
  constexpr std::size_t kTokens = 4000;
  for (const float temperature : {0.5f, 1.0f, 3.0f}) {
    // In units of the temperature: log(4000) is 8.3. The far ones in two halves, of which one is twice as
    // likely.
    std::vector<float> logits(kTokens);
    std::vector<std::size_t> ids;
    for (std::size_t id = 0; id < kTokens; ++id) {
      ids.push_back(id);
      logits[id] = temperature * (id % 2 == 0 ? -8.5f : -9.2f);
    }
    logits[1234] = 0;
    const std::vector<double> p = Softmax(logits, static_cast<double>(temperature), ids);
    const auto group_of = [](std::size_t id) -> std::size_t {
      return id == 1234 ? 0 : 1 + id % 2 + (id < kTokens / 2 ? 0 : 2);
    };
    std::vector<double> expected(5);
    for (const std::size_t id : ids) expected[group_of(id)] += p[id];
    ASSERT_GT(expected[1] + expected[2], 0.1);  // a half of the far ones
    std::vector<int> counts(5);
    Sampler sampler = Make({.temperature = temperature, .seed = 8});
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<float> fresh = logits;
      ++counts[group_of(static_cast<std::size_t>(sampler.Sample(fresh, {})))];
    }
    for (std::size_t group = 0; group < expected.size(); ++group) {
      const double sigma = std::sqrt(expected[group] * (1 - expected[group]) / kDraws);
      EXPECT_NEAR(static_cast<double>(counts[group]) / kDraws, expected[group], 5 * sigma)
          << "group " << group << " at " << temperature;
    }
  }
}

// Far below the likeliest what is kept is what sorting all keeps.
TEST(Sampler, KeepsFarTokensWhereTheyAreWanted) {
  constexpr std::size_t kTokens = 3000;
  std::vector<float> logits;
  for (std::size_t id = 0; id < kTokens; ++id) {
    logits.push_back(-20 * static_cast<float>(7919 * id % kTokens) / kTokens);
  }
  std::vector<std::size_t> order(kTokens);
  for (std::size_t id = 0; id < kTokens; ++id) order[id] = id;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const std::vector<double> all = Softmax(logits, 1, order);
  std::size_t n_top_p = 0;
  for (double reached = 0; reached < static_cast<double>(0.99999f); ++n_top_p) reached += all[order[n_top_p]];
  ASSERT_GT(logits[order[0]] - logits[order[n_top_p]], 8);
  const auto n_min_p = static_cast<std::size_t>(
      std::count_if(logits.begin(), logits.end(), [](float logit) { return std::exp(logit) >= 1e-5f; }));
  ASSERT_LT(n_min_p, kTokens);
  for (const auto& [options, n] :
       {std::pair(SamplerOptions{.temperature = 1e6f, .top_p = 0.99999f, .seed = 9}, n_top_p),
        {SamplerOptions{.temperature = 1e6f, .min_p = 1e-5f, .seed = 9}, n_min_p},
        {SamplerOptions{.temperature = 1e6f, .top_k = 2500, .seed = 9}, std::size_t{2500}}}) {
    std::vector<std::size_t> rank(kTokens);
    for (std::size_t i = 0; i < kTokens; ++i) rank[order[i]] = i;
    Sampler sampler = Make(options);
    std::size_t furthest = 0;
    for (int draw = 0; draw < 4000; ++draw) {
      std::vector<float> fresh = logits;
      furthest = std::max(furthest, rank[static_cast<std::size_t>(sampler.Sample(fresh, {}))]);
    }
    EXPECT_LE(furthest, n);            // its last may be rounded out or in
    EXPECT_GT(furthest, n - n / 100);  // all are as likely: one of the last hundredth is drawn
  }
}

TEST(Sampler, RepeatPenaltyDividesPositiveLogitsAndMultipliesNegativeOnes) {
  EXPECT_EQ(Once({.repeat_penalty = 2}, {3, 2, -1}, {0}), 1);        // 1.5, 2
  EXPECT_EQ(Once({.repeat_penalty = 2}, {3, 1, -1}, {0, 0, 0}), 0);  // once, however often it was seen
  EXPECT_EQ(Once({.repeat_penalty = 3}, {-1, -2, -2.5f}, {0}), 1);   // -3, -2
  EXPECT_EQ(Once({.repeat_penalty = 0.5f}, {3, 2, -1}, {1}), 1);     // 3, 4: repetition is wanted
  const std::vector<float> logits = {1, 2, -1};
  ExpectShares({.temperature = 1, .repeat_penalty = 2, .seed = 6}, logits, Softmax({1, 1, -2}, 1, {0, 1, 2}),
               {1, 2});
}

TEST(Sampler, RepeatPenaltyForgetsWhatIsLongAgo) {
  EXPECT_EQ(Once({.repeat_penalty = 2, .repeat_window = 2}, {3, 2}, {0, 1, 1}), 0);
  EXPECT_EQ(Once({.repeat_penalty = 2, .repeat_window = 3}, {3, 2.9f}, {0, 0, 0}), 1);
  EXPECT_EQ(Once({.repeat_penalty = 2, .repeat_window = 0}, {3, 2}, {0}), 0);
  EXPECT_EQ(Once({.repeat_penalty = 2}, {3, 2}, {7, -1, 0}), 1);  // ids without a logit are passed over
}

TEST(Sampler, EqualSeedsDrawEqualTokens) {
  std::vector<float> logits(50);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler = Make({.temperature = 1, .seed = seed});
    std::vector<TokenId> tokens;
    for (int i = 0; i < 40; ++i) tokens.push_back(sampler.Sample(logits, {}));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  // mt19937_64 is fixed by the standard and the rest is our own arithmetic: the same on every machine.
  const std::vector<TokenId> first = draw(0);
  EXPECT_EQ(std::vector<TokenId>(first.begin(), first.begin() + 3), (std::vector<TokenId>{7, 49, 1}));
}

TEST(Sampler, LivesWithLogitsThatAreNotNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const SamplerOptions all = {.temperature = 0.7f, .top_k = 3, .top_p = 0.9f, .min_p = 0.1f};
  EXPECT_EQ(Once({}, {kNan, 1, 2}), 2);
  EXPECT_EQ(Once({}, {kNan, kNan}), 0);
  EXPECT_EQ(Once({}, {kNan, -kInf}), 1);
  for (const float temperature : {1e-9f, 1.0f, 1e30f}) {
    EXPECT_EQ(Once({.temperature = temperature}, {1, kInf, kNan, 2}), 1);
    const TokenId token = Once({.temperature = temperature}, std::vector<float>(40, kNan));
    EXPECT_TRUE(token >= 0 && token < 40) << token;
  }
  EXPECT_EQ(Once({.temperature = 1e-9f}, {kNan, -kInf, 1, 0.99f}), 2);
  EXPECT_EQ(Once(all, {1, kInf, kNan, 2}), 1);
  EXPECT_EQ(Once(all, {kNan, -kInf, 1, -kInf}), 2);
  for (const float value : {kNan, kInf, -kInf}) {
    const TokenId token = Once(all, std::vector<float>(40, value));
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 40);
  }
}

TEST(Sampler, RefusesOptionsThatMeanNothing) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<SamplerOptions, const char*> wrong[] = {
      {{.temperature = -1}, "--temp"},
      {{.temperature = kNan}, "--temp"},
      {{.top_k = -1}, "--top-k"},
      {{.top_p = 0}, "--top-p"},
      {{.top_p = 1.5f}, "--top-p"},
      {{.top_p = kNan}, "--top-p"},
      {{.min_p = 1}, "--min-p"},
      {{.min_p = -0.1f}, "--min-p"},
      {{.repeat_penalty = 0}, "--repeat-penalty"},
      {{.repeat_penalty = kNan}, "--repeat-penalty"},
      {{.repeat_window = -1}, "repeat window"},
  };
  for (const auto& [options, name] : wrong) {
    const Result<Sampler> sampler = Sampler::Create(options);
    ASSERT_FALSE(sampler) << name;
    EXPECT_EQ(sampler.error().kind, ErrorKind::kInvalidInput);
    EXPECT_NE(sampler.error().message.find(name), std::string::npos) << sampler.error().message;
  }
}

}  // namespace
}  // namespace longheads
