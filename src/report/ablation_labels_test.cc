// Variants are known by their specs alone, and other methods are none.
#include "report/ablation_labels.h"

#include <gtest/gtest.h>

#include <vector>

#include "eval/ablation.h"

namespace longheads {
namespace {

TEST(AblationLabels, AreThoseOfTheCommand) {
  const auto variants = AblationVariants({.chunk = 128, .window = 2048, .rest = "begin=window"});
  ASSERT_TRUE(variants);
  std::vector<std::string> methods = {"full"};
  for (const AblationVariant& variant : *variants) methods.push_back(variant.attention);
  const std::map<std::string, std::string> labels = AblationLabels(methods);
  EXPECT_EQ(labels.size(), variants->size());
  for (const AblationVariant& variant : *variants) EXPECT_EQ(labels.at(variant.attention), variant.label);
}

TEST(AblationLabels, NeedABaseAndTwoVariants) {
  std::vector<std::string> methods = {"longheads,chunk=256,window=4096",
                                      "longheads,chunk=256,window=4096,choose=last-k", "full", "longheads"};
  EXPECT_TRUE(AblationLabels(methods).empty());
  methods.emplace_back("longheads,chunk=256,window=2048");
  const std::map<std::string, std::string> labels = AblationLabels(methods);
  EXPECT_EQ(labels.size(), 3u);
  EXPECT_EQ(labels.at(methods[1]), "Last K");
  EXPECT_EQ(labels.at(methods[4]), "K = 8");
}

TEST(AblationLabels, SpecsWithoutSenseHaveNone) {
  const std::vector<std::string> methods = {"",
                                            "longheads,",
                                            "longheads,chunk=",
                                            "longheads,chunk=0,window=0",
                                            "longheads,chunk=1,window=-4",
                                            "longheads,chunk=2,window=99999999999999999999",
                                            "longheads,chunk=9223372036854775806,window=9223372036854775806",
                                            "longheads,chunk=2x,window=32"};
  EXPECT_TRUE(AblationLabels(methods).empty());
}

}  // namespace
}  // namespace longheads
