// The scores of random texts against the Python packages that the official scorers call:
// tools/oracle/scores_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scoring/code_points.h"
#include "scoring/edit_ratio.h"
#include "scoring/rouge.h"
#include "scoring/token_f1.h"

namespace longheads {
namespace {

constexpr double kNear = 1e-12;  // the same few operations in double

nlohmann::json Cases() {
  std::ifstream file(LONGHEADS_SOURCE_DIR "/tests/golden/scores/texts.json");
  return nlohmann::json::parse(file).at("cases");
}

template <typename Check>
void ForEachCase(const Check& check) {
  const nlohmann::json cases = Cases();
  ASSERT_GE(cases.size(), 80U);
  for (const nlohmann::json& c : cases) {
    const auto a = c.at("a").get<std::string>();
    const auto b = c.at("b").get<std::string>();
    SCOPED_TRACE(c.dump());
    check(c, a, b);
  }
}

TEST(ScoresGolden, RougeIsThatOfBothPackages) {
  ForEachCase([](const nlohmann::json& c, const std::string& a, const std::string& b) {
    EXPECT_NEAR(RougeL(a, b), c.at("rouge_l").get<double>(), kNear);
    EXPECT_NEAR(RougeLsum(a, b), c.at("rouge_lsum").get<double>(), kNear);
  });
}

TEST(ScoresGolden, EditRatiosAreThoseOfRapidfuzzAndDifflib) {
  ForEachCase([](const nlohmann::json& c, const std::string& a, const std::string& b) {
    EXPECT_NEAR(IndelRatio(a, b), c.at("indel").get<double>(), kNear);
    EXPECT_NEAR(MatchingBlocksRatio(a, b), c.at("blocks").get<double>(), kNear);
    EXPECT_EQ(FuzzyPercent(a, b, EditRatio::kIndel), c.at("percent_indel").get<int>());
    EXPECT_EQ(FuzzyPercent(a, b, EditRatio::kMatchingBlocks), c.at("percent_blocks").get<int>());
  });
}

TEST(ScoresGolden, NormalFormAndF1AreThoseOfPythonsText) {
  ForEachCase([](const nlohmann::json& c, const std::string& a, const std::string& b) {
    std::vector<std::string> tokens;
    for (const std::u32string& token : AnswerTokens(a)) tokens.push_back(ToUtf8(token));
    EXPECT_EQ(tokens, c.at("tokens").get<std::vector<std::string>>());
    EXPECT_NEAR(QaF1(a, b), c.at("f1").get<double>(), kNear);
    EXPECT_NEAR(ChineseQaF1(a, b), c.at("f1_characters").get<double>(), kNear);
  });
}

}  // namespace
}  // namespace longheads
