// Values beside the score: what is measured, by name or as series over layers.
#include "report/found_values.h"

#include <gtest/gtest.h>

#include "report/found_tables.h"

namespace longheads {
namespace {

Observation Found(const std::string& method, int64_t length, Json values) {
  return {.attention = method, .cell = {{"length", length}}, .values = std::move(values), .seconds = 2};
}

TEST(FoundValues, KeysAndCoordinatesAreNone) {
  Experiment e{.task = "t", .measure = {}, .settings = {}, .observations = {}};
  e.observations.push_back(
      Found("full", 1024, {{"key", 48713}, {"depth", 0.5}, {"dim", 128}, {"rank", 3}, {"name", "x"}}));
  const FoundValues values = ValuesOf(e);
  EXPECT_EQ(values.names, (std::vector<std::string>{"rank", kSecondsPerSample}));
  EXPECT_TRUE(values.series.empty());
}

TEST(FoundValues, ThreeNumberedOnesAreASeries) {
  Experiment e{.task = "t", .measure = {}, .settings = {}, .observations = {}};
  e.observations.push_back(Found("esa", 1024,
                                 {{"layer_10", 0.5},
                                  {"layer_2", 0.25},
                                  {"layer_0", 1},
                                  {"dim_64", 1},
                                  {"dim_128", 1},
                                  {"kv_gib", 1},
                                  {"x_", 1},
                                  {"_1", 1}}));
  const FoundValues values = ValuesOf(e);
  ASSERT_EQ(values.series.size(), 1u);
  EXPECT_EQ(values.series[0].name, "layer");
  EXPECT_EQ(values.series[0].numbers, (std::vector<int64_t>{0, 2, 10}));
  EXPECT_EQ(values.names,
            (std::vector<std::string>{"kv_gib", "x_", "_1", "dim_64", "dim_128", kSecondsPerSample}));
}

TEST(FoundValues, MeansAreByMethodAndColumnWithoutFailures) {
  Experiment e{.task = "t", .measure = {}, .settings = {}, .observations = {}};
  e.observations = {Found("a", 1024, {{"x", 1}}), Found("a", 1024, {{"x", 2}}), Found("a", 2048, {{"y", 1}}),
                    Found("b", 1024, {{"x", 9}})};
  e.observations[3].failed = "no";
  const std::vector<FoundRow> rows = RowsOf(e, "length");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].column, Json(1024));
  EXPECT_EQ(MeanOf(rows[0].observations, "x"), 1.5);
  EXPECT_EQ(MeanOf(rows[0].observations, kSecondsPerSample), 2);
  EXPECT_EQ(MeanOf(rows[1].observations, "x"), std::nullopt);
  // Together they are beyond what a number holds.
  e.observations = {Found("a", 1024, {{"x", 1e308}}), Found("a", 1024, {{"x", 1e308}})};
  EXPECT_NEAR(*MeanOf(RowsOf(e, "length")[0].observations, "x"), 1e308, 1e295);
}

std::string Text(const TableRows& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (const TableCell& cell : row) text += cell.text + "|";
    text += "\n";
  }
  return text;
}

TEST(FoundTables, SeveralValuesAreColumnsAndOneHasTheLengthsThere) {
  Experiment e{.task = "t", .measure = {.name = "cover"}, .settings = {}, .observations = {}};
  e.observations = {Found("a", 2048, {{"x", 1}}), Found("b", 1024, {{"x", 2}}), Found("b", 2048, {{"x", 3}})};
  const std::vector<FoundRow> found = RowsOf(e, "length");
  const FoundTable several = ValuesTable(e, found, "length", {"x", kSecondsPerSample});
  EXPECT_EQ(several.n_names, 2u);
  EXPECT_EQ(Text(several.rows),
            "method|length|cover|x|seconds per sample|\na|2k|0|1|2|\nb|1k|0|2|2|\nb|2k|0|3|2|\n");
  const FoundTable one = ValuesTable(e, found, "length", {"x"});
  EXPECT_EQ(one.n_names, 1u);
  EXPECT_EQ(Text(one.rows), "x|1k|2k|\na|\u2013|1|\nb|2|3|\n");
}

}  // namespace
}  // namespace longheads
