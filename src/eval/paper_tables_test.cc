#include "eval/paper_tables.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "eval/infinitebench.h"
#include "eval/longbench.h"

namespace longheads {
namespace {

// Printed averages that their own entries do not have; the entries' is given.
struct Misprint {
  std::string_view source, model, method;
  double of_entries;
};
constexpr std::array<Misprint, 3> kMisprints = {{
    {"LongHeads (ACL 2024), table 2", "Llama-2-7B", "LongHeads, PI", 32.18},  // 32.00, at 32k
    {"ESA (2025), table 2", "Mistral-7B-Instruct-v0.2", "Origin", 25.98},     // 36.31
    // 40.37: qasper is printed with qmsum's 21.73, and 43.06 would give the average.
    {"ESA (2025), table 9", "Llama-3-8B-Instruct", "LM-Infinite, top 5", 39.04},
}};

double ExpectedAverage(const PaperTable& table, const PaperRow& row) {
  for (const Misprint& m : kMisprints) {
    const bool same = m.source == table.source && m.model == table.model && m.method == row.method;
    if (same && (!table.setting.starts_with("16k"))) return m.of_entries;
  }
  return *row.average;
}

void CheckAverages(std::span<const PaperTable> tables) {
  for (const PaperTable& table : tables) {
    for (const PaperRow& row : table.rows) {
      SCOPED_TRACE(std::string(table.source) + ", " + std::string(table.setting) + ": " +
                   std::string(row.method));
      EXPECT_EQ(row.scores.size(), table.columns.size());
      if (row.scores.empty() || !row.average) continue;
      const double mean =
          std::accumulate(row.scores.begin(), row.scores.end(), 0.0) / static_cast<double>(row.scores.size());
      // Averages are printed to one decimal or to two.
      const double printed = *row.average * 10;
      const bool one_decimal = std::abs(printed - std::round(printed)) < 1e-9;
      EXPECT_NEAR(mean, ExpectedAverage(table, row), one_decimal ? 0.0501 : 0.0101);
    }
  }
}

TEST(PaperTables, PrintedAveragesAreThoseOfTheEntries) {
  CheckAverages(LongBenchPaperTables());
  CheckAverages(RetrievalPaperTables());
}

TEST(PaperTables, ColumnsAreDataSetsThatRunHere) {
  for (const PaperTable* table : FindPaperTables("longbench")) {
    for (const std::string_view column : table->columns) EXPECT_NE(FindLongBench(column), nullptr) << column;
  }
  for (const PaperTable* table : FindPaperTables("infinitebench")) {
    for (const std::string_view column : table->columns)
      EXPECT_NE(FindInfiniteBench(column), nullptr) << column;
  }
}

TEST(PaperTables, EveryExperimentFindsItsOwn) {
  EXPECT_EQ(FindPaperTables("longbench").size(), 9U);
  EXPECT_EQ(FindPaperTables("infinitebench").size(), 3U);
  EXPECT_EQ(FindPaperTables("counting-stars").size(), 2U);
  EXPECT_EQ(FindPaperTables("needlebench").size(), 3U);
  EXPECT_TRUE(FindPaperTables("ppl").empty());
}

}  // namespace
}  // namespace longheads
