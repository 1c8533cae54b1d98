#include "eval/ablation.h"

#include <gtest/gtest.h>

#include "eval/tiny_engine_for_test.h"

namespace longheads {
namespace {

TEST(Ablation, VariantsAreThePapersTable) {
  const auto variants = AblationVariants({.rest = "begin=window"});
  ASSERT_TRUE(variants);
  ASSERT_EQ(variants->size(), 12u);
  EXPECT_EQ((*variants)[0].attention, "longheads,chunk=256,window=4096,begin=window");
  EXPECT_EQ((*variants)[1].attention, "longheads,chunk=256,window=4096,begin=window,choose=random");
  EXPECT_EQ((*variants)[8].label, "K = 8");
  EXPECT_EQ((*variants)[8].attention, "longheads,chunk=256,window=2048,begin=window");
  EXPECT_EQ((*variants)[10].attention, "longheads,chunk=512,window=4096,begin=window");
  EXPECT_EQ((*variants)[11].label, "l = 128, K = 32");
  for (const AblationBase& bad :
       {AblationBase{.chunk = 256, .window = 4000}, AblationBase{.chunk = 256, .window = 2048},
        AblationBase{.chunk = 0}, AblationBase{.chunk = 256, .window = 256 * 18}}) {
    EXPECT_FALSE(AblationVariants(bad));
  }
}

// Every spec must be one that the method takes.
TEST(Ablation, VariantsLoad) {
  const TestDirectory directory;
  const std::string model = TinyModelFile(directory);
  const auto variants = AblationVariants({.chunk = 16, .window = 192, .rest = "begin=window"});
  ASSERT_TRUE(variants);
  for (const AblationVariant& variant : *variants) {
    const auto engine = LoadTiny(model, variant.attention);
    EXPECT_TRUE(engine) << variant.attention << ": " << engine.error().message;
  }
}

TEST(Ablation, DifferenceIsOverTheSamplesThatBothHave) {
  const std::vector<SampleScore> base = {{"1", "a", 0.5}, {"2", "b", 1}, {"3", "c", 0}, {"4", "d", 1}};
  const std::vector<SampleScore> variant = {{"2", "b", 0.5}, {"3", "c", 0.5}, {"4", "d", 0}, {"5", "e", 1}};
  const auto difference = DifferenceFromBase(variant, base, /*shares=*/true);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->n_samples, 3);
  EXPECT_DOUBLE_EQ(difference->mean, -1.0 / 3);
  EXPECT_GE(difference->interval.low, -1);
  EXPECT_LT(difference->interval.low, difference->mean);
  EXPECT_GT(difference->interval.high, difference->mean);
  // -1/2, 1/2 and -1 have mean -1/3 and standard error 0.4410; Student's t of two degrees is 4.3027.
  const auto number = DifferenceFromBase(variant, base, /*shares=*/false);
  ASSERT_TRUE(number);
  EXPECT_NEAR(number->interval.high, -1.0 / 3 + 4.3027 * 0.4410, 1e-3);
  // One document knows nothing of its scatter.
  EXPECT_FALSE(DifferenceFromBase(std::span(variant).first(1), base, /*shares=*/true));
  EXPECT_FALSE(DifferenceFromBase({}, base, /*shares=*/true));
}

TEST(Ablation, TableComparesSampleBySample) {
  const std::vector<AblationVariant> variants = {{"base", "a"}, {"other", "b"}, {"none", "c"}};
  std::vector<TaskRecord> records;
  const auto add = [&](const std::string& spec, int i, double score) {
    TaskRecord record;
    record.setup.attention = spec;
    record.sample.id = std::to_string(i);
    record.measured.score = score;
    records.push_back(record);
  };
  for (int i = 0; i < 10; ++i) {
    add("a", i, 1);
    add("b", i, i < 5 ? 1 : 0);
  }
  records.back().failed = "broken";
  const std::string table = AblationTable(records, variants);
  EXPECT_NE(table.find("100.0"), std::string::npos) << table;
  EXPECT_NE(table.find("55.6"), std::string::npos) << table;
  // 5 of 9 against 9 of 9: Wilson's 26.7 to 81.1 and 70.1 to 100, and no correlation where one does not vary.
  EXPECT_NE(table.find("55.6 (26.7 to 81.1)"), std::string::npos) << table;
  EXPECT_NE(table.find("-44.4 (-73.3 to -5.1)"), std::string::npos) << table;
}

}  // namespace
}  // namespace longheads
